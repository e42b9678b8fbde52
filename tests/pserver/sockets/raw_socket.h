// A socket of a test's own, to send bytes to a connection of plain sockets and to read what that sends.
#ifndef WEIR_TESTS_PSERVER_NETWORK_RAW_SOCKET_H_
#define WEIR_TESTS_PSERVER_NETWORK_RAW_SOCKET_H_

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace weir {

// How long a test waits for what must come.
inline constexpr absl::Duration kPatience = absl::Seconds(30);

// Blocks, but not for ever. Owns the descriptor.
class RawSocket {
 public:
  explicit RawSocket(int fd) : fd_(fd) {
    ::fcntl(fd, F_SETFL, ::fcntl(fd, F_GETFL) & ~O_NONBLOCK);
    const timeval patience = {.tv_sec = absl::ToInt64Seconds(kPatience)};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&&) = delete;
  ~RawSocket() { Close(); }

  void Send(std::string_view bytes) const {
    ASSERT_EQ(::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
  }
  // Returns so many bytes, or fewer at the end.
  std::string Receive(size_t bytes) const {
    std::string received(bytes, '\0');
    size_t have = 0;
    while (have < bytes) {
      const ssize_t read = ::recv(fd_, received.data() + have, bytes - have, 0);
      EXPECT_GE(read, 0) << std::strerror(errno);
      if (read <= 0) break;
      have += static_cast<size_t>(read);
    }
    received.resize(have);
    return received;
  }
  // Reads until the other end has closed the connection. True: it has.
  bool Ends() const {
    std::string rest(4096, '\0');
    ssize_t read = 0;
    do {
      read = ::recv(fd_, rest.data(), rest.size(), 0);
    } while (read > 0);
    return read == 0 || errno == ECONNRESET;
  }
  void EndOutput() const { ::shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace weir

#endif  // WEIR_TESTS_PSERVER_NETWORK_RAW_SOCKET_H_
