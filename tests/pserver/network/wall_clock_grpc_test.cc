// Connections while the wall clock is set.

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/network/grpc_server.h"
#include "pserver/network/grpc_transport.h"
#include "tests/testing/handling_core.h"
#include "tests/testing/wall_clock.h"

namespace weir {
namespace {

class AnsweringCore : public HandlingCore {
 public:
  void Handle(Method, const Slices&, ReplyCallback reply) override { reply(Slices{Slice::Own("here")}); }
};

class WallClockGrpcTest : public testing::Test {
 protected:
  void TearDown() override { SetWallClock(0); }

  absl::Status Ask(Method method, absl::Duration timeout = absl::Seconds(5)) {
    std::promise<absl::Status> answered;
    transport_->Call(0, method, {Slice::Own("there?")}, timeout,
                     [&answered](absl::StatusOr<Slices> reply) { answered.set_value(reply.status()); });
    return answered.get_future().get();
  }
  // Asks until the server answers, for 20 s.
  absl::Status AskUntilAnswered(Method method) {
    const auto patience = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    absl::Status status = Ask(method);
    while (absl::IsUnavailable(status) && std::chrono::steady_clock::now() < patience) status = Ask(method);
    return status;
  }

  AnsweringCore core_;
  std::unique_ptr<Transport> transport_;
};

TEST_F(WallClockGrpcTest, AServerThatComesLaterIsFoundAlthoughTheClockIsSetBack) {
  auto server = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_, .unix_sockets = false});
  ASSERT_TRUE(server.ok()) << server.status();
  const std::string endpoint = (*server)->endpoint();
  *server = nullptr;
  transport_ = *MakeGrpcTransport({.endpoints = {endpoint}, .unix_sockets = false});
  // Both connections have failed and pause when the clock is set.
  EXPECT_TRUE(absl::IsUnavailable(Ask(Method::kPull)));
  EXPECT_TRUE(absl::IsUnavailable(Ask(Method::kJoin)));
  SetWallClock(-3600);
  server = GrpcServer::Start({.endpoint = endpoint, .core = &core_, .unix_sockets = false});
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_EQ(AskUntilAnswered(Method::kJoin), absl::OkStatus());
  EXPECT_EQ(AskUntilAnswered(Method::kPull), absl::OkStatus());
}

TEST_F(WallClockGrpcTest, CallsEndAtTheirDeadlinesAndNotBefore) {
  auto server = GrpcServer::Start({.endpoint = "127.0.0.1:0", .core = &core_, .unix_sockets = false});
  ASSERT_TRUE(server.ok()) << server.status();
  transport_ = *MakeGrpcTransport({.endpoints = {(*server)->endpoint()}, .unix_sockets = false});
  for (const int64_t shift : {3600, 0, -3600, 0}) {
    EXPECT_EQ(Ask(Method::kHeartbeat), absl::OkStatus());
    SetWallClock(shift);
    EXPECT_EQ(Ask(Method::kHeartbeat), absl::OkStatus());
    EXPECT_EQ(Ask(Method::kPush), absl::OkStatus());
  }
  (*server)->Shutdown(absl::Seconds(2));
}

}  // namespace
}  // namespace weir

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  weir::TakeWallClock(argv);
  return RUN_ALL_TESTS();
}
