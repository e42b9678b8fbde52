#include "framework/base/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "glog/logging.h"

namespace weir {
namespace {

// Wakes the thread when the object goes; nobody else sends it.
constexpr int kWake = SIGUSR2;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, kWake);
  return set;
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = Signals();
  CHECK_EQ(pthread_sigmask(SIG_BLOCK, &set, nullptr), 0);
  thread_ = std::thread([this] {
    pthread_setname_np(pthread_self(), "weir-signals");
    Wait();
  });
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

void StopSignals::Wait() {
  const sigset_t set = Signals();
  while (true) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    MutexLock lock(&mu_);
    if (done_) return;
    if (signal == kWake) continue;
    if (requested_) {
      LOG(WARNING) << "second " << (signal == SIGTERM ? "SIGTERM" : "SIGINT") << ": ends at once";
      _exit(128 + signal);
    }
    LOG(WARNING) << (signal == SIGTERM ? "SIGTERM" : "SIGINT")
                 << ": the job ends at the next step border, with a checkpoint; a second signal ends this process at once";
    requested_ = true;
    if (on_stop_) on_stop_();
  }
}

}  // namespace weir
