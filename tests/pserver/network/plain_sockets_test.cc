// Transport and server over plain sockets: when tensors take them, and what happens when those break.

#include <future>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/sockets/peer_address.h"
#include "pserver/sockets/unix_socket.h"
#include "tests/pserver/network/gateway.h"
#include "tests/pserver/network/network.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

using Reply = absl::StatusOr<std::string>;

// A server behind a gateway.
class GatewayTest : public NetworkTest {
 protected:
  void Open(Gateway::Plain plain, bool server_takes_them = true, bool client_wants_them = true) {
    server_ = *GrpcServer::Start(
        {.endpoint = "127.0.0.1:0",
         .core = &core_,
         .deliver = [this](const Slices& message,
                           ReplyCallback reply) { core_.Handle(Method::kDeliver, message, std::move(reply)); },
         .plain_sockets = server_takes_them});
    gateway_ = std::make_unique<Gateway>(server_->port(), plain);
    transport_ = *MakeGrpcTransport(
        {.endpoints = {gateway_->endpoint()}, .unix_sockets = false, .plain_sockets = client_wants_them});
  }
  ~GatewayTest() override { transport_ = nullptr; }

  std::unique_ptr<Gateway> gateway_;
};

TEST_F(GatewayTest, TensorsTakeAPlainSocketAfterAJoin) {
  Open(Gateway::Plain::kPasses);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  for (const Method method : {Method::kPush, Method::kPull, Method::kNorms, Method::kDeliver}) {
    EXPECT_EQ(*Ask("echo", method), std::string(MethodName(method)) + " echo");
  }
  EXPECT_EQ(gateway_->plain(), 1);
  EXPECT_EQ(gateway_->others(), 1) << "of Join";
}

TEST_F(GatewayTest, AServerWithoutPlainSocketsGetsStreamsOfGrpc) {
  Open(Gateway::Plain::kPasses, /*server_takes_them=*/false);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(gateway_->plain(), 0);
  EXPECT_EQ(gateway_->others(), 2);
}

TEST_F(GatewayTest, AClientWithoutPlainSocketsMakesStreamsOfGrpc) {
  Open(Gateway::Plain::kPasses, /*server_takes_them=*/true, /*client_wants_them=*/false);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(gateway_->plain(), 0);
  EXPECT_EQ(gateway_->others(), 2);
}

// As trainers do among each other.
TEST_F(GatewayTest, WithoutAJoinTensorsBeginOverGrpcAndGoOnThroughAPlainSocket) {
  Open(Gateway::Plain::kPasses);
  std::future<Reply> held = Start(Method::kDeliver, {Slice::Own("hold")});
  const ReplyCallback answer = core_.WaitForHeld(1)[0];
  EXPECT_EQ(gateway_->plain(), 0);
  EXPECT_EQ(*Ask("echo", Method::kDeliver), "Deliver echo");
  EXPECT_EQ(*Ask("echo", Method::kDeliver), "Deliver echo");
  EXPECT_EQ(gateway_->plain(), 1);
  EXPECT_EQ(gateway_->others(), 1);
  answer(Slices{Slice::Own("through the stream of gRPC")});
  EXPECT_EQ(*held.get(), "through the stream of gRPC");
}

// The stream of gRPC is closed by whoever finds that there are plain sockets, while others are about to use it.
TEST_F(GatewayTest, NoCallIsLostWhenThePlainSocketIsTaken) {
  Open(Gateway::Plain::kPasses);
  for (int round = 0; round < 30; ++round) {
    std::vector<std::future<int>> threads;
    for (int t = 0; t < 4; ++t) {
      threads.push_back(std::async(std::launch::async, [this] {
        int lost = 0;
        for (int i = 0; i < 20; ++i) lost += Ask("echo", Method::kDeliver).ok() ? 0 : 1;
        return lost;
      }));
    }
    for (auto& thread : threads) EXPECT_EQ(thread.get(), 0);
    transport_ = *MakeGrpcTransport({.endpoints = {server_->endpoint()}});
  }
}

TEST_F(GatewayTest, WherePlainSocketsAreClosedTensorsGoOverGrpc) {
  Open(Gateway::Plain::kIsClosed);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*AskPatiently("echo", Method::kPush), "Push echo");
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(gateway_->plain(), 1) << "they are not tried again and again";
  // A Join is a new beginning.
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*AskPatiently("echo", Method::kPush), "Push echo");
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(gateway_->plain(), 2);
}

TEST_F(GatewayTest, WherePlainSocketsGetNoAnswerOneDeadlineIsMissed) {
  Open(Gateway::Plain::kIsKeptSilent);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  const Reply first = Start(Method::kPush, {Slice::Own("echo")}, absl::Milliseconds(200)).get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(first.status())) << first.status();
  for (int i = 0; i < 20; ++i) EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  EXPECT_EQ(gateway_->plain(), 1);
}

TEST_F(GatewayTest, APlainSocketThatIsCutEndsItsCallsAndTheNextOnesGetAnother) {
  Open(Gateway::Plain::kPasses);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPull), "Pull echo") << "the server has greeted";
  for (int cuts = 1; cuts <= 3; ++cuts) {
    std::future<Reply> held = Start(Method::kPull, {Slice::Own("hold")});
    core_.WaitForHeld(static_cast<size_t>(cuts));
    gateway_->CutPlain();
    const Reply reply = held.get();
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr("server 0 at " + gateway_->endpoint()));
    EXPECT_EQ(*Ask("echo", Method::kPull), "Pull echo");
    EXPECT_EQ(gateway_->plain(), cuts + 1);
  }
  EXPECT_EQ(gateway_->others(), 1) << "all of them through plain sockets";
}

TEST_F(GatewayTest, CallsOfASilentPlainSocketEndWithTheTransport) {
  Open(Gateway::Plain::kIsKeptSilent);
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  // More than the sockets on the way take.
  auto large = std::make_shared<const std::string>(kMaxMessageBytes, 'x');
  std::vector<std::future<Reply>> calls;
  for (int i = 0; i < 4; ++i) calls.push_back(Start(Method::kPush, {{large->data(), large->size(), large}}));
  transport_ = nullptr;
  for (std::future<Reply>& call : calls) {
    const Reply reply = call.get();
    EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
  }
  EXPECT_EQ(large.use_count(), 1) << "nothing holds the memory of requests any more";
}

class PlainSocketsTest : public NetworkTest, public testing::WithParamInterface<Network> {
 protected:
  void SetUp() override {
    ::unsetenv("TMPDIR");
    Connect(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Networks, PlainSocketsTest, testing::Values(Network::kPlainTcp, Network::kPlainUnixSocket),
                         testing::PrintToStringParamName());

TEST_P(PlainSocketsTest, AServerThatComesBackAtTheSamePortIsMetAgain) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
    ASSERT_NO_FATAL_FAILURE(RestartServer());
    EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
    ExpectAccepted(TensorPathOf(server_->unix_socket()), GetParam() == Network::kPlainUnixSocket ? 1 : 0);
    ExpectAccepted(server_->unix_socket(), 0);
  }
}

TEST_P(PlainSocketsTest, AServerThatComesBackWithoutThemIsAskedOverGrpc) {
  EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
  const std::string endpoint = server_->endpoint();
  server_ = nullptr;
  auto again = GrpcServer::Start({.endpoint = endpoint, .core = &core_, .plain_sockets = false});
  ASSERT_TRUE(again.ok()) << again.status();
  server_ = *std::move(again);
  EXPECT_EQ(*AskPatiently("echo", Method::kPush), "Push echo");
  for (int i = 0; i < 10; ++i) EXPECT_EQ(*Ask("echo", Method::kPush), "Push echo");
}

TEST_P(PlainSocketsTest, ShutdownEndsEveryCall) {
  std::vector<std::future<Reply>> held;
  for (const Method method : {Method::kPush, Method::kPull, Method::kNorms}) {
    for (int i = 0; i < 10; ++i) held.push_back(Start(method, {Slice::Own("hold")}));
  }
  const std::vector<ReplyCallback> replies = core_.WaitForHeld(held.size());
  for (size_t i = 0; i < replies.size(); i += 2) replies[i](Slices{Slice::Own("in time")});
  server_->Shutdown(absl::Milliseconds(50));
  size_t answered = 0;
  for (std::future<Reply>& call : held) {
    const Reply reply = call.get();
    if (reply.ok()) {
      EXPECT_EQ(*reply, "in time");
      ++answered;
    } else {
      EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
      EXPECT_THAT(std::string(reply.status().message()), HasSubstr("the server is shutting down"));
    }
  }
  EXPECT_EQ(answered, held.size() / 2);
  server_ = nullptr;
  for (size_t i = 1; i < replies.size(); i += 2) replies[i](Slices{Slice::Own("nobody listens")});
}

TEST_P(PlainSocketsTest, CallsInFlightEndWithTheTransport) {
  std::vector<std::future<Reply>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(Start(Method::kPull, {Slice::Own("hold")}));
  core_.WaitForHeld(calls.size());
  const std::string large(4 << 20, 'x');
  for (int i = 0; i < 8; ++i) calls.push_back(Start(Method::kPush, {Slice::Own(large)}));
  transport_ = nullptr;
  for (std::future<Reply>& call : calls) {
    const Reply reply = call.get();
    if (reply.ok()) {
      EXPECT_TRUE(*reply == large);
    } else {
      EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
    }
  }
}

using PlainUnixSocketTest = PlainSocketsTest;
INSTANTIATE_TEST_SUITE_P(Networks, PlainUnixSocketTest, testing::Values(Network::kPlainUnixSocket),
                         testing::PrintToStringParamName());

TEST_P(PlainUnixSocketTest, WhenTheSocketIsCutTensorsGoOverTcp) {
  const std::string path = TensorPathOf(server_->unix_socket());
  std::future<Reply> held = Start(Method::kPull, {Slice::Own("hold")});
  core_.WaitForHeld(1);
  ExpectAccepted(path, 1);
  ShutDownConnectionsTo({path});
  const Reply reply = held.get();
  EXPECT_TRUE(absl::IsUnavailable(reply.status())) << reply.status();
  EXPECT_EQ(*Ask("echo", Method::kPull), "Pull echo");
  ExpectAccepted(path, 0);
  // A Join brings it back.
  EXPECT_TRUE(Ask("echo", Method::kJoin).ok());
  EXPECT_EQ(*Ask("echo", Method::kPull), "Pull echo");
  ExpectAccepted(path, 1);
}

}  // namespace
}  // namespace weir
