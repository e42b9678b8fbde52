// Opens streams of calls: of gRPC (proto/stream_service.proto), and of plain sockets (pserver/sockets/socket_link.h).
#ifndef WEIR_PSERVER_NETWORK_OPEN_STREAM_H_
#define WEIR_PSERVER_NETWORK_OPEN_STREAM_H_

#include <functional>
#include <memory>
#include <string>

#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/byte_buffer.h"
#include "pserver/network/stream_client.h"
#include "pserver/sockets/call_deadlines.h"

namespace weir {

using StreamStub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

// Opens a stream; a server that is not there is seen when calls end. `deadlines` is borrowed and must outlive the
// result. `gone` runs when the stream has ended and no `done` of its calls runs any more. `plain` is called at most
// once, before `gone`, if the server takes plain sockets, with its address as gRPC writes it ("ipv4:10.0.0.1:6170").
std::shared_ptr<StreamClient> OpenGrpcStream(std::shared_ptr<StreamStub> stub, CallDeadlines* deadlines,
                                             std::function<void()> gone,
                                             std::function<void(const std::string& peer)> plain = nullptr);
// Opens a stream through a plain socket, which is connected or about to be, and does not block.
std::shared_ptr<StreamClient> OpenSocketStream(int socket, CallDeadlines* deadlines, std::function<void()> gone);

}  // namespace weir

#endif  // WEIR_PSERVER_NETWORK_OPEN_STREAM_H_
