#include "pserver/network/processor_alarm.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

namespace weir {
namespace {

// Means nothing to other threads, and unlike a real-time signal it needs no room in the user's queue.
constexpr int kSignal = SIGURG;

pid_t ThisThread() { return static_cast<pid_t>(::syscall(SYS_gettid)); }

}  // namespace

ProcessorAlarm::ProcessorAlarm() : thread_(ThisThread()) {
  ::sigemptyset(&signals_);
  ::sigaddset(&signals_, kSignal);
  sigevent event = {};
  event.sigev_notify = SIGEV_THREAD_ID;
  event.sigev_signo = kSignal;
  event._sigev_un._tid = thread_;  // glibc 2.36 has no name for it
  works_ = ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr) == 0 &&
           ::timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer_) == 0;
}

ProcessorAlarm::~ProcessorAlarm() {
  if (works_) ::timer_delete(timer_);
}

bool ProcessorAlarm::RingOnConnections(int listener) const {
  const f_owner_ex owner = {.type = F_OWNER_TID, .pid = thread_};
  const int flags = ::fcntl(listener, F_GETFL);
  return flags >= 0 && ::fcntl(listener, F_SETOWN_EX, &owner) == 0 && ::fcntl(listener, F_SETSIG, kSignal) == 0 &&
         ::fcntl(listener, F_SETFL, flags | O_ASYNC) == 0;
}

bool ProcessorAlarm::Await(absl::Duration used, absl::Duration most) {
  // A nanosecond at least: zero would stop the timer.
  const itimerspec after = {.it_interval = {}, .it_value = absl::ToTimespec(std::max(used, absl::Nanoseconds(1)))};
  ::timer_settime(timer_, /*flags=*/0, &after, nullptr);
  const timespec limit = absl::ToTimespec(std::max(most, absl::ZeroDuration()));
  siginfo_t from = {};
  const bool rang = ::sigtimedwait(&signals_, &from, &limit) == kSignal;
  const itimerspec never = {};
  ::timer_settime(timer_, /*flags=*/0, &never, nullptr);
  return rang && from.si_code == POLL_IN;
}

void ProcessorAlarm::Ring() { ::syscall(SYS_tgkill, ::getpid(), thread_, kSignal); }

}  // namespace weir
