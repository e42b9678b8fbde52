// Plain TCP sockets that never block: what a rendezvous needs of them.
#ifndef WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_
#define WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_

#include <sys/socket.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
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

struct SocketAddress {
  sockaddr_storage address = {};
  socklen_t bytes = 0;

  // Returns "10.0.0.1:6170".
  std::string ToString() const;
};

// Returns the addresses of the host, with the port. Unavailable: the name is not known, now (`again` is then true) or
// at all.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const Endpoint& endpoint, bool* again);

// Listens at the first free port of the method: on every interface, or, at a method that is written as a loopback
// address, there alone. `port` gets the port.
//
// FailedPrecondition: all ports are taken, by whatever; the host is not this machine. Unavailable as Resolve.
absl::StatusOr<Socket> ListenAt(const InitMethod& method, int* port);

// Connects within `limit`. Unavailable with the system's reason; Cancelled.
absl::StatusOr<Socket> ConnectTo(const SocketAddress& to, absl::Duration limit, const Cancellation& cancellation);

}  // namespace weir

#endif  // WEIR_PSERVER_RENDEZVOUS_TCP_SOCKETS_H_
