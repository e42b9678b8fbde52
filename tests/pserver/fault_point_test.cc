#include "pserver/fault_point.h"

#include <csignal>
#include <cstdlib>

#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class AnsweringTransport : public Transport {
 public:
  void Call(int, Method, Slices, absl::Duration, ReplyCallback done) override { done(Slices()); }
  std::string Describe(int server) const override { return std::to_string(server); }
  int servers() const override { return 2; }
};

Slices Part(int64_t step, bool last) {
  v1::PushRequest push;
  push.set_step(step);
  if (last) push.set_part_count(1);
  return EncodeFrame(push.SerializeAsString(), {});
}

// Runs trainer `trainer` with WEIR_FAULT_POINT set to `variable`: joins, then pushes a part and a last part of steps 0
// to 2. Never returns.
void Train(const char* variable, int trainer) {
  setenv("WEIR_FAULT_POINT", variable, 1);
  auto transport = WithFaultPoint(std::make_unique<AnsweringTransport>(), trainer);
  if (!transport.ok()) exit(2);
  const auto send = [&](Method method, Slices request, const std::string& what) {
    (*transport)->Call(0, method, std::move(request), absl::Seconds(1), [](absl::StatusOr<Slices>) {});
    fprintf(stderr, "%s;", what.c_str());
  };
  send(Method::kJoin, {}, "joined");
  for (int64_t step = 0; step < 3; ++step) {
    send(Method::kPush, Part(step, false), "part" + std::to_string(step));
    send(Method::kPush, Part(step, true), "last" + std::to_string(step));
  }
  exit(0);
}

TEST(FaultPointTest, TheNamedProcessDiesAtTheNamedMoment) {
  EXPECT_EXIT(Train("kill:trainer.1:connecting", 1), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(Train("kill:trainer.1:first_part:1", 1), testing::KilledBySignal(SIGKILL),
              "last0;W[^;]*this process has reached its fault point");
  EXPECT_EXIT(Train("kill:trainer.1:between_parts:0", 1), testing::KilledBySignal(SIGKILL),
              "joined;W[^;]*this process has reached its fault point");
  EXPECT_EXIT(Train("kill:trainer.1:last_part:2", 1), testing::KilledBySignal(SIGKILL),
              "part2;W[^;]*this process has reached its fault point");
}

TEST(FaultPointTest, EveryOtherProcessGoesOn) {
  EXPECT_EXIT(Train("kill:trainer.1:last_part:2", 0), testing::ExitedWithCode(0), "last2");
  EXPECT_EXIT(Train("kill:server.1:last_part:2", 1), testing::ExitedWithCode(0), "last2");
  EXPECT_EXIT(Train("", 1), testing::ExitedWithCode(0), "last2");
}

TEST(FaultPointTest, AReaderIsOfTheTrainerThatIsNamed) {
  setenv("WEIR_FAULT_POINT", "kill:trainer.1:reader:3", 1);
  const auto other = ReaderFaultPoint(0);
  ASSERT_TRUE(other.ok());
  EXPECT_FALSE(static_cast<bool>(*other));
  auto named = ReaderFaultPoint(1);
  ASSERT_TRUE(named.ok() && static_cast<bool>(*named));
  (*named)(0, 2);
  EXPECT_EXIT((*named)(0, 3), testing::KilledBySignal(SIGKILL), "this process has reached its fault point");
  setenv("WEIR_FAULT_POINT", "kill:trainer.1:last_part:3", 1);
  EXPECT_FALSE(static_cast<bool>(ReaderFaultPoint(1).value()));
}

TEST(FaultPointTest, WhatCannotBeReadIsRefusedWithTheForm) {
  for (const char* text :
       {"kill", "kill:trainer.1", "burn:trainer.1:last_part:2", "kill:worker.1:last_part:2", "kill:trainer:last_part:2",
        "kill:trainer.x:last_part:2", "kill:trainer.1:lunch:2", "kill:trainer.1:last_part",
        "kill:trainer.1:last_part:x", "kill:trainer.1:connecting:2", "kill:server.1:reader:2"}) {
    const auto point = ParseFaultPoint(text);
    EXPECT_TRUE(absl::IsInvalidArgument(point.status())) << text;
    EXPECT_THAT(std::string(point.status().message()), HasSubstr("expected <kill|stop|stall>")) << text;
  }
}

}  // namespace
}  // namespace weir
