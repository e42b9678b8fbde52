// The network by itself: real sockets and a core that echoes, fails or does not answer.

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "pserver/network/grpc_bytes.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_timers.h"
#include "pserver/network/grpc_transport.h"
#include "pserver/network/shared_server.h"
#include "pserver/sockets/peer_address.h"
#include "pserver/sockets/unix_socket.h"
#include "tests/pserver/network/network.h"

namespace weir {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GrpcTest : public NetworkTest, public testing::WithParamInterface<Network> {
 protected:
  void SetUp() override { Connect(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Networks, GrpcTest,
                         testing::Values(Network::kGrpcTcp, Network::kGrpcUnixSocket, Network::kPlainTcp,
                                         Network::kPlainUnixSocket, Network::kSharedMemory),
                         testing::PrintToStringParamName());

TEST_P(GrpcTest, EveryMethodReachesItsHandler) {
  for (const Method method : {Method::kJoin, Method::kHeartbeat, Method::kPush, Method::kPull, Method::kExchange,
                              Method::kControl, Method::kNorms}) {
    const auto reply = Ask("echo", method);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_EQ(*reply, std::string(MethodName(method)) + " echo");
  }
}

TEST_P(GrpcTest, CallsEndWhenTheTransportIsClosed) {
  auto under_way = Start(Method::kControl, {Slice::Own("hold")}, absl::Minutes(10));
  auto pull = Start(Method::kPull, {Slice::Own("hold")}, absl::Minutes(10));
  const std::vector<ReplyCallback> held = core_.WaitForHeld(2);
  transport_->Close();
  EXPECT_FALSE(under_way.get().ok());
  EXPECT_TRUE(absl::IsUnavailable(pull.get().status()));
  EXPECT_FALSE(Ask("echo", Method::kPush).ok());
  EXPECT_THAT(std::string(Ask("echo").status().message()), HasSubstr("the connections are closed"));
  // The server lives on, for others.
  transport_ = *MakeGrpcTransport({.endpoints = {server_->endpoint()}});
  EXPECT_TRUE(Ask("echo").ok());
}

TEST_P(GrpcTest, ARecordedCallIsKnownToItsHandler) {
  const ProfiledCallScope scope({.id = 0xfedcba9876543210, .step = 21});
  EXPECT_EQ(*Ask("profiled"), "0--1") << "the server records nothing";
  Profiler::Process().Start(20, 40);
  EXPECT_EQ(*Ask("profiled"), "18364758544493064720-21");
  {
    const ProfiledCallScope none({});
    EXPECT_EQ(*Ask("profiled"), "0--1");
  }
  Profiler::Process().Stop();
  for (const char* text : {"", "-", "7", "7-", "-7", "7--1", "x-1", "99999999999999999999-1", "7-21-3"}) {
    EXPECT_EQ(ParseProfiledCall(text).id, 0u) << text;
  }
}

TEST_P(GrpcTest, AMessageOfTheLargestSizeGoesBothWays) {
  std::string bytes(kMaxMessageBytes, '\0');
  for (size_t i = 0; i < bytes.size(); i += 997) bytes[i] = static_cast<char>(i / 997);
  const auto reply = Ask(bytes, Method::kPush);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(*reply == bytes);
}

TEST_P(GrpcTest, PiecesArriveInOrderAndTheirOwnersAreLetGo) {
  auto owner = std::make_shared<const std::string>(5000, 'a');
  std::string borrowed(300, 'b');
  const auto reply =
      Start(Method::kPush,
            {{owner->data(), owner->size(), owner}, Slice::Borrow(borrowed.data(), borrowed.size()), Slice::Own("end")})
          .get();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, *owner + borrowed + "end");
  transport_ = nullptr;
  server_ = nullptr;
  EXPECT_EQ(owner.use_count(), 1);
}

TEST_P(GrpcTest, CodesAndTextsOfTheServerArriveAsTheyAre) {
  for (const absl::StatusCode code :
       {absl::StatusCode::kInvalidArgument, absl::StatusCode::kFailedPrecondition, absl::StatusCode::kAborted,
        absl::StatusCode::kDataLoss, absl::StatusCode::kAlreadyExists, absl::StatusCode::kNotFound}) {
    const auto reply = Ask("fail:" + std::to_string(static_cast<int>(code)) + ":job.textproto:3:5: größer als 0");
    EXPECT_EQ(reply.status(), absl::Status(code, "job.textproto:3:5: größer als 0"));
  }
}

TEST_P(GrpcTest, ControlCharactersOfATextArriveAsNumbers) {
  for (const Method method : {Method::kControl, Method::kPull}) {
    const auto reply = Ask("fail:5:no\n\x1b[2J", method);
    EXPECT_EQ(reply.status(), absl::NotFoundError("no\\x0a\\x1b[2J"));
  }
}

TEST_P(GrpcTest, ALongTextIsCutAndStillArrives) {
  for (const Method method : {Method::kControl, Method::kPull}) {
    if (method == Method::kPull && GetParam() == Network::kSharedMemory) continue;  // of this machine's processes
    const auto reply = Ask("long", method);
    EXPECT_TRUE(absl::IsFailedPrecondition(reply.status())) << reply.status();
    EXPECT_LT(reply.status().message().size(), 2048u);
    EXPECT_THAT(std::string(reply.status().message()), EndsWith("xxx ..."));
  }
}

TEST_P(GrpcTest, AnAnswerThatDoesNotComeIsDeadlineExceededAndALateOneIsDropped) {
  const auto before = std::chrono::steady_clock::now();
  const auto reply = Start(Method::kPull, {Slice::Own("hold")}, absl::Milliseconds(200)).get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(reply.status())) << reply.status();
  EXPECT_THAT(std::string(reply.status().message()), StartsWith("server 0 at " + server_->endpoint()));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
  core_.WaitForHeld(1)[0](Slices{Slice::Own("too late")});
  EXPECT_EQ(*Ask("still here"), "Control still here");
}

// Asks on the calling thread alone. The callbacks of this process's transports would wait for the threads that the
// handlers occupy.
absl::StatusOr<std::string> AskByOneself(const std::string& endpoint, Method method, absl::Duration timeout) {
  grpc::GenericStub stub(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(timeout));
  grpc::CompletionQueue queue;
  const grpc::ByteBuffer request = ToByteBuffer({Slice::Own("echo")});
  const auto call =
      stub.PrepareUnaryCall(&context, "/weir.v1.ParameterServer/" + std::string(MethodName(method)), request, &queue);
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->StartCall();
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  if (!status.ok()) return FromGrpcStatus(status);
  return Flatten(FromByteBuffer(reply));
}

// An update, a checkpoint or a disk that takes longer than a lease must not keep the server from reading heart-beats.
TEST_P(GrpcTest, JoinsAndHeartbeatsAreAnsweredWhileHandlersKeepAllThreads) {
  EXPECT_TRUE(Ask("echo").ok());
  EXPECT_TRUE(Ask("echo", Method::kPush).ok());
  // gRPC has half as many threads as cores for handlers, from 2 to 16, and so have plain sockets.
  const int threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 2, 2, 16);
  const int calls = IsPlain(GetParam()) ? 2 * threads : threads;
  std::vector<std::future<absl::StatusOr<std::string>>> long_calls;
  for (int i = 0; i < calls; ++i) {
    long_calls.push_back(Start(i % 2 == 0 ? Method::kControl : Method::kPush, {Slice::Own("block")}));
    core_.WaitForBlocked(i + 1);
  }
  const absl::Duration lease = absl::Seconds(5);
  // Each heart-beat has a connection of its own, like those of trainers.
  for (int beat = 0; beat < 10 && !HasFailure(); ++beat) {
    EXPECT_EQ(AskByOneself(server_->endpoint(), Method::kHeartbeat, lease).value_or("nothing"), "Heartbeat echo");
  }
  EXPECT_EQ(AskByOneself(server_->endpoint(), Method::kJoin, lease).value_or("nothing"), "Join echo");
  core_.LetGo();
  for (auto& call : long_calls) EXPECT_EQ(*call.get(), "let go");
}

TEST_P(GrpcTest, ShutdownEndsCallsThatTheCoreStillHolds) {
  auto held = Start(Method::kPull, {Slice::Own("hold")});
  const std::vector<ReplyCallback> replies = core_.WaitForHeld(1);
  server_->Shutdown(absl::Milliseconds(50));
  EXPECT_TRUE(absl::IsUnavailable(held.get().status()));
  server_ = nullptr;
  replies[0](Slices{Slice::Own("nobody listens")});
}

TEST_P(GrpcTest, AHeldCallThatIsAnsweredWithinTheGraceIsNotCut) {
  auto held = Start(Method::kPull, {Slice::Own("hold")});
  const std::vector<ReplyCallback> replies = core_.WaitForHeld(1);
  auto shutdown = std::async(std::launch::async, [this] { server_->Shutdown(absl::Seconds(30)); });
  replies[0](Slices{Slice::Own("in time")});
  EXPECT_EQ(*held.get(), "in time");
  shutdown.get();
}

TEST_P(GrpcTest, TheTransportsEndEndsItsCalls) {
  auto held = Start(Method::kPull, {Slice::Own("hold")});
  core_.WaitForHeld(1);
  transport_ = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(held.get().status()));
}

TEST_P(GrpcTest, NobodyListeningIsUnavailableSoonAndAServerThatComesBackIsFound) {
  const std::string endpoint = server_->endpoint();
  EXPECT_TRUE(Ask("echo").ok());
  server_ = nullptr;
  const auto before = std::chrono::steady_clock::now();
  EXPECT_TRUE(absl::IsUnavailable(Ask("echo").status()));
  const auto gone = Ask("echo");
  EXPECT_TRUE(absl::IsUnavailable(gone.status())) << gone.status();
  EXPECT_THAT(std::string(gone.status().message()), StartsWith("server 0 at " + endpoint + ": "));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));

  auto again = GrpcServer::Start({.endpoint = endpoint, .core = &core_});
  ASSERT_TRUE(again.ok()) << again.status();
  absl::StatusOr<std::string> reply;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  do {
    reply = Ask("echo");
  } while (!reply.ok() && std::chrono::steady_clock::now() < patience);
  EXPECT_TRUE(reply.ok()) << reply.status();
}

TEST_P(GrpcTest, APortInUseIsRefusedWithItsReason) {
  const auto second = GrpcServer::Start({.endpoint = server_->endpoint(), .core = &core_});
  EXPECT_EQ(second.status(),
            absl::FailedPreconditionError("cannot listen on " + server_->endpoint() + ": Address already in use"));
}

TEST_P(GrpcTest, AnAddressOfAnotherMachineIsRefusedWithItsReason) {
  const auto server = GrpcServer::Start({.endpoint = "192.0.2.1:0", .core = &core_});
  EXPECT_TRUE(absl::IsFailedPrecondition(server.status())) << server.status();
  EXPECT_THAT(std::string(server.status().message()),
              HasSubstr("cannot listen on 192.0.2.1:0: Cannot assign requested"));
}

class UnixSocketTest : public NetworkTest, public testing::WithParamInterface<Network> {
 protected:
  void SetUp() override {
    ::unsetenv("TMPDIR");
    // Before a Join has told of the socket.
    Open(GetParam());
  }
  // Expects connections of tensors through the socket of the way; there is none through that of the other.
  void ExpectTensorsThrough(int connections) {
    const std::string grpc = server_->unix_socket(), plain = TensorPathOf(grpc);
    ExpectAccepted(grpc, IsPlain(GetParam()) ? 0 : connections);
    ExpectAccepted(plain, IsPlain(GetParam()) ? connections : 0);
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, UnixSocketTest, testing::Values(Network::kGrpcUnixSocket, Network::kPlainUnixSocket),
                         testing::PrintToStringParamName());

TEST_P(UnixSocketTest, TensorsGoThroughTheSocketOnceAJoinHasToldOfIt) {
  std::vector<std::string> paths = {server_->unix_socket()};
  if (IsPlain(GetParam())) paths.push_back(TensorPathOf(paths[0]));
  ASSERT_NE(paths[0], "");
  for (const std::string& path : paths) {
    struct stat found = {};
    ASSERT_EQ(::stat(path.c_str(), &found), 0) << path;
    EXPECT_EQ(found.st_mode & 0777, 0600u) << path;
  }
  EXPECT_TRUE(Ask("echo", Method::kPush).ok());
  ExpectTensorsThrough(0);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  ExpectTensorsThrough(1);
  server_ = nullptr;
  for (const std::string& path : paths) EXPECT_FALSE(std::filesystem::exists(path)) << path;
}

// Connections of gRPC: the client gives its end room with the first answer, the server its own with one of the looks
// after a Join.
using GrpcUnixSocketTest = UnixSocketTest;
INSTANTIATE_TEST_SUITE_P(Networks, GrpcUnixSocketTest, testing::Values(Network::kGrpcUnixSocket),
                         testing::PrintToStringParamName());

TEST_P(GrpcUnixSocketTest, BothEndsOfTheSocketGetSendRoom) {
  const auto send_room = [](int descriptor) {
    int bytes = 0;
    socklen_t size = sizeof(bytes);
    EXPECT_EQ(::getsockopt(descriptor, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
    return bytes;
  };
  const int other = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int by_default = send_room(other);
  ::close(other);
  const auto ends = [](const std::string& path) {
    std::vector<int> descriptors;
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
      for (const auto& name : {::getsockname, ::getpeername}) {
        sockaddr_storage address = {}, peer = {};
        socklen_t size = sizeof(address), peer_size = sizeof(peer);
        if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &peer_size) != 0) continue;
        if (name(descriptor, reinterpret_cast<sockaddr*>(&address), &size) != 0) continue;
        if (AddressText(address) == path) descriptors.push_back(descriptor);
      }
    }
    return descriptors;
  };
  const std::string path = server_->unix_socket();
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_TRUE(Ask("echo", Method::kPush).ok());
  ASSERT_EQ(ends(path).size(), 2u);
  const absl::Time patience = absl::Now() + absl::Seconds(20);
  for (const int end : ends(path)) {
    while (send_room(end) <= by_default && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(20));
    EXPECT_GT(send_room(end), by_default);
  }
  // Others are left alone.
  const int later = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(send_room(later), by_default);
  ::close(later);
  EXPECT_EQ(GiveSendRoom(path), 0) << "they have it";
}

TEST_P(UnixSocketTest, WithoutTheSocketTensorsGoOverTcpAgain) {
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_TRUE(Ask("echo", Method::kPush).ok());
  // Another process at the same port, which has announced no socket.
  const std::string endpoint = server_->endpoint();
  server_ = nullptr;
  auto again = GrpcServer::Start(
      {.endpoint = endpoint, .core = &core_, .unix_sockets = false, .plain_sockets = IsPlain(GetParam())});
  ASSERT_TRUE(again.ok()) << again.status();
  const auto reply = AskPatiently("echo", Method::kPush);
  EXPECT_TRUE(reply.ok()) << reply.status();
}

TEST_P(UnixSocketTest, WhoWantsTcpGetsTcp) {
  transport_ = *MakeGrpcTransport(
      {.endpoints = {server_->endpoint()}, .unix_sockets = false, .plain_sockets = IsPlain(GetParam())});
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_TRUE(Ask("echo", Method::kPush).ok());
  ExpectTensorsThrough(0);
}

class SharedMemoryTest : public NetworkTest {
 protected:
  void SetUp() override {
    ::unsetenv("TMPDIR");
    Connect(Network::kSharedMemory);
  }
};

TEST_F(SharedMemoryTest, TensorsGoThroughMemoryAndNotThroughTheSocket) {
  const std::string path = server_->unix_socket();
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(*Ask("echo", Method::kPull), "Pull echo");
  ExpectAccepted(path, 0);
  ExpectAccepted(TensorPathOf(path), 0);
  ExpectAccepted(SharedPathOf(path), 1);
  // A second Join does not make a second connection.
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  ExpectAccepted(SharedPathOf(path), 1);
  transport_ = nullptr;
  server_ = nullptr;
  EXPECT_FALSE(std::filesystem::exists(SharedPathOf(path)));
}

// A message of the largest size fills the memory, so that a second one goes through the socket, and so do answers.
// Bytes that this process has sent over TCP to a port of this machine.
int64_t SentTo(int port) {
  int64_t sent = 0;
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    sockaddr_in6 peer = {};  // as wide as an IPv4 one, whose port stands in the same place
    socklen_t size = sizeof(peer);
    tcp_info info = {};
    socklen_t info_size = sizeof(info);
    if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&peer), &size) != 0 ||
        (peer.sin6_family != AF_INET && peer.sin6_family != AF_INET6) || ntohs(peer.sin6_port) != port ||
        ::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &info_size) != 0) {
      continue;
    }
    sent += static_cast<int64_t>(info.tcpi_bytes_acked);
  }
  return sent;
}

// A step waits for each round of norms.
TEST_F(SharedMemoryTest, NormsGoThroughMemoryToo) {
  int port = 0;
  ASSERT_TRUE(absl::SimpleAtoi(server_->endpoint().substr(server_->endpoint().rfind(':') + 1), &port));
  const std::string text = "echo" + std::string(1 << 20, ' ');
  const int64_t before = SentTo(port);
  EXPECT_GT(before, 0) << "the Join";
  EXPECT_TRUE(Ask(text, Method::kNorms).ok());
  EXPECT_LT(SentTo(port) - before, 1 << 16);
  EXPECT_TRUE(Ask(text, Method::kExchange).ok());
  EXPECT_GT(SentTo(port) - before, 1 << 19) << "other calls go over TCP";
}

TEST_F(SharedMemoryTest, WhatFindsNoRoomGoesThroughTheSocket) {
  auto whole = std::make_shared<const std::string>(kMaxMessageBytes, 'w');
  const auto start = [&] { return Start(Method::kPush, {{whole->data(), whole->size(), whole}}); };
  std::vector<std::future<absl::StatusOr<std::string>>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(start());
  for (auto& call : calls) {
    const auto reply = call.get();
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(*reply == *whole);
  }
  ExpectAccepted(TensorPathOf(server_->unix_socket()), 1);
}

TEST_F(SharedMemoryTest, AnErrorOfTheServerIsNoReasonToLeave) {
  EXPECT_TRUE(absl::IsUnavailable(Ask("fail:14:not yet", Method::kPush).status()));
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  ExpectAccepted(TensorPathOf(server_->unix_socket()), 0);
}

TEST_F(SharedMemoryTest, EitherSideCanSwitchItOff) {
  transport_ = nullptr;
  server_ = *GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_});
  const std::string path = SharedPathOf(server_->unix_socket());
  transport_ = *MakeGrpcTransport({.endpoints = {server_->endpoint()}, .network = ClusterOf(/*shared_memory=*/false)});
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  ExpectAccepted(path, 0);
  ExpectAccepted(TensorPathOf(server_->unix_socket()), 1);
  server_ =
      *GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_, .network = ClusterOf(/*shared_memory=*/false)});
  EXPECT_FALSE(std::filesystem::exists(SharedPathOf(server_->unix_socket())));
  transport_ = *MakeGrpcTransport({.endpoints = {server_->endpoint()}});
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
}

TEST_F(SharedMemoryTest, AServerThatComesBackIsMetAgainAtTheNextJoin) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
    ASSERT_NO_FATAL_FAILURE(RestartServer());
    EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
    ExpectAccepted(SharedPathOf(server_->unix_socket()), 1);
  }
}

// Binds a socket that may be left behind.
int BindAt(const std::string& path) {
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, path.c_str());
  EXPECT_EQ(::bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(fd, 1), 0);
  return fd;
}

// The directory of a test has too long a name for a socket.
std::string ShortDirectory() {
  char name[] = "/tmp/weir-test-XXXXXX";
  EXPECT_NE(::mkdtemp(name), nullptr);
  return name;
}

TEST(UnixSocketPathTest, SocketsOfProcessesThatAreGoneAreRemovedAndOthersStay) {
  const std::string parent = ShortDirectory();
  const auto path = NewUnixSocketPath(parent);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::string directory = std::filesystem::path(*path).parent_path();
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms::owner_all);
  // Process ids end at 2^22, so these belong to no process.
  const std::string gone = directory + "/99999999-0.sock", serving = directory + "/99999998-0.sock",
                    other = directory + "/file";
  ::close(BindAt(gone));
  const int fd = BindAt(serving);
  std::ofstream(other) << "x";
  EXPECT_FALSE(ListensAt(gone));
  EXPECT_TRUE(ListensAt(serving));
  EXPECT_FALSE(ListensAt(other));
  ASSERT_TRUE(NewUnixSocketPath(parent).ok());
  EXPECT_FALSE(std::filesystem::exists(gone));
  EXPECT_TRUE(std::filesystem::exists(serving));
  EXPECT_TRUE(std::filesystem::exists(other));
  ::close(fd);
}

// Everybody may make it in /tmp.
TEST(UnixSocketPathTest, ADirectoryOfOthersIsLeftForOneThatNobodyCanForesee) {
  const std::string parent = ShortDirectory();
  const std::string taken = parent + "/weir-" + std::to_string(::geteuid());
  std::filesystem::create_directories(taken);
  std::filesystem::permissions(taken, std::filesystem::perms::all);
  const auto path = NewUnixSocketPath(parent);
  ASSERT_TRUE(path.ok()) << path.status();
  const std::filesystem::path directory = std::filesystem::path(*path).parent_path();
  EXPECT_EQ(directory.string().substr(0, taken.size() + 1), taken + "-");
  EXPECT_EQ(std::filesystem::status(directory).permissions(), std::filesystem::perms::owner_all);
  EXPECT_NE(NewUnixSocketPath(parent)->substr(0, directory.string().size()), directory.string());
  EXPECT_TRUE(std::filesystem::is_empty(taken));
}

TEST(UnixSocketPathTest, ANameTooLongOrAParentThatIsNotThereIsRefused) {
  EXPECT_THAT(std::string(NewUnixSocketPath("/tmp/" + std::string(100, 'x')).status().message()),
              HasSubstr("at most 107 bytes"));
  EXPECT_THAT(std::string(NewUnixSocketPath("/nowhere").status().message()), HasSubstr("cannot make /nowhere/weir-"));
}

TEST(GrpcTransportTest, NoEndpointsAreRefused) { EXPECT_TRUE(absl::IsInvalidArgument(MakeGrpcTransport({}).status())); }

}  // namespace
}  // namespace weir
