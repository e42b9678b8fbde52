// Accepts the connections to a server, and tells those of plain sockets (socket_link.h) from all others by their first
// bytes.
#ifndef WEIR_PSERVER_SOCKETS_SOCKET_LISTENER_H_
#define WEIR_PSERVER_SOCKETS_SOCKET_LISTENER_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/net/socket_address.h"

namespace weir {

// A connection that has sent so little that it is of neither kind is silent. So many may be; the oldest is closed for
// one more. Whoever is honest is silent for a moment.
inline constexpr size_t kMostSilent = 256;
// One that is silent for longer is closed when the next one comes.
inline constexpr absl::Duration kMostSilence = absl::Seconds(10);

// The owner of a connected socket that does not block.
using TakeSocket = std::function<void(int socket)>;

// All calls but CloseSilent come from one thread; that may come from any once Accept has returned.
class SocketListener {
 public:
  // Listens at "host:port", on all addresses that the host has; port 0: the system chooses one for all of them.
  // "0.0.0.0" and "[::]" are all addresses of this machine. FailedPrecondition: why it cannot.
  static absl::StatusOr<std::unique_ptr<SocketListener>> ListenAt(const std::string& endpoint);
  // Likewise at those of these addresses that this machine has, at least one. The first that it can listen on chooses
  // the port for all, if theirs is 0. `endpoint` is for the message.
  static absl::StatusOr<std::unique_ptr<SocketListener>> ListenAtAddresses(const std::vector<SocketAddress>& addresses,
                                                                           const std::string& endpoint);
  // Listens at a new path.
  static absl::StatusOr<std::unique_ptr<SocketListener>> ListenAtPath(const std::string& path);
  // Calls Stop.
  virtual ~SocketListener() = default;

  // Begins to accept. Calls one of the functions for each connection, on the thread of all listeners (SocketEvents):
  // `greets` if it begins as a SocketLink. To be called once.
  virtual void Accept(TakeSocket greets, TakeSocket others) = 0;
  // Frees the port or the path. Neither function of Accept runs any more when it returns.
  virtual void Stop() = 0;
  // Closes all silent connections: descriptors are needed.
  virtual void CloseSilent() = 0;
  // 0 if it listens at a path.
  virtual int port() const = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SOCKETS_SOCKET_LISTENER_H_
