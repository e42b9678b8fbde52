// Pushes of one trainer, against two servers that a test plays.
#include "pserver/client/pusher.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "framework/wire/slices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/row_orders.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Four lanes, of which trainer 1 has 2 and 3. Blocks b [2], rows [4, 2], large [65536] and larger [200003] on
// server 0, c [3] on server 1; table t of width 2, table s of width 1 that counts shows and clicks.
v1::Plan MakePlan() {
  v1::Plan plan;
  plan.set_servers(2);
  plan.set_trainers(2);
  plan.set_lanes(4);
  plan.set_sync(true);
  const auto add = [&plan](const std::string& name, int server, int64_t count) {
    v1::PlacedBlock* const block = plan.add_blocks();
    block->set_name(name);
    block->set_server(server);
    block->set_element_count(count);
  };
  add("b", 0, 2);
  add("c", 1, 3);
  add("rows", 0, 8);
  add("large", 0, 65536);
  add("larger", 0, 200'003);
  for (const char* name : {"t", "s"}) {
    v1::PlacedTable* const table = plan.add_tables();
    table->set_name(name);
    table->set_logical_shards(16);
    table->set_shows_and_clicks(*name == 's');
  }
  return plan;
}

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

SelectedRows Rows(std::vector<int64_t> ids, const std::vector<float>& values) {
  SelectedRows rows;
  rows.ids = std::move(ids);
  rows.values = Floats(values);
  rows.merged = rows.present = true;
  return rows;
}

class PusherTest : public PlayedMember {
 protected:
  explicit PusherTest(v1::Plan plan = MakePlan()) : plan_(std::move(plan)) { pusher_.BeginStep(3, /*read_version=*/2); }

  // Lets both servers take so many parts each.
  void TakeParts(int parts) {
    for (int p = 0; p < parts; ++p) {
      for (int s = 0; s < 2; ++s) servers_.AnswerFrame(s, Method::kPush, v1::PushReply(), "");
    }
  }
  std::vector<PlayedFrame<v1::PushRequest>> Parts(int server) {
    return servers_.RequestFrames<v1::PushRequest>(server, Method::kPush);
  }
  absl::Status Finish() {
    RETURN_IF_ERROR(pusher_.FinishSends(/*samples=*/8, v1::APPLY, /*stop_requested=*/false));
    return pusher_.AwaitSends();
  }

  const v1::Plan plan_;
  const BlockPlacement placement_{&plan_};
  BufferPool buffers_;
  ThreadPool pool_{"test", 2};
  RowOrders pulled_{&placement_};
  Pusher pusher_{&placement_, &member_.calls(), &buffers_, &pool_, &pulled_, placement_.plan().async_eager()};
};

TEST_F(PusherTest, ATrainerPushesTheLargestNodesThatItOwns) {
  EXPECT_THAT(pusher_.nodes(), ElementsAre(LaneRange{2, 2}));
}

TEST_F(PusherTest, ADenseGradientIsPushedAsTheSumOfTheLanes) {
  TakeParts(1);
  const Tensor two = Floats({1, 2}), three = Floats({10, 20});
  const StepChannel::LaneTensor lanes[] = {{2, &two}, {3, &three}};
  ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  ASSERT_THAT(Parts(0), SizeIs(1));
  ASSERT_EQ(Parts(0)[0].header.items_size(), 1);
  const v1::PushItem item = Parts(0)[0].header.items(0);
  EXPECT_EQ(item.name(), "b");
  EXPECT_EQ(item.lane(), 2);
  EXPECT_EQ(item.lanes(), 2);
  EXPECT_EQ(item.begin(), 0);
  EXPECT_EQ(item.count(), 2);
  EXPECT_THAT(FloatsAt(Parts(0)[0].payload, static_cast<size_t>(item.offset()), 2), ElementsAre(11, 22));
}

TEST_F(PusherTest, ALaneWithoutAGradientIsSkippedAndNotAddedAsZero) {
  TakeParts(1);
  const Tensor two = Floats({-0.0f, 2}), absent;
  const StepChannel::LaneTensor lanes[] = {{2, &two}, {3, &absent}};
  ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  const std::vector<float> sum = FloatsAt(Parts(0).at(0).payload, 0, 2);
  EXPECT_TRUE(std::signbit(sum.at(0)));  // -0 + 0 is 0
  EXPECT_EQ(sum.at(1), 2);
}

TEST_F(PusherTest, AGradientThatNoLaneHasIsNotPushed) {
  TakeParts(1);
  const Tensor absent;
  const StepChannel::LaneTensor lanes[] = {{2, &absent}, {3, nullptr}};
  ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(Parts(0).at(0).header.items_size(), 0);
}

TEST_F(PusherTest, TheLastPartOfEveryServerEndsTheStep) {
  TakeParts(1);
  pusher_.SetFirstSamples(100);
  ASSERT_TRUE(pusher_.FinishSends(/*samples=*/8, v1::SKIP, /*stop_requested=*/true).ok());
  ASSERT_TRUE(pusher_.AwaitSends().ok());
  for (int s = 0; s < 2; ++s) {
    ASSERT_THAT(Parts(s), SizeIs(1));
    const v1::PushRequest last = Parts(s)[0].header;
    EXPECT_EQ(last.caller().trainer(), 1);
    EXPECT_EQ(last.step(), 3);
    EXPECT_EQ(last.read_version(), 2);
    EXPECT_EQ(last.part(), 0);
    EXPECT_EQ(last.part_count(), 1);
    EXPECT_EQ(last.samples(), 8);
    EXPECT_EQ(last.first_samples(), 100);
    EXPECT_EQ(last.verdict(), v1::SKIP);
    EXPECT_TRUE(last.stop_requested());
  }
  EXPECT_EQ(pusher_.sent().step, 3);
  EXPECT_EQ(pusher_.sent().samples, 8);
  EXPECT_EQ(pusher_.sent().verdict, v1::SKIP);
}

TEST_F(PusherTest, APartCarriesTheChecksumOfItsPayload) {
  TakeParts(1);
  const Tensor two = Floats({1, 2});
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  const PlayedFrame<v1::PushRequest> part = Parts(0).at(0);
  EXPECT_EQ(part.header.checksum(), Checksum({Slice::Borrow(part.payload.data(), part.payload.size())}));
}

TEST_F(PusherTest, AGradientThatThreadsAddInPiecesIsTheSumOfTheLanes) {
  TakeParts(2);
  std::vector<float> two, three, sums;
  for (int i = 0; i < 200'003; ++i) {
    two.push_back(i % 50 == 0 ? -0.0f : 0.1f * static_cast<float>(i % 1009));
    three.push_back(i % 50 == 0 ? -0.0f : 0.3f * static_cast<float>(i % 77));
    sums.push_back(two.back() + three.back());
  }
  const Tensor of_two = Floats(two), of_three = Floats(three);
  const StepChannel::LaneTensor lanes[] = {{2, &of_two}, {3, &of_three}};
  ASSERT_TRUE(pusher_.SendDense({"larger", 0, 200'003}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  const std::vector<float> sent = FloatsAt(Parts(0).at(0).payload, 0, sums.size());
  ASSERT_EQ(sent.size(), sums.size());
  EXPECT_EQ(std::memcmp(sent.data(), sums.data(), sums.size() * sizeof(float)), 0);
}

TEST_F(PusherTest, ALargeGradientLeavesBeforeTheStepIsFinished) {
  TakeParts(2);
  const Tensor two = Floats(std::vector<float>(65536, 1));  // 256 KiB
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendDense({"large", 0, 65536}, lanes).ok());
  ASSERT_THAT(Parts(0), SizeIs(1));
  EXPECT_EQ(Parts(0)[0].header.part(), 0);
  EXPECT_FALSE(Parts(0)[0].header.has_part_count());
  ASSERT_TRUE(Finish().ok());
  ASSERT_THAT(Parts(0), SizeIs(2));
  EXPECT_EQ(Parts(0)[1].header.part(), 1);
  EXPECT_EQ(Parts(0)[1].header.part_count(), 2);
}

TEST_F(PusherTest, PartNumbersBeginAnewWithEachStep) {
  TakeParts(2);
  ASSERT_TRUE(Finish().ok());
  pusher_.BeginStep(4, 3);
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(Parts(0).at(1).header.step(), 4);
  EXPECT_EQ(Parts(0).at(1).header.part(), 0);
}

TEST_F(PusherTest, BlocksOfSeveralThreadsShareAPart) {
  TakeParts(1);
  const Tensor two = Floats({1, 2}), three = Floats({3, 4, 5});
  pool_.ParallelFor(8, [&](int64_t i) {
    const StepChannel::LaneTensor of_b[] = {{2, &two}}, of_c[] = {{2, &three}};
    EXPECT_TRUE((i % 2 == 0 ? pusher_.SendDense({"b", 0, 2}, of_b) : pusher_.SendDense({"c", 1, 3}, of_c)).ok());
  });
  ASSERT_TRUE(Finish().ok());
  for (int s = 0; s < 2; ++s) {
    const auto parts = Parts(s);
    ASSERT_THAT(parts, SizeIs(1));
    EXPECT_EQ(parts[0].header.items_size(), 4);
    for (const v1::PushItem& item : parts[0].header.items()) {
      EXPECT_EQ(FloatsAt(parts[0].payload, static_cast<size_t>(item.offset()), 2),
                s == 0 ? std::vector<float>({1, 2}) : std::vector<float>({3, 4}));
    }
  }
}

TEST_F(PusherTest, ABlockThatThePlanDoesNotHaveOrOfAnotherSizeIsRefused) {
  const Tensor three = Floats({1, 2, 3});
  const StepChannel::LaneTensor lanes[] = {{2, &three}};
  EXPECT_STATUS(pusher_.SendDense({"nothing", 0, 3}, lanes), kInvalidArgument, "no block nothing on server 0");
  EXPECT_STATUS(pusher_.SendDense({"b", 2, 3}, lanes), kInvalidArgument, "no block b on server 2");
  EXPECT_STATUS(pusher_.SendDense({"b", 0, 3}, lanes), kInvalidArgument,
                "gradient of b has 3 elements, the block has 2");
}

TEST_F(PusherTest, RowsOfATableGoToTheServersOfTheirShards) {
  TakeParts(1);
  const SelectedRows two = Rows({HighId(0), LowId(0)}, {5, 6, 1, 2});
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendRows({"t", -1, 0}, 2, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  for (int s = 0; s < 2; ++s) {
    ASSERT_EQ(Parts(s).at(0).header.items_size(), 1);
    EXPECT_EQ(Parts(s)[0].header.items(0).count(), 1);
    EXPECT_EQ(Parts(s)[0].header.items(0).width(), 2);
  }
  EXPECT_THAT(IdsAt(Parts(0)[0].payload, 0, 1), ElementsAre(LowId(0)));
  EXPECT_THAT(FloatsAt(Parts(0)[0].payload, 64, 2), ElementsAre(1, 2));
  EXPECT_THAT(IdsAt(Parts(1)[0].payload, 0, 1), ElementsAre(HighId(0)));
  EXPECT_THAT(FloatsAt(Parts(1)[0].payload, 64, 2), ElementsAre(5, 6));
  EXPECT_EQ(pusher_.rows(), 2);
}

TEST_F(PusherTest, RowsOfOneIdAreAddedOverTheLanes) {
  TakeParts(1);
  const SelectedRows two = Rows({LowId(0), LowId(1)}, {1, 2, 3, 4}), three = Rows({LowId(1)}, {10, 20});
  const StepChannel::LaneRows lanes[] = {{2, &two}, {3, &three}};
  ASSERT_TRUE(pusher_.SendRows({"t", -1, 0}, 2, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_THAT(IdsAt(Parts(0).at(0).payload, 0, 2), ElementsAre(LowId(0), LowId(1)));
  EXPECT_THAT(FloatsAt(Parts(0)[0].payload, 64, 4), ElementsAre(1, 2, 13, 24));
}

TEST_F(PusherTest, RowsOfABlockGoToItsServer) {
  TakeParts(1);
  const SelectedRows two = Rows({3}, {1, 2});
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendRows({"rows", 0, 8}, 2, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  ASSERT_EQ(Parts(0).at(0).header.items_size(), 1);
  EXPECT_EQ(Parts(0)[0].header.items(0).name(), "rows");
  EXPECT_THAT(IdsAt(Parts(0)[0].payload, 0, 1), ElementsAre(3));
  EXPECT_EQ(Parts(1).at(0).header.items_size(), 0);
}

TEST_F(PusherTest, ShowsAndClicksFollowTheValuesAndAreAddedToo) {
  TakeParts(1);
  const SelectedRows two = Rows({LowId(0)}, {1}), three = Rows({LowId(0)}, {2});
  const Tensor seen = Floats({3, 1}), seen_too = Floats({1, 0});
  const StepChannel::LaneRows lanes[] = {{2, &two, &seen}, {3, &three, &seen_too}};
  ASSERT_TRUE(pusher_.SendRows({"s", -1, 0}, 1, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_TRUE(Parts(0).at(0).header.items(0).shows_and_clicks());
  EXPECT_THAT(FloatsAt(Parts(0)[0].payload, 64, 1), ElementsAre(3));
  EXPECT_THAT(FloatsAt(Parts(0)[0].payload, 128, 2), ElementsAre(4, 1));
}

TEST_F(PusherTest, ShowsAndClicksMustComeWhereTheTableCountsAndNowhereElse) {
  const SelectedRows two = Rows({LowId(0)}, {1});
  const Tensor seen = Floats({3, 1});
  const StepChannel::LaneRows without[] = {{2, &two}}, with[] = {{2, &two, &seen}};
  EXPECT_STATUS(pusher_.SendRows({"s", -1, 0}, 1, without), kInvalidArgument,
                "gradient of s: 1 rows come with 0 shows and clicks; 2 are wanted");
  EXPECT_STATUS(pusher_.SendRows({"t", -1, 0}, 1, with), kInvalidArgument,
                "gradient of t: 1 rows come with 2 shows and clicks; 0 are wanted");
}

TEST_F(PusherTest, RowsWithTooFewValuesAreRefused) {
  const SelectedRows two = Rows({LowId(0), LowId(1)}, {1, 2, 3});
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  EXPECT_STATUS(pusher_.SendRows({"t", -1, 0}, 2, lanes), kInvalidArgument,
                "gradient of t: 2 rows come with 3 values; 4 are wanted");
}

TEST_F(PusherTest, AnIdTwiceInALaneIsRefused) {
  const SelectedRows two = Rows({LowId(0), LowId(0)}, {1, 2, 3, 4});
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  EXPECT_STATUS(pusher_.SendRows({"t", -1, 0}, 2, lanes), kInvalidArgument, "gradient of t: a lane has an id twice");
}

TEST_F(PusherTest, ARowThatWasNotPulledInThisStepIsRefused) {
  const std::vector<int64_t> ids = {LowId(0)};
  const RowSource::TableRows asked = {.table = "t", .width = 2, .ids = &ids};
  ASSERT_TRUE(pulled_.Order({asked}, /*step=*/3, /*unfinished=*/false, &pool_).ok());
  SelectedRows two = Rows({LowId(1)}, {1, 2});
  two.step_rows = {1};  // of one
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  EXPECT_STATUS(pusher_.SendRows({"t", -1, 0}, 2, lanes), kInvalidArgument, "or one that was not prefetched");
}

TEST_F(PusherTest, ATableThatThePlanDoesNotHaveIsRefused) {
  const SelectedRows two = Rows({LowId(0)}, {1, 2});
  const StepChannel::LaneRows lanes[] = {{2, &two}};
  EXPECT_STATUS(pusher_.SendRows({"nothing", -1, 0}, 2, lanes), kInvalidArgument,
                "the plan has no table or block nothing on server -1");
}

TEST_F(PusherTest, AReadOnlyStepSendsNothing) {
  pusher_.BeginReadOnlyStep();
  const Tensor two = Floats({1, 2});
  const SelectedRows rows = Rows({LowId(0)}, {1, 2});
  const StepChannel::LaneTensor dense[] = {{2, &two}};
  const StepChannel::LaneRows sparse[] = {{2, &rows}};
  EXPECT_STATUS(pusher_.SendDense({"b", 0, 2}, dense), kFailedPrecondition, "block b: a read-only step sends nothing");
  EXPECT_STATUS(pusher_.SendRows({"t", -1, 0}, 2, sparse), kFailedPrecondition,
                "table t: a read-only step sends nothing");
  EXPECT_STATUS(Finish(), kFailedPrecondition, "a read-only step sends nothing");
  EXPECT_THAT(Parts(0), IsEmpty());
}

TEST_F(PusherTest, ALostPartIsSentAgainUnchanged) {
  servers_.Answer(0, Method::kPush, absl::UnavailableError("gone for a moment"));
  TakeParts(1);
  const Tensor two = Floats({1, 2});
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
  ASSERT_TRUE(Finish().ok());
  const std::vector<std::string> sent = servers_.RequestBytes(0, Method::kPush);
  ASSERT_THAT(sent, SizeIs(2));
  EXPECT_EQ(sent[0], sent[1]);
}

TEST_F(PusherTest, AnErrorOfOneOfTwoServersNamesIt) {
  servers_.AnswerFrame(0, Method::kPush, v1::PushReply(), "");
  servers_.Answer(1, Method::kPush, absl::InvalidArgumentError("part 0 has come before"));
  EXPECT_STATUS(Finish(), kInvalidArgument, "server 1: part 0 has come before");
}

TEST_F(PusherTest, AnAnswerThatIsNoReplyIsDataLoss) {
  for (int tries = 0; tries < 2; ++tries) servers_.Answer(0, Method::kPush, EncodeFrame("\xff", {}));
  TakeParts(1);
  EXPECT_STATUS(Finish(), kDataLoss, "server 0: no PushReply");
}

TEST_F(PusherTest, InSyncOnlyTheLastPartSaysTheSamples) {
  TakeParts(2);
  pusher_.SetStepSamples(4);
  const Tensor two = Floats(std::vector<float>(65536, 1));
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendDense({"large", 0, 65536}, lanes).ok());
  EXPECT_FALSE(Parts(0).at(0).header.has_samples());
}

class EagerPusherTest : public PusherTest {
 protected:
  EagerPusherTest() : PusherTest(EagerPlan()) {}
  static v1::Plan EagerPlan() {
    v1::Plan plan = MakePlan();
    plan.set_sync(false);
    plan.set_async_eager(true);
    return plan;
  }
};

TEST_F(EagerPusherTest, APartThatTakesEffectOnArrivalSaysTheSamples) {
  TakeParts(2);
  const Tensor two = Floats(std::vector<float>(65536, 1));
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  pusher_.SetStepSamples(4);
  ASSERT_TRUE(pusher_.SendDense({"large", 0, 65536}, lanes).ok());
  EXPECT_EQ(Parts(0).at(0).header.samples(), 4);
}

TEST_F(EagerPusherTest, SamplesOfAnEarlierStepAreForgotten) {
  TakeParts(3);
  pusher_.SetStepSamples(4);
  ASSERT_TRUE(Finish().ok());
  pusher_.BeginStep(4, 3);
  const Tensor two = Floats(std::vector<float>(65536, 1));
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  ASSERT_TRUE(pusher_.SendDense({"large", 0, 65536}, lanes).ok());
  EXPECT_FALSE(Parts(0).at(1).header.has_samples());
}

class LossyPusherTest : public PusherTest {
 protected:
  LossyPusherTest() : PusherTest(LossyPlan()) {}
  static v1::Plan LossyPlan() {
    v1::Plan plan = MakePlan();
    plan.mutable_wire()->set_push(v1::WIRE_INT8);
    return plan;
  }
};

// The scale is 127 / 127: values become whole numbers.
TEST_F(LossyPusherTest, WhatAPushLosesComesWithTheNextOne) {
  TakeParts(2);
  const Tensor two = Floats({127, 0.3f});
  const StepChannel::LaneTensor lanes[] = {{2, &two}};
  for (const int64_t step : {3, 4}) {
    pusher_.BeginStep(step, step);
    ASSERT_TRUE(pusher_.SendDense({"b", 0, 2}, lanes).ok());
    ASSERT_TRUE(Finish().ok());
  }
  ASSERT_THAT(Parts(0), SizeIs(2));
  EXPECT_EQ(Parts(0)[0].header.items(0).format(), v1::WIRE_INT8);
  EXPECT_THAT(DecodedAt(Parts(0)[0].payload, 0, 2, v1::WIRE_INT8), ElementsAre(127, 0));
  EXPECT_THAT(DecodedAt(Parts(0)[1].payload, 0, 2, v1::WIRE_INT8), ElementsAre(127, 1));
}

}  // namespace
}  // namespace weir
