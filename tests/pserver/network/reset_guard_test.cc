// A peer that opens calls and resets them, on a raw socket, and the guard that closes its connection.

#include "pserver/network/reset_guard.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_timers.h"
#include "pserver/network/grpc_transport.h"
#include "tests/testing/handling_core.h"

namespace weir {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(60);

class EchoCore : public HandlingCore {
 public:
  void Handle(Method, const Slices& request, ReplyCallback reply) override { reply(request); }
};

// A client with a connection of its own.
class Client {
 public:
  explicit Client(const std::string& endpoint) : stub_(Channel(endpoint)) {}

  absl::Status Ask() {
    grpc::ClientContext context;
    context.set_deadline(GrpcDeadline(kPatience));
    grpc::CompletionQueue queue;
    const grpc::ByteBuffer request = ToByteBuffer({Slice::Own("echo")});
    const auto call = stub_.PrepareUnaryCall(&context, "/weir.v1.ParameterServer/Control", request, &queue);
    grpc::ByteBuffer reply;
    grpc::Status status;
    call->StartCall();
    call->Finish(&reply, &status, nullptr);
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    queue.Shutdown();
    return FromGrpcStatus(status);
  }

 private:
  static std::shared_ptr<grpc::Channel> Channel(const std::string& endpoint) {
    grpc::ChannelArguments args;
    args.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(endpoint, grpc::InsecureChannelCredentials(), args);
  }

  grpc::GenericStub stub_;
};

enum FrameType { kHeaders = 1, kReset = 3, kSettings = 4, kPing = 6 };

// A frame of HTTP/2 (RFC 9113, 4.1).
std::string Frame(FrameType type, int flags, uint32_t stream, const std::string& body) {
  std::string frame;
  for (const int shift : {16, 8, 0}) frame += static_cast<char>(body.size() >> shift);
  frame += static_cast<char>(type);
  frame += static_cast<char>(flags);
  for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(stream >> shift);
  return frame + body;
}

// A header field without an index and without Huffman codes (RFC 7541, 6.2.2).
std::string Field(const std::string& name, const std::string& value) {
  return std::string(1, '\0') + static_cast<char>(name.size()) + name + static_cast<char>(value.size()) + value;
}

// Speaks as much HTTP/2 as resetting calls takes.
class RawPeer {
 public:
  explicit RawPeer(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    // Answers that nobody reads fill this soon.
    const int bytes = 4096;
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes));
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)), 0);
    EXPECT_EQ(::fcntl(fd_, F_SETFL, O_NONBLOCK), 0);
    EXPECT_TRUE(Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + Frame(kSettings, 0, 0, "")));
  }
  ~RawPeer() { ::close(fd_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  // Opens so many calls and resets each at once. False if the server has closed the connection.
  bool Reset(int calls) {
    // POST, http.
    const std::string block = "\x83\x86" + Field(":path", "/weir.v1.ParameterServer/Push") + Field(":authority", "x") +
                              Field("te", "trailers") + Field("content-type", "application/grpc");
    const int end_headers = 4;
    const std::string cancel("\0\0\0\x08", 4);
    std::string frames;
    for (int i = 0; i < calls; ++i, stream_ += 2) {
      frames += Frame(kHeaders, end_headers, stream_, block) + Frame(kReset, 0, stream_, cancel);
    }
    return Send(frames);
  }

  // Reads until the answer to a ping comes. False if the server has closed the connection.
  bool Ping() {
    const int ack = 1;
    const std::string payload = "are you?";
    const std::string answer = Frame(kPing, ack, 0, payload);
    if (!Send(Frame(kPing, 0, 0, payload))) return false;
    while (true) {
      const size_t at = received_.find(answer);
      if (at != std::string::npos) {
        received_.erase(0, at + answer.size());
        return true;
      }
      if (!Wait(POLLIN)) return false;
      char bytes[65536];
      const ssize_t n = ::recv(fd_, bytes, sizeof(bytes), 0);
      if (n == 0 || (n < 0 && errno != EAGAIN)) return false;
      if (n > 0) received_.append(bytes, static_cast<size_t>(n));
    }
  }

  // Whether the server closes the connection in time. Reads nothing.
  bool WaitForClose() {
    pollfd waiting = {.fd = fd_, .events = 0, .revents = 0};
    return ::poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))) == 1;
  }

 private:
  bool Wait(short events) {
    pollfd waiting = {.fd = fd_, .events = events, .revents = 0};
    EXPECT_EQ(::poll(&waiting, 1, static_cast<int>(absl::ToInt64Milliseconds(kPatience))), 1) << "nothing happens";
    return (waiting.revents & events) != 0;
  }
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!Wait(POLLOUT)) return false;
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n < 0 && errno != EAGAIN) return false;
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  const int fd_;
  uint32_t stream_ = 1;
  std::string received_;
};

class ResetGuardTest : public testing::Test {
 protected:
  void SetUp() override {
    auto server = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  EchoCore core_;
  std::unique_ptr<GrpcServer> server_;
};

TEST_F(ResetGuardTest, APeerThatResetsCallsWithoutEndIsCutOffAndOthersAreAnswered) {
  Client other(server_->endpoint());
  ASSERT_EQ(other.Ask(), absl::OkStatus());
  RawPeer peer(server_->port());
  std::atomic<bool> done = false;
  std::atomic<bool> closed = false;
  std::thread attack([&] {
    // A server without a guard takes 400 MB for these.
    bool open = true;
    for (int calls = 0; open && calls < 20'000; calls += 100) open = peer.Reset(100);
    closed = !open || peer.WaitForClose();
    done = true;
  });
  int answers = 0;
  do {
    EXPECT_EQ(other.Ask(), absl::OkStatus());
    ++answers;
  } while (!done && !HasFailure());
  attack.join();
  EXPECT_TRUE(closed);
  EXPECT_GT(answers, 0);
  EXPECT_EQ(other.Ask(), absl::OkStatus()) << "the connection of another";
  EXPECT_EQ(Client(server_->endpoint()).Ask(), absl::OkStatus()) << "a new connection";
}

TEST_F(ResetGuardTest, APeerFarBelowTheLimitsIsLeftAlone) {
  Client other(server_->endpoint());
  RawPeer peer(server_->port());
  // Enough that the guard looks at the connection.
  ASSERT_TRUE(peer.Reset(kMostOpenCalls / 2));
  // The guard looks fifty times a second.
  Clock* const clock = Clock::Real();
  const absl::Time end = clock->Now() + absl::Seconds(1);
  do {
    ASSERT_EQ(other.Ask(), absl::OkStatus());
  } while (clock->Now() < end);
  EXPECT_TRUE(peer.Ping());
}

// It has nothing to do, and takes none of the two cores that a step needs.
TEST_F(ResetGuardTest, WithoutAnAttackTheGuardRests) {
  ASSERT_EQ(Client(server_->endpoint()).Ask(), absl::OkStatus());
  const auto processor_time = [] {
    timespec now = {};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return absl::DurationFromTimespec(now);
  };
  Clock* const clock = Clock::Real();
  const absl::Time begin = clock->Now();
  const absl::Duration used = processor_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_LT(processor_time() - used, 0.3 * (clock->Now() - begin));
}

TEST_F(ResetGuardTest, AnsweredCallsAreNotCounted) {
  Client client(server_->endpoint());
  for (int64_t i = 0; i < kMostOpenCalls + 100; ++i) ASSERT_EQ(client.Ask(), absl::OkStatus());
}

// Connections on which nothing follows what they say first, made by a process of its own until it is destroyed.
class SilentPeers {
 public:
  static constexpr int kPeers = 4000;

  explicit SilentPeers(std::string_view first) : first_(first) {
    EXPECT_EQ(::pipe(go_), 0);
    child_ = ::fork();
    // Other threads are not in the child: from here on only system calls.
    if (child_ == 0) Stand();
  }
  ~SilentPeers() {
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    for (const int fd : go_) ::close(fd);
  }
  SilentPeers(const SilentPeers&) = delete;
  SilentPeers& operator=(const SilentPeers&) = delete;

  void Connect(int port) { ASSERT_EQ(::write(go_[1], &port, sizeof(port)), static_cast<ssize_t>(sizeof(port))); }

 private:
  [[noreturn]] void Stand() {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    rlimit limit = {};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    int port = 0;
    if (::read(go_[0], &port, sizeof(port)) != sizeof(port)) ::_exit(1);
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    for (int made = 0; made < kPeers;) {
      const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      (void)::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
      // The system asks again only after a second.
      pollfd waiting = {.fd = fd, .events = POLLOUT, .revents = 0};
      const bool connected = ::poll(&waiting, 1, /*ms=*/5) == 1 && (waiting.revents & POLLERR) == 0;
      if (!connected) ::close(fd);
      if (connected) (void)::send(fd, first_.data(), first_.size(), MSG_NOSIGNAL);
      made += connected ? 1 : 0;
    }
    while (true) ::pause();
  }

  const std::string_view first_;
  int go_[2] = {-1, -1};
  pid_t child_ = -1;
};

// Limits the descriptors of this process for a test.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t most) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit limit = {most, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~SoftLimit() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  rlimit before_ = {};
};

// Returns how many descriptors this process can still open, at most `most`.
int FreeDescriptors(int most) {
  std::vector<int> fds;
  while (static_cast<int>(fds.size()) < most) {
    const int fd = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    if (fd < 0) break;
    fds.push_back(fd);
  }
  for (const int fd : fds) ::close(fd);
  return static_cast<int>(fds.size());
}

// Pushes through the transport's stream, without repeats.
absl::Status Push(Transport* transport) {
  std::promise<absl::Status> status;
  transport->Call(0, Method::kPush, {Slice::Own("echo")}, kPatience,
                  [&status](const absl::StatusOr<Slices>& reply) { status.set_value(reply.status()); });
  return status.get_future().get();
}

// What strangers say first.
class StrangersTest : public testing::TestWithParam<std::string_view> {};
INSTANTIATE_TEST_SUITE_P(First, StrangersTest, testing::Values("", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "WEIRTENS"),
                         [](const auto& first) {
                           return first.param.empty() ? "Nothing" : first.param[0] == 'P' ? "Http2" : "PlainSockets";
                         });

TEST_P(StrangersTest, SilentConnectionsLeaveDescriptorsForFiles) {
  SilentPeers strangers(GetParam());
  const SoftLimit limit(2000);
  EchoCore core;
  auto server = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core});
  ASSERT_TRUE(server.ok()) << server.status();
  Client trainer((*server)->endpoint());
  ASSERT_EQ(trainer.Ask(), absl::OkStatus());
  // A connection of gRPC for tensors has one call, which does not end: the stream. The guard does not see plain
  // sockets; the first push tells of them.
  const std::shared_ptr<Transport> streams =
      *MakeGrpcTransport({.endpoints = {(*server)->endpoint()}, .plain_sockets = false});
  const std::shared_ptr<Transport> plain = *MakeGrpcTransport({.endpoints = {(*server)->endpoint()}});
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Push(streams.get()), absl::OkStatus());
    ASSERT_EQ(Push(plain.get()), absl::OkStatus());
  }
  strangers.Connect((*server)->port());
  Clock* const clock = Clock::Real();
  // The guard looks every now and then: connections may be ahead of it for a moment, and no longer.
  const absl::Time end = clock->Now() + absl::Seconds(20);
  int in_a_row = 0;
  while (in_a_row < 5 && clock->Now() < end) {
    in_a_row = FreeDescriptors(64) == 64 ? in_a_row + 1 : 0;
    absl::SleepFor(absl::Milliseconds(20));
  }
  EXPECT_EQ(in_a_row, 5);
  EXPECT_EQ(trainer.Ask(), absl::OkStatus()) << "a connection with an answered call stays";
  EXPECT_EQ(Push(streams.get()), absl::OkStatus()) << "a connection with answers in a stream stays";
  EXPECT_EQ(Push(plain.get()), absl::OkStatus()) << "a plain socket stays";
  // New ones may have to wait for the guard.
  absl::Status served = absl::UnavailableError("not asked");
  while (!served.ok() && clock->Now() < end) served = Client((*server)->endpoint()).Ask();
  EXPECT_EQ(served, absl::OkStatus());
}

// Connects to a port without waiting for the answer.
class Connecting {
 public:
  explicit Connecting(int port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0)) {
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    (void)::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  }
  ~Connecting() { ::close(fd_); }
  Connecting(const Connecting&) = delete;
  Connecting& operator=(const Connecting&) = delete;

 private:
  const int fd_;
};

// Files of this process, which take next to no processor time.
class OpenFiles {
 public:
  explicit OpenFiles(int count) {
    for (int i = 0; i < count; ++i) fds_.push_back(::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0));
    EXPECT_GE(fds_.back(), 0);
  }
  ~OpenFiles() {
    for (const int fd : fds_) ::close(fd);
  }
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

 private:
  std::vector<int> fds_;
};

// How long a guard may take in these tests that looks at once, on a busy machine. Without news it looks each five
// seconds.
constexpr absl::Duration kAtOnce = absl::Seconds(3);

// A server with an idle guard and a connection that has got no answer.
class IdleGuard {
 public:
  explicit IdleGuard(rlim_t descriptors) : limit_(descriptors) {
    AwaitFewDescriptors();
    server_ = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_}).value();
    silent_ = std::make_unique<RawPeer>(server_->port());
    EXPECT_TRUE(silent_->Ping());
    absl::SleepFor(absl::Milliseconds(100));
  }
  int port() const { return server_->port(); }
  void ExpectCloseAtOnce(absl::Time begin) {
    EXPECT_TRUE(silent_->WaitForClose());
    EXPECT_LT(Clock::Real()->Now() - begin, kAtOnce);
  }

 private:
  // gRPC may not have closed all connections of earlier tests yet. A guard that counts these keeps fewer descriptors.
  static void AwaitFewDescriptors() {
    const absl::Time end = Clock::Real()->Now() + kPatience;
    const auto used = [] {
      return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), std::filesystem::directory_iterator());
    };
    while (used() > 64 && Clock::Real()->Now() < end) absl::SleepFor(absl::Milliseconds(1));
    EXPECT_LE(used(), 64);
  }

  const SoftLimit limit_;
  EchoCore core_;
  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<RawPeer> silent_;
};

TEST(DescriptorsTest, AnIdleGuardSeesFilesWhenFewDescriptorsAreFree) {
  IdleGuard guard(300);
  const absl::Time begin = Clock::Real()->Now();
  const OpenFiles files(200);
  guard.ExpectCloseAtOnce(begin);
}

TEST(DescriptorsTest, AConnectionEndsTheRestOfAnIdleGuard) {
  IdleGuard guard(2000);
  const OpenFiles files(700);
  const absl::Time begin = Clock::Real()->Now();
  const Connecting another(guard.port());
  guard.ExpectCloseAtOnce(begin);
}

constexpr char kSocket[] =
    R"({"data":{"keepAlivesSent":"3","lastMessageReceivedTimestamp":"2026-01-01T00:00:00.000000000Z",)"
    R"("messagesSent":"4890","streamsFailed":"70","streamsStarted":"5000","streamsSucceeded":"4900"},)"
    R"("local":{"tcpip_address":{"ip_address":"fwAAAQ==","port":4000}},)"
    R"("ref":{"name":"chttp2 ipv4:127.0.0.1:51504","socketId":"7"},)"
    R"("remote":{"tcpip_address":{"ip_address":"fwAAAQ==","port":51504}}})";

TEST(ParseSocketTest, ReadsPeerAndCounts) {
  const auto counts = ParseSocket(kSocket);
  ASSERT_TRUE(counts.has_value());
  EXPECT_EQ(counts->peer, "127.0.0.1:51504");
  EXPECT_EQ(counts->started, 5000);
  EXPECT_EQ(counts->answered, 4900);
  EXPECT_EQ(counts->abandoned, 70);
  EXPECT_EQ(counts->sent, 4890);
}

std::string PeerNamed(const std::string& name) {
  const auto counts = ParseSocket(R"({"ref":{"name":")" + name + R"(","socketId":"7"}})");
  return counts ? counts->peer : "nothing";
}

TEST(ParseSocketTest, OnlyTcpConnectionsHaveAPeer) {
  EXPECT_EQ(PeerNamed("chttp2 ipv4:10.0.0.1:80"), "10.0.0.1:80");
  EXPECT_EQ(PeerNamed("chttp2 ipv6:%5B::1%5D:80"), "[::1]:80");
  EXPECT_EQ(PeerNamed("chttp2 ipv6:%5Bfe80::1%25eth0%5D:80"), "[fe80::1]:80");
  EXPECT_EQ(PeerNamed("chttp2 unix:/tmp/weir-0/1-0"), "");
  EXPECT_EQ(PeerNamed("ipv4:10.0.0.1:80"), "");
  EXPECT_EQ(PeerNamed("chttp2 ipv6:%5B"), "[");
  EXPECT_EQ(PeerNamed("%5D%"), "");
  EXPECT_EQ(PeerNamed(""), "");
}

TEST(ParseSocketTest, CountsThatAreNoNumbersAreZero) {
  for (const char* text : {"", "-1", "x", "1x", "99999999999999999999", "1e3"}) {
    const auto counts = ParseSocket(std::string(R"({"name":"a","streamsStarted":")") + text + R"("})");
    ASSERT_TRUE(counts.has_value());
    EXPECT_EQ(counts->started, 0) << text;
  }
  EXPECT_EQ(ParseSocket(R"({"name":"a","streamsStarted":7})")->started, 0);
  EXPECT_EQ(ParseSocket(R"({"name":"a","streamsStarted":"9223372036854775807"})")->started,
            std::numeric_limits<int64_t>::max());
}

TEST(ParseSocketTest, SomethingElseIsNothing) {
  for (const char* text : {"", "{}", "null", R"({"name":7})", R"({"name":"cut)", R"("name)"}) {
    EXPECT_FALSE(ParseSocket(text).has_value()) << text;
  }
}

TEST(ParseSocketTest, DamagedTextIsReadWithoutHarm) {
  const std::string whole = kSocket;
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_FALSE(ParseSocket(whole.substr(0, i)).value_or(CallCounts{}).started > 5000) << i;
    for (const char other : {'"', '{', '\0', '%', '9', '-'}) {
      std::string damaged = whole;
      damaged[i] = other;
      const auto counts = ParseSocket(damaged);
      if (!counts) continue;
      EXPECT_GE(counts->started, 0) << i;
      EXPECT_LE(counts->started, 9999) << i;
    }
  }
}

TEST(KeptDescriptorsTest, AsManyAsTheJobCanSpare) {
  EXPECT_EQ(KeptDescriptors(/*limit=*/1024, /*used=*/40, /*expected=*/32), 696);
  EXPECT_EQ(KeptDescriptors(/*limit=*/1024, /*used=*/40, /*expected=*/900), 64);
  EXPECT_EQ(KeptDescriptors(/*limit=*/1 << 20, /*used=*/40, /*expected=*/4000), 4096);
}

TEST(IsBeyondLimitsTest, OpenCalls) {
  EXPECT_FALSE(IsBeyondLimits({}));
  EXPECT_FALSE(IsBeyondLimits({.started = kMostOpenCalls}));
  EXPECT_TRUE(IsBeyondLimits({.started = kMostOpenCalls + 1}));
  EXPECT_FALSE(IsBeyondLimits({.started = 1'000'000 + kMostOpenCalls, .answered = 999'000, .abandoned = 1000}));
  EXPECT_TRUE(IsBeyondLimits({.started = 1'000'001 + kMostOpenCalls, .answered = 999'000, .abandoned = 1000}));
}

TEST(IsBeyondLimitsTest, ResetsWeighAgainstAnswers) {
  EXPECT_FALSE(IsBeyondLimits({.started = kMostResets, .abandoned = kMostResets}));
  EXPECT_TRUE(IsBeyondLimits({.started = kMostResets + 1, .abandoned = kMostResets + 1}));
  EXPECT_FALSE(IsBeyondLimits({.started = kMostResets + 1001, .answered = 1000, .abandoned = kMostResets + 1}));
}

}  // namespace
}  // namespace weir
