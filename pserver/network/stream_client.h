// Client's end of a stream of calls: of gRPC (proto/stream_service.proto), or of plain sockets.
#ifndef WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_
#define WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/wire/slices.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "pserver/network/call_deadlines.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Thread-safe.
class StreamClient {
 public:
  using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;
  // The answer; `from_server`: the server has said so, or ended the stream, and not the network.
  using Done = std::function<void(absl::StatusOr<Slices> reply, bool from_server)>;

  // Opens a stream; a server that is not there is seen when calls end. `deadlines` is borrowed and must outlive the
  // result. `gone` runs when the stream has ended and no `done` of its calls runs any more. `plain` is called at most
  // once, before any `done`, if the server takes plain sockets, with its address as gRPC writes it
  // ("ipv4:10.0.0.1:6170").
  static std::shared_ptr<StreamClient> Open(std::shared_ptr<Stub> stub, CallDeadlines* deadlines,
                                            std::function<void()> gone,
                                            std::function<void(const std::string& peer)> plain = nullptr);
  // The same through plain sockets (socket_link.h): `socket` is connected or about to be, and does not block.
  static std::shared_ptr<StreamClient> OpenSocket(int socket, CallDeadlines* deadlines, std::function<void()> gone);
  virtual ~StreamClient() = default;

  // Starts a call. False: the stream has ended or been closed, and `done` is not called. Else `done` runs once: with
  // Unavailable when the stream ends (FailedPrecondition: since the other process has other records, or no streams),
  // with DeadlineExceeded after `timeout`. Slices with an owner are sent without a copy.
  virtual bool Call(Method method, const Slices& request, absl::Duration timeout, Done done) = 0;
  // True before any call is ended because the stream has.
  virtual bool ended() const = 0;
  // True once the other process has said that it speaks this protocol.
  virtual bool greeted() const = 0;
  // Gives the stream up: all calls end with Unavailable soon.
  virtual void Close() = 0;
  // Closes the stream when it has no calls any more.
  virtual void CloseWhenIdle() = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_STREAM_CLIENT_H_
