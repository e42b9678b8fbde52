#include "pserver/network/grpc_transport.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/support/channel_arguments.h"
#include "pserver/network/credentials.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_threads.h"
#include "pserver/network/grpc_timers.h"
#include "pserver/network/open_stream.h"
#include "pserver/network/shared_client.h"
#include "pserver/network/shared_server.h"
#include "pserver/sockets/peer_address.h"
#include "pserver/sockets/socket_link.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

using Stub = StreamStub;

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

// Calls that a step waits for: they go through shared memory or a stream, and all others by themselves.
bool IsStreamed(Method method) {
  return method == Method::kPush || method == Method::kPull || method == Method::kNorms || method == Method::kDeliver;
}

// Returns a socket that connects to a server at this machine or another. Unavailable: it cannot.
absl::StatusOr<int> ConnectPlain(const SocketAddress& address) {
  const int socket = ::socket(address.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::UnavailableError(absl::StrCat("socket: ", std::strerror(errno)));
  SetLinkOptions(socket, /*tcp=*/true);
  int error = ::connect(socket, address.raw(), address.bytes) == 0 || errno == EINPROGRESS ? 0 : errno;
  // Where nobody listens at a port that the system gives to callers, it may be the caller's own.
  SocketAddress own;
  own.bytes = sizeof(own.address);
  if (error == 0 && ::getsockname(socket, reinterpret_cast<sockaddr*>(&own.address), &own.bytes) == 0 &&
      own.ToString() == address.ToString()) {
    error = ECONNREFUSED;
  }
  if (error == 0) return socket;
  ::close(socket);
  return absl::UnavailableError(std::strerror(error));
}
// Likewise at a path.
absl::StatusOr<int> ConnectPlain(const std::string& path) {
  ASSIGN_OR_RETURN(const int socket, ConnectTo(path, SOCK_STREAM | SOCK_NONBLOCK));
  SetLinkOptions(socket, /*tcp=*/false);
  return socket;
}

class GrpcTransport : public ClosableTransport {
 public:
  explicit GrpcTransport(GrpcTransportOptions options)
      : endpoints_(std::move(options.endpoints)),
        unix_sockets_(options.unix_sockets),
        plain_sockets_(options.plain_sockets),
        shared_memory_(options.network.shared_memory()),
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
    for (const std::shared_ptr<SharedClient>& shared : CancelAll()) {
      shared->Close();
      shared->Join();
    }
    MutexLock lock(&mu_);
    while (!calls_.empty() || streamed_ > 0) none_left_.Wait(&mu_);
  }

  void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    CallNearest(server, method, request, timeout, std::move(done), /*patient=*/false);
  }
  void CallPatiently(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
    CallNearest(server, method, request, timeout, std::move(done), /*patient=*/true);
  }

  void Close() override {
    std::set<std::string> addresses(endpoints_.begin(), endpoints_.end());
    for (const std::shared_ptr<SharedClient>& shared : CancelAll()) shared->Close();
    {
      MutexLock lock(&mu_);
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
  bool shares_memory(int server) const override {
    MutexLock lock(&mu_);
    return servers_[static_cast<size_t>(server)]->shared != nullptr;
  }

 private:
  struct Pending {
    grpc::ClientContext context;
    grpc::ByteBuffer request, reply;
    ReplyCallback done;
    Method method = Method::kJoin;
    std::shared_ptr<Stub> stub;
  };
  struct Connection {
    std::shared_ptr<Stub> stub;
    absl::Time made;
  };
  // The way of a stream: a plain socket, or a stub.
  struct Way {
    std::string plain;  // the path or the address of the other end
    std::shared_ptr<Stub> stub;
    bool over_unix = false;

    bool operator==(const Way& other) const { return plain == other.plain && stub == other.stub; }
  };
  struct Server {
    // TCP connections for tensors and for all other calls. Guarded by mu_.
    Connection bulk, rest;
    // Stub of the server's Unix-domain socket; null if it has none or has stopped answering there. Guarded by mu_.
    std::shared_ptr<Stub> near;
    std::string path;
    bool has_room = false;  // its connection has got send room
    // Where the server takes plain sockets, if it has said so and one there has not failed. Guarded by mu_.
    std::string plain_path;
    std::optional<SocketAddress> plain_address;
    // Places where plain sockets got no greeting while the server was there: something between here and it lets only
    // gRPC through. Streams of gRPC do not bring them back, a Join does. Guarded by mu_.
    std::set<std::string> no_greeting;
    // Stream of calls and the way that it takes; null until it is needed. Guarded by mu_.
    std::shared_ptr<StreamClient> stream;
    Way way;
    // Memory shared with the server; null if there is none. Guarded by mu_.
    std::shared_ptr<SharedClient> shared;
  };

  static std::shared_ptr<Stub> MakeStub(const std::string& address) {
    return std::make_shared<Stub>(grpc::CreateCustomChannel(address, ChannelCredentials(), Arguments()));
  }

  // Gives up all calls over gRPC. Returns all shared memories.
  std::vector<std::shared_ptr<SharedClient>> CancelAll() {
    MutexLock lock(&mu_);
    closing_ = true;
    for (Pending* call : calls_) call->context.TryCancel();
    for (const std::shared_ptr<StreamClient>& stream : left_streams_) stream->Close();
    for (const std::unique_ptr<Server>& server : servers_) {
      if (server->stream != nullptr) server->stream->Close();
    }
    std::vector<std::shared_ptr<SharedClient>> all = left_;
    for (const std::unique_ptr<Server>& server : servers_) {
      if (server->shared != nullptr) all.push_back(server->shared);
    }
    return all;
  }

  void CallNearest(int server, Method method, const Slices& request, absl::Duration timeout, ReplyCallback done,
                   bool patient) {
    CHECK(server >= 0 && server < servers()) << "no server " << server;
    if (const auto shared = IsStreamed(method) ? SharedOf(server) : nullptr; shared != nullptr) {
      if (CallShared(shared, server, method, request, timeout, done, patient)) return;
      if (shared->closed()) LeaveShared(server, shared.get());
    }
    CallGrpc(server, method, request, timeout, std::move(done));
  }

  std::shared_ptr<SharedClient> SharedOf(int server) {
    MutexLock lock(&mu_);
    return servers_[static_cast<size_t>(server)]->shared;
  }

  // Returns false if the request has to go another way.
  bool CallShared(const std::shared_ptr<SharedClient>& shared, int server, Method method, const Slices& request,
                  absl::Duration timeout, const ReplyCallback& done, bool patient) {
    // Kept for an answer that finds no room, as far as it can be.
    const bool owned = std::all_of(request.begin(), request.end(), [](const Slice& s) { return s.owner != nullptr; });
    const absl::Time deadline = Clock::Real()->Now() + timeout;
    return shared->Call(
        method, request, timeout,
        [this, shared = shared.get(), server, method, deadline, done, profiled = ProfiledCallScope::current(),
         kept = owned ? request : Slices()](std::optional<absl::StatusOr<Slices>> reply) {
          if (reply.has_value()) {
            if (shared->closed()) LeaveShared(server, shared);
            done(reply->ok() ? *std::move(reply) : absl::StatusOr<Slices>(Named(server, reply->status())));
          } else if (!kept.empty()) {
            const ProfiledCallScope scope(profiled);
            CallGrpc(server, method, kept, deadline - Clock::Real()->Now(), done);
          } else {
            done(absl::UnavailableError(absl::StrCat(Describe(server), ": no room in the memory shared with it")));
          }
        },
        patient);
  }

  void CallGrpc(int server, Method method, const Slices& request, absl::Duration timeout, ReplyCallback done) {
    if (IsStreamed(method)) return CallStreamed(server, method, request, timeout, done);
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
      call->done(Closed(server));
      delete call;
      return;
    }
    WallClockHasGoneBack();
    call->stub->UnaryCall(&call->context, MethodPath(method), {}, &call->request, &call->reply,
                          [this, call, server](const grpc::Status& status) { Finish(call, server, status); });
  }

  // A call of tensors and the way that it takes.
  struct Streamed {
    std::shared_ptr<StreamClient> stream;
    Way way;
  };

  // Counts a call and returns its stream, which is opened if there is none; null, and no call: the transport closes.
  Streamed BeginStreamed(int server) {
    MutexLock lock(&mu_);
    if (closing_) return {};
    Server& of = *servers_[static_cast<size_t>(server)];
    if (of.stream == nullptr || of.stream->ended() || !(of.way == WayTo(of))) {
      std::erase_if(left_streams_, [](const std::shared_ptr<StreamClient>& left) { return left->ended(); });
      if (of.stream != nullptr && !of.stream->ended()) {
        // Its calls are answered through it.
        of.stream->CloseWhenIdle();
        left_streams_.push_back(std::move(of.stream));
      }
      OpenStream(server, &of);
    }
    ++streamed_;
    return {of.stream, of.way};
  }
  // The way that a new stream takes.
  static Way WayTo(const Server& of) {
    if (!of.plain_path.empty()) return {.plain = of.plain_path, .over_unix = true};
    if (of.plain_address.has_value()) return {.plain = of.plain_address->ToString()};
    if (of.near != nullptr) return {.stub = of.near, .over_unix = true};
    return {.stub = of.bulk.stub};
  }
  void OpenStream(int server, Server* of) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    const auto gone = [this] { EndStreamed(); };
    ++streamed_;
    while (true) {
      of->way = WayTo(*of);
      if (of->way.plain.empty()) {
        std::function<void(const std::string&)> plain;
        if (plain_sockets_)
          plain = [this, server](const std::string& peer) { LearnPlain(server, peer, /*joins=*/false); };
        of->stream = OpenGrpcStream(of->way.stub, &deadlines_, gone, plain);
        return;
      }
      const absl::StatusOr<int> socket =
          of->way.over_unix ? ConnectPlain(of->plain_path) : ConnectPlain(*of->plain_address);
      if (socket.ok()) {
        of->stream = OpenSocketStream(*socket, &deadlines_, gone);
        return;
      }
      LeavePlain(server, of->way, socket.status().message());
    }
  }

  // The server has said that it takes plain sockets, and its address, as gRPC writes it; `joins`: in its answer to a
  // Join.
  void LearnPlain(int server, const std::string& peer, bool joins) {
    const std::optional<SocketAddress> address = AddressOfPeer(peer);
    MutexLock lock(&mu_);
    Server& of = *servers_[static_cast<size_t>(server)];
    if (joins) of.no_greeting.clear();
    if (address.has_value() && !of.no_greeting.contains(address->ToString())) of.plain_address = address;
    if (of.near == nullptr) return;
    const std::string path = TensorPathOf(of.path);
    if (!of.no_greeting.contains(path)) of.plain_path = path;
  }
  // Plain sockets do not reach the server that way now.
  void LeavePlain(int server, const Way& way, absl::string_view why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    Server& of = *servers_[static_cast<size_t>(server)];
    if (!(WayTo(of) == way)) return;
    if (way.over_unix) {
      of.plain_path.clear();
    } else {
      of.plain_address.reset();
    }
    LOG(INFO) << Describe(server) << ": tensors go " << NameOf(WayTo(of)) << " from now on: " << way.plain << ": "
              << why;
  }
  // The server itself is not there: that plain sockets got no greeting says nothing of them.
  void ForgetNoGreeting(int server) {
    MutexLock lock(&mu_);
    servers_[static_cast<size_t>(server)]->no_greeting.clear();
  }
  static std::string NameOf(const Way& way) {
    if (!way.plain.empty()) return absl::StrCat("through ", way.plain);
    return way.over_unix ? "over gRPC through its socket" : "over gRPC";
  }
  // A call or a stream has ended.
  void EndStreamed() {
    MutexLock lock(&mu_);
    if (--streamed_ == 0) none_left_.SignalAll();
  }

  void CallStreamed(int server, Method method, const Slices& request, absl::Duration timeout,
                    const ReplyCallback& done) {
    // Another thread may have left the stream for a better way between the two calls.
    for (int attempts = 0; attempts < 2; ++attempts) {
      const Streamed call = BeginStreamed(server);
      if (call.stream == nullptr) return done(Closed(server));
      WallClockHasGoneBack();
      const bool begun = call.stream->Call(
          method, request, timeout, [this, server, call, done](absl::StatusOr<Slices> reply, bool from_server) {
            FinishStreamed(server, call, from_server ? absl::OkStatus() : reply.status());
            // A stream that ends because the other process is of another version does not say which process that is.
            const bool of_stream = absl::IsFailedPrecondition(reply.status()) && call.stream->ended();
            done(reply.ok() ? std::move(reply) : absl::StatusOr<Slices>(Named(server, reply.status(), of_stream)));
            EndStreamed();
          });
      if (begun) return;
      EndStreamed();
    }
    done(absl::UnavailableError(absl::StrCat(Describe(server), ": the stream of calls has ended")));
  }

  // `network` is what happened on the way.
  void FinishStreamed(int server, const Streamed& call, const absl::Status& network) {
    const Way& way = call.way;
    if (!way.plain.empty()) {
      // A path belongs to one process. At an address there may be another one soon, unless none has ever answered.
      const bool greeted = call.stream->greeted();
      if (network.ok() || (!way.over_unix && greeted)) return;
      if (!absl::IsUnavailable(network) && greeted) return;
      MutexLock lock(&mu_);
      Server& of = *servers_[static_cast<size_t>(server)];
      // A later stream may have found the way good again.
      if (closing_ || of.stream != call.stream) return;
      if (!greeted) of.no_greeting.insert(way.plain);
      LeavePlain(server, way, network.message());
    } else if (network.ok()) {
      if (way.over_unix) GiveRoom(server);
    } else if (absl::IsUnavailable(network)) {
      ForgetNoGreeting(server);
      if (way.over_unix) GoApart(server, way.stub, network);
      if (!way.over_unix && WallClockHasGoneBack()) Renew(server, way.stub);
    }
  }

  absl::Status Closed(int server) const {
    return absl::UnavailableError(absl::StrCat(Describe(server), ": the connections are closed"));
  }

  // Gives the call its connection. Returns false if there is none any more.
  bool Begin(Pending* call, int server) {
    MutexLock lock(&mu_);
    if (closing_) return false;
    Server& of = *servers_[static_cast<size_t>(server)];
    call->stub = of.rest.stub;
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
    {
      MutexLock lock(&mu_);
      const Server& of = *servers_[static_cast<size_t>(server)];
      if (of.near != nullptr && of.path == path) return;
    }
    std::shared_ptr<Stub> stub = MakeStub(absl::StrCat("unix:", path));
    std::shared_ptr<SharedClient> shared = Share(server, path);
    LOG(INFO) << Describe(server) << " is on this machine: tensors go through "
              << (shared != nullptr ? "shared memory" : path);
    // Destroyed here, and not on their own threads.
    std::vector<std::shared_ptr<SharedClient>> unused;
    MutexLock lock(&mu_);
    for (std::shared_ptr<SharedClient>& left : left_) {
      if (left.use_count() == 1) unused.push_back(std::move(left));
    }
    std::erase(left_, nullptr);
    Server& of = *servers_[static_cast<size_t>(server)];
    of.near = std::move(stub);
    of.path = path;
    of.plain_path.clear();
    of.has_room = false;
    if (of.shared != nullptr) left_.push_back(std::move(of.shared));
    of.shared = closing_ ? nullptr : std::move(shared);
  }

  // Returns null if memory cannot be shared with the server.
  std::shared_ptr<SharedClient> Share(int server, const std::string& unix_socket) {
    if (!shared_memory_) return nullptr;
    const std::string path = SharedPathOf(unix_socket);
    if (::access(path.c_str(), F_OK) != 0) return nullptr;  // switched off there
    absl::StatusOr<std::shared_ptr<SharedClient>> shared = SharedClient::Connect(path);
    if (shared.ok()) return *std::move(shared);
    LOG(INFO) << "no memory is shared with " << Describe(server) << ": " << shared.status().message();
    return nullptr;
  }

  // The other process has closed the memory. May be called on a thread of `shared`, which must not destroy it.
  void LeaveShared(int server, const SharedClient* shared) {
    MutexLock lock(&mu_);
    Server& of = *servers_[static_cast<size_t>(server)];
    if (of.shared.get() != shared) return;
    left_.push_back(std::move(of.shared));
    LOG(INFO) << Describe(server) << ": tensors go through " << of.path << " from now on";
  }

  // An error that the server reports is passed on as it is; an error of the network gets the server's name.
  absl::Status Named(int server, const absl::Status& error, bool of_stream = false) const {
    const bool network =
        of_stream || absl::IsUnavailable(error) || absl::IsDeadlineExceeded(error) || absl::IsUnimplemented(error);
    return network ? absl::Status(error.code(), absl::StrCat(Describe(server), ": ", error.message())) : error;
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
      if (call->method == Method::kJoin) {
        ComeNear(server, SocketOf(call->context));
        const auto& told = call->context.GetServerInitialMetadata();
        if (plain_sockets_ && told.find(kPlainSocketsKey) != told.end()) {
          LearnPlain(server, call->context.peer(), /*joins=*/true);
        }
      }
      call->done(FromByteBuffer(call->reply));
    } else {
      const absl::Status error = FromGrpcStatus(status);
      if (absl::IsUnavailable(error) && WallClockHasGoneBack()) Renew(server, call->stub);
      call->done(Named(server, error));
    }
    call->done = nullptr;
    MutexLock lock(&mu_);
    calls_.erase(call);
    delete call;
    if (calls_.empty()) none_left_.SignalAll();
  }

  const std::vector<std::string> endpoints_;
  const bool unix_sockets_, plain_sockets_, shared_memory_, servers_in_trainers_;
  std::vector<std::unique_ptr<Server>> servers_;  // constant after construction except for guarded members
  mutable Mutex mu_;
  CondVar none_left_;
  // Memories that are not used for new calls.
  std::vector<std::shared_ptr<SharedClient>> left_ ABSL_GUARDED_BY(mu_);
  std::set<Pending*> calls_ ABSL_GUARDED_BY(mu_);
  // Streams that are not used for new calls; all streams that have not ended, and their calls.
  std::vector<std::shared_ptr<StreamClient>> left_streams_ ABSL_GUARDED_BY(mu_);
  int64_t streamed_ ABSL_GUARDED_BY(mu_) = 0;
  CallDeadlines deadlines_;
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
