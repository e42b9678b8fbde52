#include <string>
#include <utility>
#include <vector>

#include "framework/base/status_macros.h"
#include "pserver/inside/in_process.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/protocol/transport.h"
#include "transpiler/loopback.h"

namespace weir {
namespace {

class Loopback : public Transport {
 public:
  absl::Status Listen(GrpcServerOptions options) {
    options.endpoint = "127.0.0.1:0";
    ASSIGN_OR_RETURN(listeners_.emplace_back(), GrpcServer::Start(options));
    return absl::OkStatus();
  }
  // unix_sockets: also before a Join has named the sockets.
  absl::Status Connect(bool unix_sockets) {
    GrpcTransportOptions options = {.unix_sockets = unix_sockets};
    for (const std::unique_ptr<GrpcServer>& listener : listeners_) {
      options.endpoints.push_back(listener->endpoint());
      options.sockets.push_back(unix_sockets ? listener->unix_socket() : "");
    }
    ASSIGN_OR_RETURN(transport_, MakeGrpcTransport(std::move(options)));
    return absl::OkStatus();
  }

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    transport_->Call(server, method, std::move(request), timeout, std::move(done));
  }
  std::string Describe(int server) const override { return transport_->Describe(server); }
  int servers() const override { return transport_->servers(); }

 private:
  std::vector<std::unique_ptr<GrpcServer>> listeners_;
  std::unique_ptr<ClosableTransport> transport_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> LoopbackTo(InProcessServers* servers) {
  auto loopback = std::make_unique<Loopback>();
  for (int s = 0; s < servers->servers(); ++s) RETURN_IF_ERROR(loopback->Listen({.core = &servers->server(s)}));
  RETURN_IF_ERROR(loopback->Connect(/*unix_sockets=*/true));
  return loopback;
}

absl::StatusOr<std::unique_ptr<Transport>> LoopbackEcho(bool unix_socket) {
  auto loopback = std::make_unique<Loopback>();
  RETURN_IF_ERROR(loopback->Listen(
      {.deliver = [](const Slices&, ReplyCallback reply) { reply(Slices()); }, .unix_sockets = unix_socket}));
  RETURN_IF_ERROR(loopback->Connect(unix_socket));
  return loopback;
}

}  // namespace weir
