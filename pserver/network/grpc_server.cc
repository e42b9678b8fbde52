#include "pserver/network/grpc_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/exhausted.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "proto/collective_service.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"
#include "pserver/cluster/cluster.h"
#include "pserver/network/credentials.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_threads.h"
#include "pserver/network/grpc_timers.h"
#include "pserver/network/reset_guard.h"
#include "pserver/network/shared_server.h"
#include "pserver/network/stream_server.h"
#include "pserver/sockets/peer_address.h"
#include "pserver/sockets/socket_listener.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

// Plain sockets beside those of the job's processes that may be open before a call through them has succeeded.
constexpr int64_t kMostStrangers = 256;
constexpr int kMaxGrpcMessage = static_cast<int>(kMaxMessageBytes) + (1 << 20);

// Calls that have not been answered. Shared with the callbacks that the core holds, since those may outlive the server.
class OpenCalls {
 public:
  class Reactor;

  // Ends call `id` if it is open; later answers are dropped.
  void Finish(uint64_t id, absl::StatusOr<Slices> reply);
  uint64_t Add(Reactor* reactor);
  // Ends all open calls with Unavailable.
  void FinishAll();

 private:
  Reactor* Take(uint64_t id);

  Mutex mu_;
  uint64_t next_ ABSL_GUARDED_BY(mu_) = 1;
  std::map<uint64_t, Reactor*> calls_ ABSL_GUARDED_BY(mu_);
};

// One call. Lives until OnDone, which gRPC calls after Finish.
class OpenCalls::Reactor : public grpc::ServerUnaryReactor {
 public:
  Reactor(std::shared_ptr<OpenCalls> calls, grpc::ByteBuffer* response)
      : calls_(std::move(calls)), response_(response) {
    id_ = calls_->Add(this);
  }
  uint64_t id() const { return id_; }

  void Answer(absl::StatusOr<Slices> reply) {
    if (reply.ok()) *response_ = ToByteBuffer(*reply);
    Finish(ToGrpcStatus(reply.status()));
  }

 private:
  // The caller has given up; Finish will drop the core's later answer.
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
using RawService = ParameterServer::WithRawMethod_Join<ParameterServer::WithRawMethod_Heartbeat<
    ParameterServer::WithRawCallbackMethod_Push<ParameterServer::WithRawCallbackMethod_Pull<
        ParameterServer::WithRawCallbackMethod_Exchange<ParameterServer::WithRawCallbackMethod_Control<
            ParameterServer::WithRawCallbackMethod_Norms<ParameterServer::Service>>>>>>>;

ProfiledCall ProfiledCallOf(const grpc::ServerContextBase& context) {
  if (!Profiler::Started()) return {};
  const auto told = context.client_metadata().find(kProfiledCallKey);
  if (told == context.client_metadata().end()) return {};
  return ParseProfiledCall(std::string_view(told->second.data(), told->second.size()));
}

// Handles the methods that compute, wait for a disk or move tensors. They run on gRPC's own threads, of which there are
// two on machines of up to five cores; a long handler blocks one of them.
class Service : public RawService {
 public:
  Service(ServerCore* core, std::shared_ptr<OpenCalls> calls) : core_(core), calls_(std::move(calls)) {}

  using Context = grpc::CallbackServerContext;
  using Bytes = grpc::ByteBuffer;
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
  grpc::ServerUnaryReactor* Run(Method method, Context* context, const grpc::ByteBuffer* request,
                                grpc::ByteBuffer* response) {
    const ProfiledCallScope scope(ProfiledCallOf(*context));
    auto* reactor = new OpenCalls::Reactor(calls_, response);
    // The reactor may be deleted as soon as the core answers, so the callback holds only its id.
    core_->Handle(method, FromByteBuffer(*request), [calls = calls_, id = reactor->id()](absl::StatusOr<Slices> reply) {
      calls->Finish(id, std::move(reply));
    });
    return reactor;
  }

  ServerCore* const core_;
  const std::shared_ptr<OpenCalls> calls_;
};

// Hands messages of collective operations to their receiver.
class CollectiveService : public v1::Collective::WithRawCallbackMethod_Deliver<v1::Collective::Service> {
 public:
  using Receiver = std::function<void(const Slices&, ReplyCallback)>;
  CollectiveService(Receiver receiver, std::shared_ptr<OpenCalls> calls)
      : receiver_(std::move(receiver)), calls_(std::move(calls)) {}

  grpc::ServerUnaryReactor* Deliver(grpc::CallbackServerContext*, const grpc::ByteBuffer* request,
                                    grpc::ByteBuffer* response) override {
    auto* reactor = new OpenCalls::Reactor(calls_, response);
    receiver_(FromByteBuffer(*request), [calls = calls_, id = reactor->id()](absl::StatusOr<Slices> reply) {
      calls->Finish(id, std::move(reply));
    });
    return reactor;
  }

 private:
  const Receiver receiver_;
  const std::shared_ptr<OpenCalls> calls_;
};

// Answers joins and heart-beats on a thread of its own, which also reads from sockets while handlers occupy all threads
// of gRPC. So long updates and slow disks let no trainer's lease expire.
class MembershipThread {
  // Times after a Join at which connections are looked for.
  static constexpr absl::Duration kFirstLook = absl::Milliseconds(100), kLongestLook = absl::Minutes(30);

 public:
  // `unix_socket` is sent to joining trainers and may be empty; `plain_sockets` likewise. The other arguments are
  // borrowed. The server must have been started.
  MembershipThread(Service* service, ServerCore* core, grpc::ServerCompletionQueue* queue, std::string unix_socket,
                   bool plain_sockets)
      : service_(service),
        core_(core),
        queue_(queue),
        unix_socket_(std::move(unix_socket)),
        plain_sockets_(plain_sockets) {
    // Requested here, since the thread may run only after the server and the queue have been shut down.
    Expect(Method::kJoin);
    Expect(Method::kHeartbeat);
    thread_ = StartThread("weir-members", [this] { Serve(); });
  }
  // The server must have been shut down.
  ~MembershipThread() {
    queue_->Shutdown();
    thread_.join();
  }
  MembershipThread(const MembershipThread&) = delete;
  MembershipThread& operator=(const MembershipThread&) = delete;

 private:
  struct Call {
    explicit Call(Method of) : method(of), writer(&context) {}
    const Method method;
    grpc::ServerContext context;
    grpc::ByteBuffer request;
    grpc::ServerAsyncResponseWriter<grpc::ByteBuffer> writer;
    bool answered = false;
  };

  void Expect(Method method) {
    auto* call = new Call(method);
    if (method == Method::kJoin) {
      service_->RequestJoin(&call->context, &call->request, &call->writer, queue_, queue_, call);
    } else {
      service_->RequestHeartbeat(&call->context, &call->request, &call->writer, queue_, queue_, call);
    }
  }

  void Serve() {
    void* tag = nullptr;
    bool ok = false;
    while (true) {
      const auto next = queue_->AsyncNext(&tag, &ok, GrpcDeadline(look_at_ - Clock::Real()->Now()));
      if (next == grpc::CompletionQueue::SHUTDOWN) return;
      if (Clock::Real()->Now() >= look_at_) LookForConnections();
      if (next == grpc::CompletionQueue::TIMEOUT) continue;
      std::unique_ptr<Call> call(static_cast<Call*>(tag));
      // The answer has been sent, or the server is shutting down.
      if (call->answered || !ok) continue;
      // Requested while this call is open, which keeps the server and its queue alive.
      Expect(call->method);
      Answer(call.release());
    }
  }

  // Gives new connections through the Unix-domain socket send room. A trainer connects some time after it has joined,
  // which may be soon, or after it has read its data: so the next look is as long after this one as this one is after
  // the last Join.
  void LookForConnections() {
    GiveSendRoom(unix_socket_);
    const absl::Time now = Clock::Real()->Now();
    look_at_ = now - joined_at_ < kLongestLook ? now + (now - joined_at_) : absl::InfiniteFuture();
  }

  // The call comes back through the queue when its answer has been sent.
  void Answer(Call* call) {
    const ProfiledCallScope scope(ProfiledCallOf(call->context));
    if (call->method == Method::kJoin) {
      if (!unix_socket_.empty()) call->context.AddInitialMetadata(kUnixSocketKey, unix_socket_);
      if (plain_sockets_) call->context.AddInitialMetadata(kPlainSocketsKey, "1");
    }
    // The core calls the callback inside Handle for these methods.
    const auto reply = std::make_shared<absl::StatusOr<Slices>>(absl::InternalError("the server has no answer"));
    core_->Handle(call->method, FromByteBuffer(call->request),
                  [reply](absl::StatusOr<Slices> given) { *reply = std::move(given); });
    if (call->method == Method::kJoin && reply->ok() && !unix_socket_.empty()) {
      joined_at_ = Clock::Real()->Now();
      look_at_ = joined_at_ + kFirstLook;
    }
    call->answered = true;
    if (reply->ok()) {
      call->writer.Finish(ToByteBuffer(**reply), grpc::Status::OK, call);
    } else {
      call->writer.FinishWithError(ToGrpcStatus(reply->status()), call);
    }
  }

  Service* const service_;
  ServerCore* const core_;
  grpc::ServerCompletionQueue* const queue_;
  const std::string unix_socket_;
  const bool plain_sockets_;
  // Used by thread_.
  absl::Time joined_at_, look_at_ = absl::InfiniteFuture();
  std::thread thread_;
};

class Server : public GrpcServer {
 public:
  explicit Server(const GrpcServerOptions& options)
      : core_(options.core),
        deliver_(options.deliver),
        expected_descriptors_(options.expected_descriptors),
        unix_sockets_(options.unix_sockets),
        plain_sockets_(options.plain_sockets),
        shared_memory_(options.network.shared_memory()),
        calls_(std::make_shared<OpenCalls>()) {}
  ~Server() override { Shutdown(absl::ZeroDuration()); }

  absl::Status Listen(const std::string& text) {
    ASSIGN_OR_RETURN(Endpoint endpoint, ParseEndpoint(text));
    KeepFreedMemory();
    ASSIGN_OR_RETURN(tcp_, SocketListener::ListenAt(text));
    const std::string unix_socket = unix_sockets_ ? UnixSocket() : "";
    Build(unix_socket);
    // The file system may not support sockets, so try TCP alone.
    if (server_ == nullptr && !unix_socket.empty()) Build("");
    if (server_ == nullptr) {
      return absl::InternalError(absl::StrCat("gRPC cannot serve at ", text));
    }
    Accept();
    guard_ = ResetGuard::Start(port(), expected_descriptors_, [this] {
      tcp_->CloseSilent();
      streams_->CloseUnproven();
    });
    endpoint.port = port();
    endpoint_ = endpoint.ToString();
    if (shared_memory_ && !unix_socket_.empty()) ShareMemory();
    return absl::OkStatus();
  }

  const std::string& endpoint() const override { return endpoint_; }
  int port() const override { return tcp_->port(); }
  const std::string& unix_socket() const override { return unix_socket_; }

  void Shutdown(absl::Duration grace) override {
    if (server_ == nullptr) return;
    // No connection comes any more.
    near_ = nullptr;
    tcp_->Stop();
    const absl::Time deadline = Clock::Real()->Now() + grace;
    // Calls through shared memory and streams end during the same grace.
    if (shared_ != nullptr) shared_->Refuse();
    // Takes no connections or calls any more, and cancels calls left after the grace; OnCancel ends a cancelled call,
    // so this returns soon after. A stream is a call that does not end by itself.
    std::thread shutdown = StartThread("weir-shutdown", [this, grace] { server_->Shutdown(GrpcDeadline(grace)); });
    streams_->Shutdown(grace);
    shutdown.join();
    if (shared_ != nullptr) shared_->Shutdown(std::max(deadline - Clock::Real()->Now(), absl::ZeroDuration()));
    shared_ = nullptr;
    calls_->FinishAll();
    server_->Wait();
    guard_ = nullptr;
    members_ = nullptr;
    server_ = nullptr;
  }

 private:
  void Build(const std::string& unix_socket) {
    grpc::ServerBuilder builder;
    builder.SetMaxReceiveMessageSize(kMaxGrpcMessage);
    builder.SetMaxSendMessageSize(kMaxGrpcMessage);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcMaxFrame);
    builder.AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, kGrpcReadChunk);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
    // The guard against resets counts calls through channelz.
    builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 1);
    using External = grpc::ServerBuilder::experimental_type::ExternalConnectionType;
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(External::FROM_FD, ServerCredentials());
    if (!unix_socket.empty()) builder.AddListeningPort(absl::StrCat("unix:", unix_socket), ServerCredentials());
    // A Service from a failed start cannot be registered with another server.
    if (core_ != nullptr) {
      service_ = std::make_unique<Service>(core_, calls_);
      builder.RegisterService(service_.get());
      members_queue_ = builder.AddCompletionQueue();
    }
    if (deliver_) {
      collective_ = std::make_unique<CollectiveService>(deliver_, calls_);
      builder.RegisterService(collective_.get());
    }
    std::optional<StreamServer::PlainSockets> plain;
    if (plain_sockets_) plain = {.most_unproven = static_cast<size_t>(std::max(expected_descriptors_, kMostStrangers))};
    streams_ = StreamServer::Create([this](Method method, const Slices& request,
                                           ReplyCallback reply) { Handle(method, request, std::move(reply)); },
                                    plain);
    builder.RegisterService(streams_->service());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return;
    unix_socket_ = unix_socket;
    if (core_ != nullptr) {
      members_ =
          std::make_unique<MembershipThread>(service_.get(), core_, members_queue_.get(), unix_socket, plain_sockets_);
    }
    // A second protection: the directory already admits this user only.
    if (!unix_socket.empty()) ::chmod(unix_socket.c_str(), 0600);
  }

  // Hands connections to those who serve them.
  void Accept() {
    const auto others = [this](int socket) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = socket;
      acceptor_->HandleNewConnection(&connection);
    };
    const auto greets = [this](int socket) { streams_->Serve(socket); };
    tcp_->Accept(plain_sockets_ ? TakeSocket(greets) : others, others);
    if (!plain_sockets_ || unix_socket_.empty()) return;
    auto near = SocketListener::ListenAtPath(TensorPathOf(unix_socket_));
    if (near.ok()) {
      near_ = *std::move(near);
      near_->Accept(greets, [](int socket) { ::close(socket); });
    } else {
      LOG(INFO) << "tensors from this machine come over gRPC: " << near.status().message();
    }
  }

  // Of a call that came another way than as one of gRPC.
  void Handle(Method method, const Slices& request, ReplyCallback reply) {
    if (method == Method::kDeliver && deliver_) return deliver_(request, std::move(reply));
    if (method != Method::kDeliver && core_ != nullptr) return core_->Handle(method, request, std::move(reply));
    reply(absl::UnimplementedError(absl::StrCat(std::string(MethodName(method)), " is not served here")));
  }

  void ShareMemory() {
    auto shared = SharedServer::Start(
        SharedPathOf(unix_socket_), [this](Method method, int /*server*/, const Slices& request, ReplyCallback reply) {
          Handle(method, request, std::move(reply));
        });
    if (shared.ok()) {
      shared_ = *std::move(shared);
    } else {
      LOG(INFO) << "no shared memory for clients on this machine: " << shared.status().message();
    }
  }

  // Returns "" if there is no socket; all clients then use TCP.
  static std::string UnixSocket() {
    const absl::StatusOr<std::string> path = NewUnixSocketPath();
    if (path.ok()) return *path;
    LOG(INFO) << "no Unix-domain socket for clients on this machine: " << path.status().message();
    return "";
  }

  ServerCore* const core_;
  const CollectiveService::Receiver deliver_;
  const int64_t expected_descriptors_;
  const bool unix_sockets_, plain_sockets_, shared_memory_;
  const std::shared_ptr<OpenCalls> calls_;
  // Connections over TCP; of plain sockets on this machine.
  std::unique_ptr<SocketListener> tcp_, near_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<CollectiveService> collective_;
  std::unique_ptr<StreamServer> streams_;
  std::unique_ptr<grpc::ServerCompletionQueue> members_queue_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<MembershipThread> members_;
  std::unique_ptr<ResetGuard> guard_;
  std::unique_ptr<SharedServer> shared_;
  std::string endpoint_, unix_socket_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options) {
  CHECK(options.core != nullptr || options.deliver);
  auto server = std::make_unique<Server>(options);
  CheckGrpcThreads();
  RETURN_IF_ERROR(server->Listen(options.endpoint));
  return server;
}

}  // namespace weir
