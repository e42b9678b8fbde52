#include "tools/launching/console.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"

namespace weir {

void Console::Line(std::string_view text) {
  if (error_ != 0) return;
  if (buffer_.size() + text.size() > limit_) {
    Flush();
    if (buffer_.size() + text.size() > limit_) {
      ++dropped_;
      return;
    }
  }
  if (dropped_ > 0) {
    absl::StrAppend(&buffer_, "launch: ", dropped_, " lines were not shown here; the log files have them\n");
    dropped_ = 0;
  }
  buffer_.append(text);
  buffer_.push_back('\n');
  Flush();
}

void Console::Flush() {
  size_t written = 0;
  while (written < buffer_.size() && error_ == 0) {
    // The file description is shared with others, so it stays blocking; after POLLOUT a pipe takes PIPE_BUF bytes.
    pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
    if (poll(&ready, 1, 0) <= 0) break;
    const ssize_t n = write(fd_, buffer_.data() + written, std::min<size_t>(buffer_.size() - written, PIPE_BUF));
    if (n > 0) {
      written += static_cast<size_t>(n);
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      error_ = errno;
    }
  }
  buffer_.erase(0, written);
}

void Console::Drain(absl::Duration timeout) {
  const absl::Time end = Clock::Real()->Now() + timeout;
  while (pending()) {
    const absl::Duration left = end - Clock::Real()->Now();
    if (left <= absl::ZeroDuration()) return;
    pollfd ready = {.fd = fd_, .events = POLLOUT, .revents = 0};
    poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    Flush();
  }
}

}  // namespace weir
