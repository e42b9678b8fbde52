#include "framework/process/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Wakes the waiting thread; sent only by this file.
constexpr int kWake = SIGUSR2;

// Blocks the signals. Runs before the constructors of libc and sanitizers, so it may only make system calls.
void HoldStopSignals(int, char**, char**) {
  struct {
    void* handler;
    unsigned long flags;
    void* restorer;
    unsigned long mask;
  } hang_up = {};
  ::syscall(SYS_rt_sigaction, SIGHUP, nullptr, &hang_up, sizeof hang_up.mask);
  const auto bit = [](int signal) { return 1UL << (signal - 1); };
  unsigned long mask = bit(SIGTERM) | bit(SIGINT);
  if (hang_up.handler != reinterpret_cast<void*>(SIG_IGN)) mask |= bit(SIGHUP);
  ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, nullptr, sizeof mask);
}

// Block before libraries initialize: that takes most of a program's start, and a signal during it counts, too.
[[gnu::section(".preinit_array"), gnu::used]] void (*const kHoldStopSignals)(int, char**, char**) = &HoldStopSignals;

const char* NameOf(int signal) { return signal == SIGTERM ? "SIGTERM" : signal == SIGINT ? "SIGINT" : "SIGHUP"; }

}  // namespace

sigset_t StopSignalSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  struct sigaction hang_up = {};
  // Leave out an ignored SIGHUP: the kernel queues a blocked signal for the waiting thread even if it is ignored.
  if (sigaction(SIGHUP, nullptr, &hang_up) == 0 && hang_up.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

StopSignals::StopSignals() {
  sigset_t set = StopSignalSet();
  sigaddset(&set, kWake);
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
  thread_ = StartThread("weir-signals", [this] { Wait(); });
}

StopSignals::~StopSignals() {
  {
    MutexLock lock(&mu_);
    done_ = true;
  }
  pthread_kill(thread_.native_handle(), kWake);
  thread_.join();
}

void StopSignals::OnStop(std::function<void()> on_stop) {
  // The callback runs under the lock: that is what makes OnStop({}) a barrier.
  MutexLock lock(&mu_);
  on_stop_ = std::move(on_stop);
  if (requested_ && on_stop_) on_stop_();
}

bool StopSignals::requested() {
  MutexLock lock(&mu_);
  return requested_;
}

void StopSignals::SetMeaning(std::string meaning) {
  MutexLock lock(&mu_);
  meaning_ = std::move(meaning);
}

void StopSignals::EndWithin(absl::Duration limit, int code, std::string why) {
  {
    MutexLock lock(&mu_);
    end_by_ = Clock::Real()->Now() + limit;
    end_code_ = code;
    end_why_ = std::move(why);
  }
  pthread_kill(thread_.native_handle(), kWake);
}

void StopSignals::SetCode(int code) {
  MutexLock lock(&mu_);
  code_ = code;
}

int StopSignals::code() {
  MutexLock lock(&mu_);
  return code_;
}

absl::Duration StopSignals::Left() {
  MutexLock lock(&mu_);
  const absl::Duration left = end_by_ - Clock::Real()->Now();
  if (left > absl::ZeroDuration()) return left;
  std::fprintf(stderr, "%s\n", end_why_.c_str());
  _exit(end_code_);
}

void StopSignals::Wait() {
  sigset_t set = StopSignalSet();
  sigaddset(&set, kWake);
  while (true) {
    // sigtimedwait measures by the monotonic clock.
    const timespec left = absl::ToTimespec(std::min(Left(), absl::Hours(24)));
    const int signal = sigtimedwait(&set, nullptr, &left);
    MutexLock lock(&mu_);
    if (done_) return;
    if (signal < 0 || signal == kWake) continue;
    if (requested_ && signal == SIGHUP) continue;
    const absl::Time now = Clock::Real()->Now();
    if (signal == SIGTERM && now < same_until_) continue;
    if (requested_) {
      LOG(WARNING) << "second " << NameOf(signal) << ": ends at once";
      _exit(128 + signal);
    }
    LOG(WARNING) << NameOf(signal) << ": " << meaning_ << "; a second signal ends this process at once";
    requested_ = true;
    if (signal == SIGTERM) same_until_ = now + kSameSigterm;
    if (on_stop_) on_stop_();
  }
}

}  // namespace weir
