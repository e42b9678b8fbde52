// Server's end of streams of calls: of gRPC (proto/stream_service.proto), and of plain sockets (socket_link.h).
#ifndef WEIR_PSERVER_NETWORK_STREAM_SERVER_H_
#define WEIR_PSERVER_NETWORK_STREAM_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "grpcpp/impl/service_type.h"
#include "pserver/network/stream_session.h"

namespace weir {

// Streams of all clients of a server. Thread-safe.
class StreamServer {
 public:
  // Settings of plain sockets. Without them clients are not told that sockets come to Serve.
  struct PlainSockets {
    // Sockets that may be open without an answer other than an error: those of clients that have just connected, and of
    // strangers. One more closes the oldest of them.
    size_t most_unproven = 256;
  };
  static std::unique_ptr<StreamServer> Create(StreamHandler handler, std::optional<PlainSockets> plain_sockets = {});
  virtual ~StreamServer() = default;

  // To be registered with a gRPC server, which must be shut down before this object is destroyed.
  virtual grpc::Service* service() = 0;
  // Serves a connected socket, which does not block, and closes it. Not to be called from Shutdown on.
  virtual void Serve(int socket) = 0;
  // Closes all sockets that are open without an answer other than an error: descriptors are needed.
  virtual void CloseUnproven() = 0;
  // Answers later requests with Unavailable.
  virtual void Refuse() = 0;
  // Refuses, waits at most `grace` until no call is open, and ends all streams; gives clients half a second to read
  // why. Returns when no handler runs for a socket. Answers that come afterwards are dropped.
  virtual void Shutdown(absl::Duration grace) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_STREAM_SERVER_H_
