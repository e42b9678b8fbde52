// Network front of a ServerCore: receives gRPC calls, passes them to Handle, and sends the replies.
#ifndef WEIR_PSERVER_NETWORK_GRPC_SERVER_H_
#define WEIR_PSERVER_NETWORK_GRPC_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "proto/job.pb.h"
#include "pserver/server/server_core.h"

namespace weir {

struct GrpcServerOptions {
  // host:port. With port 0 the system chooses the port.
  std::string endpoint;
  // Borrowed; must outlive the server. Handle is called on threads of gRPC and of SocketEvents; for joins and
  // heart-beats on a thread of this server. Null: there is no service ParameterServer.
  ServerCore* core = nullptr;
  // Receives messages of collective operations (pserver/collective/wire_mesh.h), on threads of gRPC and of
  // SocketEvents. Not set: there is no service Collective.
  std::function<void(const Slices& message, ReplyCallback reply)> deliver = {};
  // If true, listens on a Unix-domain socket as well (pserver/sockets/unix_socket.h).
  bool unix_sockets = true;
  // If true, tensors may come through plain sockets (pserver/sockets/socket_link.h), at the same endpoint and at a
  // second Unix-domain socket.
  bool plain_sockets = true;
  // Descriptors that the connections of the job's own processes need. Others are closed, and new ones wait, before they
  // take the last ones of this process (pserver/network/reset_guard.h).
  int64_t expected_descriptors = 0;
  // With `shared_memory` clients on this machine may share memory with this process (pserver/network/shared_server.h),
  // in which `core` and `deliver` are called on threads of that. Needs unix_sockets.
  v1::Cluster network = {};
};

class GrpcServer {
 public:
  // Starts a server that listens when Start returns. FailedPrecondition "cannot listen on 127.0.0.1:6170: Address
  // already in use".
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  // Calls Shutdown(0) unless Shutdown has been called.
  virtual ~GrpcServer() = default;

  // Returns the address with the port in use: "127.0.0.1:41234".
  virtual const std::string& endpoint() const = 0;
  virtual int port() const = 0;
  // Returns the path of the Unix-domain socket; "" if there is none.
  virtual const std::string& unix_socket() const = 0;

  // Stops accepting calls, gives those in flight `grace` to end, and ends the rest with Unavailable. A reply that the
  // core gives afterwards is dropped, at any later time. A second call does nothing. Requires: not called by two
  // threads at once.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_SERVER_H_
