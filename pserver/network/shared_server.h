// Server's ends of shared memory channels from clients on this machine (pserver/network/shared_channel.h).
#ifndef WEIR_PSERVER_NETWORK_SHARED_SERVER_H_
#define WEIR_PSERVER_NETWORK_SHARED_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/wire/slices.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Returns the path at which a server with the Unix-domain socket `unix_socket` accepts channels.
std::string SharedPathOf(const std::string& unix_socket);

// Accepts clients of the same user and answers their calls.
class SharedServer {
 public:
  // Called on threads of the server, two for each client; for Push, Pull and Deliver. `server`: SharedClient::Call.
  using Handler = std::function<void(Method method, int server, const Slices& request, ReplyCallback reply)>;

  // Listens at `path` when Start returns. FailedPrecondition: it cannot. The handler must run until the server is
  // destroyed; replies may come later and are dropped then. Requires: Shutdown and the destructor are called by one
  // thread, which runs no handler.
  static absl::StatusOr<std::unique_ptr<SharedServer>> Start(const std::string& path, Handler handler);
  // Calls Shutdown(0).
  virtual ~SharedServer() = default;

  // Accepts no more clients, and answers new calls with Unavailable.
  virtual void Refuse() = 0;
  // Likewise, gives calls under way `grace` to end, and closes the channels: clients get Unavailable. Returns when no
  // handler runs any more.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_SHARED_SERVER_H_
