#include "pserver/network/grpc_transport.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/channel_arguments.h"
#include "pserver/network/credentials.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_threads.h"
#include "pserver/network/grpc_timers.h"
#include "pserver/network/peer_address.h"
#include "pserver/network/unix_socket.h"

namespace weir {
namespace {

using Stub = grpc::TemplatedGenericStub<grpc::ByteBuffer, grpc::ByteBuffer>;

// A frame has at most kMaxMessageBytes; other messages have one field of at most that size.
constexpr int kMaxGrpcMessage = static_cast<int>(kMaxMessageBytes) + (1 << 20);

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments args;
  args.SetMaxReceiveMessageSize(kMaxGrpcMessage);
  args.SetMaxSendMessageSize(kMaxGrpcMessage);
  // An http_proxy in the environment is meant for the web, not for the cluster.
  args.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // Without this all channels to one address share a connection.
  args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  args.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  args.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  args.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kGrpcMaxFrame);
  args.SetInt(GRPC_ARG_TCP_READ_CHUNK_SIZE, kGrpcReadChunk);
  // Detects a machine that has vanished without closing the connection.
  args.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  args.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  args.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return args;
}

// Longer than gRPC's pause between attempts to connect.
constexpr absl::Duration kRenewAfter = absl::Seconds(2);

bool IsBulk(Method method) { return method == Method::kPush || method == Method::kPull || method == Method::kDeliver; }

class GrpcTransport : public ClosableTransport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options)
      : endpoints_(std::move(options.endpoints)),
        unix_sockets_(options.unix_sockets),
        servers_in_trainers_(options.servers_in_trainers) {
    KeepFreedMemory();
    for (const std::string& endpoint : endpoints_) {
      servers_.push_back(std::make_unique<Server>());
      for (Connection* tcp : {&servers_.back()->bulk, &servers_.back()->rest})
        *tcp = {MakeStub(endpoint), Clock::Real()->Now()};
    }
    for (size_t s = 0; s < options.sockets.size(); ++s) ComeNear(static_cast<int>(s), options.sockets[s]);
    WallClockHasGoneBack();
  }

  ~GrpcTransport() override {
    MutexLock lock(&mu_);
    closing_ = true;
    for (Pending* call : calls_) call->context.TryCancel();
    while (!calls_.empty()) none_left_.Wait(&mu_);
  }

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    CHECK(server >= 0 && server < servers()) << "no server " << server;
    auto* call = new Pending;
    call->request = ToByteBuffer(request);
    call->done = std::move(done);
    call->context.set_wait_for_ready(false);
    call->method = method;
    call->context.set_deadline(GrpcDeadline(timeout));
    if (const ProfiledCall profiled = ProfiledCallScope::current(); profiled.id != 0) {
      call->context.AddMetadata(kProfiledCallKey, ProfiledCallText(profiled));
    }
    if (!Begin(call, server)) {
      call->done(absl::UnavailableError(absl::StrCat(Describe(server), ": the connections are closed")));
      delete call;
      return;
    }
    WallClockHasGoneBack();
    call->stub->UnaryCall(&call->context, MethodPath(method), {}, &call->request, &call->reply,
                          [this, call, server](const grpc::Status& status) { Finish(call, server, status); });
  }

  void Close() override {
    std::set<std::string> addresses(endpoints_.begin(), endpoints_.end());
    {
      MutexLock lock(&mu_);
      closing_ = true;
      for (Pending* call : calls_) call->context.TryCancel();
      for (const std::unique_ptr<Server>& server : servers_) addresses.insert(server->path);
    }
    // gRPC keeps a call that was given up until the current write of its connection has ended, which it does not while
    // the process at the other end is stopped.
    ShutDownConnectionsTo(addresses);
  }

  std::string Describe(int server) const override {
    return absl::StrCat("server ", server, servers_in_trainers_ ? absl::StrCat(" in trainer ", server) : "", " at ",
                        endpoints_[static_cast<size_t>(server)]);
  }
  int servers() const override { return static_cast<int>(endpoints_.size()); }

 private:
  struct Pending {
    grpc::ClientContext context;
    grpc::ByteBuffer request, reply;
    ReplyCallback done;
    Method method = Method::kJoin;
    bool over_unix = false;
    std::shared_ptr<Stub> stub;
  };
  struct Connection {
    std::shared_ptr<Stub> stub;
    absl::Time made;
  };
  struct Server {
    // TCP connections for tensors and for all other calls. Guarded by mu_.
    Connection bulk, rest;
    // Stub of the server's Unix-domain socket; null if it has none or has stopped answering there. Guarded by mu_.
    std::shared_ptr<Stub> near;
    std::string path;
    bool has_room = false;  // its connection has got send room
  };

  static std::shared_ptr<Stub> MakeStub(const std::string& address) {
    return std::make_shared<Stub>(grpc::CreateCustomChannel(address, ChannelCredentials(), Arguments()));
  }

  // Gives the call its connection. Returns false if there is none any more.
  bool Begin(Pending* call, int server) {
    MutexLock lock(&mu_);
    if (closing_) return false;
    Server& of = *servers_[static_cast<size_t>(server)];
    call->over_unix = IsBulk(call->method) && of.near != nullptr;
    call->stub = call->over_unix ? of.near : IsBulk(call->method) ? of.bulk.stub : of.rest.stub;
    calls_.insert(call);
    return true;
  }

  // Returns the Unix-domain socket that a server names in its answer to Join; "" if it names none.
  static std::string SocketOf(const grpc::ClientContext& context) {
    const auto& metadata = context.GetServerInitialMetadata();
    const auto told = metadata.find(kUnixSocketKey);
    return told == metadata.end() ? "" : std::string(told->second.data(), told->second.size());
  }

  // Uses the Unix-domain socket of a server, if it is on this machine.
  void ComeNear(int server, const std::string& path) {
    if (!unix_sockets_ || path.empty()) return;
    if (!ListensAt(path)) return;  // on another machine, or in another container
    std::shared_ptr<Stub> stub = MakeStub(absl::StrCat("unix:", path));
    MutexLock lock(&mu_);
    Server& of = *servers_[static_cast<size_t>(server)];
    if (of.near != nullptr && of.path == path) return;
    of.near = std::move(stub);
    of.path = path;
    of.has_room = false;
    LOG(INFO) << Describe(server) << " is on this machine: tensors go through " << path;
  }

  void GoApart(int server, const std::shared_ptr<Stub>& stub, const absl::Status& why) {
    MutexLock lock(&mu_);
    Server& of = *servers_[static_cast<size_t>(server)];
    if (of.near != stub) return;
    of.near = nullptr;
    LOG(INFO) << Describe(server) << ": tensors go over TCP from now on: " << of.path << ": " << why.message();
  }

  // Gives the connection through a Unix-domain socket, which is there with its first answer, send room.
  void GiveRoom(int server) {
    std::string path;
    {
      MutexLock lock(&mu_);
      Server& of = *servers_[static_cast<size_t>(server)];
      if (of.has_room) return;
      of.has_room = true;
      path = of.path;
    }
    GiveSendRoom(path);
  }

  // Replaces a channel whose pauses between attempts to connect may be wrong; a new channel connects at once.
  void Renew(int server, const std::shared_ptr<Stub>& stub) {
    const absl::Time now = Clock::Real()->Now();
    MutexLock lock(&mu_);
    Server& of = *servers_[static_cast<size_t>(server)];
    for (Connection* tcp : {&of.bulk, &of.rest}) {
      if (tcp->stub == stub && now - tcp->made > kRenewAfter)
        *tcp = {MakeStub(endpoints_[static_cast<size_t>(server)]), now};
    }
  }

  void Finish(Pending* call, int server, const grpc::Status& status) {
    if (status.ok()) {
      if (call->method == Method::kJoin) ComeNear(server, SocketOf(call->context));
      if (call->over_unix) GiveRoom(server);
      call->done(FromByteBuffer(call->reply));
    } else {
      const absl::Status error = FromGrpcStatus(status);
      // An error that the server reports is passed on as it is; an error of the network gets the server's name.
      const bool network =
          absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) || absl::IsUnimplemented(error);
      if (call->over_unix && absl::IsUnavailable(error)) GoApart(server, call->stub, error);
      if (!call->over_unix && absl::IsUnavailable(error) && WallClockHasGoneBack()) Renew(server, call->stub);
      call->done(network ? absl::Status(error.code(), absl::StrCat(Describe(server), ": ", error.message())) : error);
    }
    call->done = nullptr;
    MutexLock lock(&mu_);
    calls_.erase(call);
    delete call;
    if (calls_.empty()) none_left_.SignalAll();
  }

  const std::vector<std::string> endpoints_;
  const bool unix_sockets_, servers_in_trainers_;
  std::vector<std::unique_ptr<Server>> servers_;  // constant after construction except for guarded members
  Mutex mu_;
  CondVar none_left_;
  std::set<Pending*> calls_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClosableTransport>> MakeGrpcTransport(GrpcTransportOptions options) {
  if (options.endpoints.empty())
    return absl::InvalidArgumentError("no endpoints of servers were given; see --pservers");
  CheckGrpcThreads();
  return std::make_unique<GrpcTransport>(std::move(options));
}

}  // namespace weir
