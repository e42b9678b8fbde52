// A ServerCore on the network: gRPC in, Handle, gRPC out.
#ifndef WEIR_PSERVER_NETWORK_GRPC_SERVER_H_
#define WEIR_PSERVER_NETWORK_GRPC_SERVER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pserver/server/server_core.h"

namespace weir {

struct GrpcServerOptions {
  // host:port; port 0: the system chooses.
  std::string endpoint;
  // Borrowed; outlives the server. Handle is called on gRPC's threads, for joins and heart-beats on a thread of the
  // server's own.
  ServerCore* core = nullptr;
  // Listen on a Unix-domain socket too (pserver/network/unix_socket.h).
  bool unix_sockets = true;
};

class GrpcServer {
 public:
  // Listens when it returns. FailedPrecondition "cannot listen on 127.0.0.1:6170: Address already in use".
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(GrpcServerOptions options);
  // Shutdown(0) if nobody has.
  virtual ~GrpcServer() = default;

  // With the port that was really taken: "127.0.0.1:41234".
  virtual const std::string& endpoint() const = 0;
  virtual int port() const = 0;

  // Takes no new calls, gives those in flight `grace` to end, ends the rest with Unavailable. A reply that the core
  // gives to a call after that is dropped, so it may come as late as it likes.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_SERVER_H_
