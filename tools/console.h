// Lines for a terminal or a pipe that may be slow, gone or stopped, without ever waiting for it.
//
// What cannot be shown in time is dropped by whole lines, counted, and said so; log files have it all. One thread.
#ifndef WEIR_TOOLS_CONSOLE_H_
#define WEIR_TOOLS_CONSOLE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace weir {

class Console {
 public:
  // fd is borrowed; SIGPIPE must be ignored. At most `limit` bytes wait to be written.
  explicit Console(int fd, size_t limit = size_t{4} << 20) : fd_(fd), limit_(limit) {}

  // Adds a newline. Writes what can be written at once.
  void Line(std::string_view text);
  // Writes what can be written at once.
  void Flush();
  // Waits for the reader, at most this long.
  void Drain(absl::Duration timeout);

  int fd() const { return fd_; }
  // Poll for POLLOUT and call Flush while this is true.
  bool pending() const { return !buffer_.empty() && !broken_; }

 private:
  const int fd_;
  const size_t limit_;
  std::string buffer_;
  int64_t dropped_ = 0;
  // The reader is gone.
  bool broken_ = false;
};

}  // namespace weir

#endif  // WEIR_TOOLS_CONSOLE_H_
