// Requests that make no sense, and bytes that are no request: refused by name, and nothing is left of them.
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

class ServerBytesTest : public CoreByHand {};

TEST_F(ServerBytesTest, PushesThatMakeNoSenseAreNamedAndLeaveNoTrace) {
  Start({.servers = 2});
  JoinAll();
  const auto dense = [&] {
    return MakePush({.step = 0, .items = {{.name = "w.block0", .values = std::vector<float>(320, 1)}}});
  };
  const auto rows = [&] {
    return MakePush(
        {.step = 0, .items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4}}});
  };
  const auto wrong = [&](std::pair<v1::PushRequest, std::string> push, const std::function<void(v1::PushItem*)>& edit) {
    edit(push.first.mutable_items(0));
    return PushStatus(push.first, push.second);
  };
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_name("nothing"); }), kInvalidArgument, "no such block");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_lanes(4); }), kInvalidArgument, "aligned runs");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_lane(-8); }), kInvalidArgument, "aligned runs");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(1); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(INT64_MAX); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_begin(-1); }), kInvalidArgument, "of a block of 320");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_count(-1); }), kInvalidArgument, "count is -1");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(64); }), kInvalidArgument, "do not fit");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(4); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(-64); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(dense(), [](auto* i) { i->set_offset(1 << 30); }), kInvalidArgument, "multiple of 64");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_width(3); }), kInvalidArgument, "it has rows of 4");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_count(3); }), kInvalidArgument, "");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_count(INT64_MAX / 2); }), kInvalidArgument, "do not fit");
  EXPECT_STATUS(wrong(rows(), [](auto* i) { i->set_name("w.block0"); }), kInvalidArgument, "takes a dense gradient");
  const auto ids = [&](std::vector<int64_t> ids) {
    return PushStep(0, 0, {{.name = "t", .values = std::vector<float>(ids.size() * 4), .ids = ids, .width = 4}}, 1);
  };
  int64_t here = 0, there = 0;
  while (ShardServer(LogicalShard(here, 64), 64, 2) != 0) ++here;
  while (ShardServer(LogicalShard(there, 64), 64, 2) != 1) ++there;
  EXPECT_STATUS(ids({here, here}), kInvalidArgument, "stands there twice");
  EXPECT_STATUS(ids({here, there}), kInvalidArgument, "another server");
  EXPECT_STATUS(PushStep(0, 0, {{.name = "e", .values = {1, 1, 1}, .ids = {30}, .width = 3}}, 1), kInvalidArgument,
                "row 30 of a block with 30 rows");
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_TRUE(core_->JobStatus().ok());

  auto [request, payload] = dense();
  request.set_checksum(1);
  Slices slices = {Slice::Own(payload)};
  EXPECT_STATUS(PushReplyOf(Call(Method::kPush, Flatten(EncodeFrame(request.SerializeAsString(), slices)))).status(),
                kDataLoss, "checksum");
  // And the same step, sent rightly, is taken.
  EXPECT_TRUE(PushStep(0, 0, {}, 1).ok());
}

TEST_F(ServerBytesTest, PiecesThatDoNotCoverABlockFailTheStepWithTheBlockNamed) {
  Start({});
  JoinAll();
  (void)PushStep(0, 0, {{.values = {1, 1, 1}}}, 1);
  EXPECT_STATUS(core_->JobStatus(), kInvalidArgument, "block b");
}

TEST_F(ServerBytesTest, NoBytesCrashTheServer) {
  Start({});
  JoinAll();
  std::mt19937_64 random(3);
  std::vector<std::pair<Method, std::string>> seeds;
  const auto [push, payload] =
      MakePush({.step = 0,
                .items = {{.name = "t", .values = std::vector<float>(8, 1), .ids = {1, 2}, .width = 4},
                          {.values = {1, 1, 1, 1, 1}},
                          {.name = "e", .values = {1, 1, 1}, .ids = {3}, .width = 3}}});
  seeds.emplace_back(Method::kPush, Seal(push, payload));
  seeds.emplace_back(Method::kPull, PullBytes(0, 0, 0, "t", 2, {5, 6}, 4));
  seeds.emplace_back(Method::kPull, PullBytes(0, 0, 0, "b", 5));
  seeds.emplace_back(Method::kJoin, JoinMessage(0, "trainer:0").SerializeAsString());
  v1::HeartbeatRequest beat;
  *beat.mutable_caller() = CallerOf(0);
  beat.set_waiting_for("x");
  seeds.emplace_back(Method::kHeartbeat, beat.SerializeAsString());
  v1::ExchangeRequest exchange;
  *exchange.mutable_caller() = CallerOf(0);
  exchange.set_key("k");
  exchange.set_contribution("v");
  seeds.emplace_back(Method::kExchange, exchange.SerializeAsString());
  v1::ControlRequest control;
  *control.mutable_caller() = CallerOf(0);
  control.mutable_load()->set_name("../x");
  seeds.emplace_back(Method::kControl, control.SerializeAsString());
  for (int round = 0; round < 30000; ++round) {
    auto [method, bytes] = seeds[random() % seeds.size()];
    for (uint64_t edits = random() % 4; edits > 0 && !bytes.empty(); --edits) {
      const size_t at = random() % bytes.size();
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
          break;
        case 2:
          bytes.resize(at);
          break;
        default:
          bytes.insert(at, 1, static_cast<char>(random()));
      }
    }
    // A checksum would keep most edits of a push from being looked at.
    if (method == Method::kPush) {
      const auto frame = DecodeFrame({Slice::Own(bytes)});
      v1::PushRequest request;
      if (frame.ok() && request.ParseFromString(frame->header)) {
        request.set_step(1000000);  // refused late, after everything has been read
        bytes = Seal(request, Flatten(frame->payload));
      }
    }
    (void)Call(random() % 50 == 0 ? static_cast<Method>(random() % 6) : method, bytes);
    if (!core_->JobStatus().ok()) {  // an edited heart-beat may well report a failure
      Start({});
      JoinAll();
    }
  }
}

}  // namespace
}  // namespace weir
