// The client's side of the network: one request, one reply, over gRPC.
#ifndef WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_
#define WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct GrpcTransportOptions {
  // host:port of the servers by index.
  std::vector<std::string> endpoints;
  // Push and Pull go through a server's Unix-domain socket when it has told of one in its answer to a Join and it is
  // reached from here (pserver/network/unix_socket.h). When it no longer is, they go over TCP again; what fails in
  // between is Unavailable as ever.
  bool unix_sockets = true;
};

// Connects nothing yet: the first call to a server does. Each server has a connection for Push and Pull and one for all
// else, so that a heart-beat never waits behind tensors. No retries: callers repeat (Unavailable comes within about a
// second when nobody listens). Slices with an owner are sent without a copy. `done` runs on a thread of gRPC and should
// not block for long.
//
// The destructor cancels calls in flight and returns when their `done` has run (Unavailable). InvalidArgument when
// endpoints is empty.
absl::StatusOr<std::unique_ptr<Transport>> MakeGrpcTransport(GrpcTransportOptions options);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_
