#include "pserver/grpc_server.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/parameter_server.grpc.pb.h"
#include "pserver/cluster.h"
#include "pserver/credentials.h"
#include "pserver/grpc_bytes.h"
#include "pserver/unix_socket.h"

namespace weir {
namespace {

constexpr int kMaxGrpcMessage = static_cast<int>(kMaxMessageBytes) + (1 << 20);

// Calls that have been answered neither by the core nor by us. Shared with the callbacks that the core holds: those may run
// when the server is gone.
class OpenCalls {
 public:
  class Reactor;

  // Ends call `id` the first time; later answers are dropped.
  void Finish(uint64_t id, absl::StatusOr<Slices> reply);
  uint64_t Add(Reactor* reactor);
  // Ends all with Unavailable.
  void FinishAll();

 private:
  Reactor* Take(uint64_t id);

  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Reactor*> calls_ ABSL_GUARDED_BY(mu_);
};

// One call. Lives until gRPC says OnDone, which comes after Finish.
class OpenCalls::Reactor : public grpc::ServerUnaryReactor {
 public:
  Reactor(std::shared_ptr<OpenCalls> calls, grpc::ByteBuffer* response) : calls_(std::move(calls)), response_(response) {
    id_ = calls_->Add(this);
  }
  uint64_t id() const { return id_; }

  void Answer(absl::StatusOr<Slices> reply) {
    if (reply.ok()) *response_ = ToByteBuffer(*reply);
    Finish(ToGrpcStatus(reply.status()));
  }

 private:
  // The caller has given up; the core's answer will find nobody.
  void OnCancel() override { calls_->Finish(id_, absl::CancelledError("the caller has gone")); }
  void OnDone() override { delete this; }

  const std::shared_ptr<OpenCalls> calls_;
  grpc::ByteBuffer* const response_;
  uint64_t id_ = 0;
};

uint64_t OpenCalls::Add(Reactor* reactor) {
  MutexLock lock(&mu_);
  calls_[next_] = reactor;
  return next_++;
}

OpenCalls::Reactor* OpenCalls::Take(uint64_t id) {
  MutexLock lock(&mu_);
  const auto it = calls_.find(id);
  if (it == calls_.end()) return nullptr;
  Reactor* reactor = it->second;
  calls_.erase(it);
  return reactor;
}

void OpenCalls::Finish(uint64_t id, absl::StatusOr<Slices> reply) {
  if (Reactor* reactor = Take(id)) reactor->Answer(std::move(reply));
}

void OpenCalls::FinishAll() {
  std::map<uint64_t, Reactor*> calls;
  {
    MutexLock lock(&mu_);
    calls.swap(calls_);
  }
  for (const auto& [id, reactor] : calls) reactor->Answer(absl::UnavailableError("the server is shutting down"));
}

using v1::ParameterServer;
using RawService = ParameterServer::WithRawCallbackMethod_Join<ParameterServer::WithRawCallbackMethod_Heartbeat<
    ParameterServer::WithRawCallbackMethod_Push<ParameterServer::WithRawCallbackMethod_Pull<
        ParameterServer::WithRawCallbackMethod_Exchange<ParameterServer::WithRawCallbackMethod_Control<
            ParameterServer::WithRawCallbackMethod_Norms<ParameterServer::Service>>>>>>>;

class Service : public RawService {
 public:
  Service(ServerCore* core, std::shared_ptr<OpenCalls> calls) : core_(core), calls_(std::move(calls)) {}
  // Before the first call.
  void set_unix_socket(std::string path) { unix_socket_ = std::move(path); }

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
  grpc::ServerUnaryReactor* Join(Context* context, const Bytes* in, Bytes* out) override {
    if (!unix_socket_.empty()) context->AddInitialMetadata(kUnixSocketKey, unix_socket_);
    return Run(Method::kJoin, context, in, out);
  }
  grpc::ServerUnaryReactor* Heartbeat(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kHeartbeat, context, in, out);
  }
  grpc::ServerUnaryReactor* Push(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kPush, context, in, out);
  }
  grpc::ServerUnaryReactor* Pull(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kPull, context, in, out);
  }
  grpc::ServerUnaryReactor* Exchange(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kExchange, context, in, out);
  }
  grpc::ServerUnaryReactor* Control(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kControl, context, in, out);
  }
  grpc::ServerUnaryReactor* Norms(Context* context, const Bytes* in, Bytes* out) override {
    return Run(Method::kNorms, context, in, out);
  }

 private:
  static ProfiledCall ProfiledCallOf(const Context& context) {
    if (!Profiler::Started()) return {};
    const auto told = context.client_metadata().find(kProfiledCallKey);
    if (told == context.client_metadata().end()) return {};
    return ParseProfiledCall(std::string_view(told->second.data(), told->second.size()));
  }

  grpc::ServerUnaryReactor* Run(Method method, Context* context, const grpc::ByteBuffer* request, grpc::ByteBuffer* response) {
    const ProfiledCallScope scope(ProfiledCallOf(*context));
    auto* reactor = new OpenCalls::Reactor(calls_, response);
    // The reactor may be gone as soon as the core answers: only its id goes along.
    core_->Handle(method, FromByteBuffer(*request), [calls = calls_, id = reactor->id()](absl::StatusOr<Slices> reply) {
      calls->Finish(id, std::move(reply));
    });
    return reactor;
  }

  ServerCore* const core_;
  const std::shared_ptr<OpenCalls> calls_;
  std::string unix_socket_;  // empty: none
};

// gRPC only says that it failed; the system says why.
std::string WhyNotListening(const Endpoint& endpoint) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  std::string host = endpoint.host;
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  const int error = ::getaddrinfo(host.c_str(), std::to_string(endpoint.port).c_str(), &hints, &found);
  if (error != 0) return ::gai_strerror(error);
  std::string why = "unknown error";
  const int fd = ::socket(found->ai_family, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, found->ai_addr, found->ai_addrlen) != 0 || ::listen(fd, 1) != 0) why = std::strerror(errno);
  ::close(fd);
  ::freeaddrinfo(found);
  return why;
}

class Server : public GrpcServer {
 public:
  Server(ServerCore* core, bool unix_sockets) : unix_sockets_(unix_sockets), calls_(std::make_shared<OpenCalls>()), service_(core, calls_) {}
  ~Server() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& text) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    KeepFreedMemory();
    const std::string unix_socket = unix_sockets_ ? UnixSocket() : "";
    Build(text, unix_socket);
    // A file system may not hold sockets.
    if (server_ == nullptr && !unix_socket.empty()) Build(text, "");
    if (server_ == nullptr || port_ == 0) {
      server_ = nullptr;
      return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", text, ": ", WhyNotListening(endpoint)));
    }
    endpoint.port = port_;
    endpoint_ = endpoint.ToString();
    return absl::OkStatus();
  }

  const std::string& endpoint() const override { return endpoint_; }
  int port() const override { return port_; }

  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr) return;
    // Cancels what is left after the grace; a cancelled call ends itself (OnCancel), so this returns soon after.
    server_->Shutdown(absl::ToChronoTime(absl::Now() + grace));
    calls_->FinishAll();
    server_->Wait();
    server_ = nullptr;
  }

 private:
  void Build(const std::string& tcp, const std::string& unix_socket) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxGrpcMessage);
    builder.SetMaxSendMessageSize(kMaxGrpcMessage);
    // Otherwise a second server takes the same port and both say that they are ready.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcMaxFrame);
    builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kGrpcReadChunk);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    builder.AddListeningPort(tcp, ServerCredentials(), &port_);
    if (!unix_socket.empty()) builder.AddListeningPort(absl::StrCat("unix:", unix_socket), ServerCredentials());
    service_.set_unix_socket(unix_socket);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    // The directory is this user's alone already.
    if (server_ != nullptr && !unix_socket.empty()) ::chmod(unix_socket.c_str(), 0600);
  }

  // Without one everybody comes over TCP.
  static std::string UnixSocket() {
    const absl::StatusOr<std::string> path = NewUnixSocketPath();
    if (path.ok()) return *path;
    LOG(INFO) << "no Unix-domain socket for clients on this machine: " << path.status().message();
    return "";
  }

  const bool unix_sockets_;
  const std::shared_ptr<OpenCalls> calls_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  std::string endpoint_;
  int port_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(GrpcServerOptions options) {
  CHECK(options.core != nullptr);
  auto server = std::make_unique<Server>(options.core, options.unix_sockets);
  RETURN_IF_ERROR(server->Listen(options.endpoint));
  return server;
}

}  // namespace weir
