// Plain TCP sockets that never block: what a rendezvous needs of them.
#ifndef WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_
#define WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/net/resolve.h"
#include "pserver/cluster/init_method.h"
#include "pserver/rendezvous/cancellation.h"

namespace weir {

// Descriptor that is closed with its owner; -1: none.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Listens at the first free port of the method: on every interface, or, at a method that is written as a loopback
// address, there alone. `port` gets the port.
//
// FailedPrecondition: all ports are taken, by whatever; the host is not this machine. Unavailable as Resolve.
absl::StatusOr<Socket> ListenAt(const InitMethod& method, int* port);

// Connects within `limit`. Unavailable with the system's reason; Cancelled.
absl::StatusOr<Socket> ConnectTo(const SocketAddress& to, absl::Duration limit, const Cancellation& cancellation);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_
