// Output of lines to a terminal or a pipe that may be slow, gone or stopped, without ever waiting for it.
//
// Lines that cannot be written in time are dropped whole and counted, and the number is reported; log files have all
// lines. One thread.
#ifndef WEIR_TOOLS_LAUNCHING_CONSOLE_H_
#define WEIR_TOOLS_LAUNCHING_CONSOLE_H_

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

  // Adds a line with its newline. Writes what can be written at once.
  void Line(std::string_view text);
  // Writes what can be written at once.
  void Flush();
  // Waits for the reader, at most this long.
  void Drain(absl::Duration timeout);

  // Returns the errno of the write that has failed, after which nothing more is written; 0: none has. EPIPE: the reader
  // is gone.
  int error() const { return error_; }

  int fd() const { return fd_; }
  // Returns true while output is waiting: poll for POLLOUT and call Flush.
  bool pending() const { return !buffer_.empty() && error_ == 0; }

 private:
  const int fd_;
  const size_t limit_;
  std::string buffer_;
  int64_t dropped_ = 0;
  int error_ = 0;
};

}  // namespace weir

#endif  // WEIR_TOOLS_LAUNCHING_CONSOLE_H_
