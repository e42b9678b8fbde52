// Client's side of the network: one request and one reply over gRPC.
#ifndef WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_
#define WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct GrpcTransportOptions {
  // host:port of each server, by index.
  std::vector<std::string> endpoints;
  // If true, Push, Pull, Norms and Deliver use a server's Unix-domain socket, provided its answer to a Join named one
  // and it is reachable from here (pserver/sockets/unix_socket.h). When the socket is no longer reachable they use TCP
  // again; calls that fail in between return Unavailable as usual.
  bool unix_sockets = true;
  // If true, those calls use plain sockets (pserver/sockets/socket_link.h) where a server has said that it takes them,
  // and gRPC where one does not answer at its plain socket.
  bool plain_sockets = true;
  // With `shared_memory` those calls go through memory shared with the server where both can
  // (pserver/network/shared_channel.h); through its Unix-domain socket when the memory has no room for them, or the
  // server has closed it. Needs unix_sockets.
  v1::Cluster network = {};
  // Unix-domain sockets that are known without a Join, by server; "": none. May be empty.
  std::vector<std::string> sockets = {};
  // Server i runs inside trainer i; messages name both.
  bool servers_in_trainers = false;
};

// Transport whose calls can be given up. Thread-safe.
class ClosableTransport : public Transport {
 public:
  // Ends all calls under way, whose `done` runs soon, and shuts the connections down, so that nothing holds the memory
  // of requests any more. Where an endpoint has a name instead of an address, and there is a process at it that does
  // not read, a call may last until its connection is found dead. Later calls end at once with Unavailable.
  virtual void Close() = 0;
};

// Creates a transport. Connects on the first call to a server. Each server has one connection for Push, Pull, Norms and
// Deliver, which go through one stream (stream_client.h), and one for all other calls, so that a heart-beat never waits
// behind tensors. Does not retry: the caller repeats (Unavailable comes within about a second when nothing listens).
// Slices with an owner are sent without a copy. `done` runs on a thread of gRPC, of SocketEvents, or of the shared
// memory, and should not block for long.
//
// The destructor cancels calls in flight and returns when their `done` has run (Unavailable). InvalidArgument when
// endpoints is empty.
absl::StatusOr<std::unique_ptr<ClosableTransport>> MakeGrpcTransport(GrpcTransportOptions options);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_GRPC_TRANSPORT_H_
