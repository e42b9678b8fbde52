#include "pserver/rendezvous/cancellation.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "framework/base/clock.h"
#include "framework/base/exhausted.h"

namespace weir {
namespace {

int MakeEvent() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) ExitExhausted("a file descriptor");
  return fd;
}

}  // namespace

int PollTimeout(absl::Duration wait) {
  const absl::Duration bounded = std::clamp(wait, absl::ZeroDuration(), absl::Hours(24));
  return static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(bounded, absl::Milliseconds(1))));
}

Cancellation::Cancellation() : fd_(MakeEvent()) {}

Cancellation::~Cancellation() { ::close(fd_); }

void Cancellation::Cancel() {
  const uint64_t one = 1;
  // It fails only if the counter is full, and then the descriptor is readable.
  (void)!::write(fd_, &one, sizeof one);
}

bool Cancellation::WaitFor(absl::Duration limit) const {
  const absl::Time until = Clock::Real()->Now() + limit;
  pollfd event = {.fd = fd_, .events = POLLIN, .revents = 0};
  while (true) {
    const int ready = ::poll(&event, 1, PollTimeout(until - Clock::Real()->Now()));
    if (ready > 0) return true;
    if (Clock::Real()->Now() >= until) return false;
  }
}

}  // namespace weir
