// The rules of pushes and steps one by one, on one server under a fake clock.
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/core_by_hand.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class ServerStepsTest : public CoreByHand {};

TEST_F(ServerStepsTest, AGradientIsTheSumOverSamplesDividedOnce) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  // Lanes 0-3 bring 6 over 1 sample, lanes 4-7 bring 2 over 3: (6 + 2) / 4 = 2, and momentum's first step is 0.05 * 2.
  ASSERT_TRUE(PushStep(0, 0, {{.lane = 0, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 1).ok());
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_EQ(Bias(0), before) << "nothing takes effect before the step is complete";
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {2, 2, 2, 2, 2}}}, 3).ok());
  EXPECT_EQ(core_->Version(), 1);
  const std::vector<float> after = Bias(0);
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(after[i], before[i] - 0.05f * 2);
}

TEST_F(ServerStepsTest, ByTrainersTheMeansOfTrainersAreAveraged) {
  Start({.trainers = 2, .average_by_trainers = true});
  JoinAll();
  const std::vector<float> before = Bias(0);
  // (6 / 1 + 2 / 2) / 2 = 3.5 where samples would give 8 / 3.
  ASSERT_TRUE(PushStep(0, 0, {{.lane = 0, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {2, 2, 2, 2, 2}}}, 2).ok());
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(Bias(0)[i], before[i] - 0.05f * 3.5f);
  // Who brings nothing counts as a mean of zero. Momentum 0.9 of 3.5, and (4 / 1 + 0) / 2.
  const std::vector<float> then = Bias(0);
  ASSERT_TRUE(PushStep(0, 1, {{.lane = 0, .lanes = 4, .values = {4, 4, 4, 4, 4}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 1, {}, 0).ok());
  const float velocity = 0.9f * 3.5f + 2.0f;
  for (size_t i = 0; i < 5; ++i) EXPECT_FLOAT_EQ(Bias(0)[i], then[i] - 0.05f * velocity);
}

// Means of trainers are added in a tree with a leaf for each: (1e8 + 1) + (-1e8 + 1) is 0 in float, one after the
// other 1.
TEST_F(ServerStepsTest, ByTrainersTheMeansOfRowsAreAddedInTheTreeOfTrainers) {
  Start({.trainers = 4, .average_by_trainers = true});
  JoinAll();
  const std::vector<float> before = Pull(0, 0, "t", 1, {7}, 4)->values;
  const float gradients[] = {1e8f, 1, -1e8f, 1};
  for (const int t : {3, 1, 0, 2}) {
    const float g = gradients[t];
    ASSERT_TRUE(
        PushStep(t, 0, {{.name = "t", .lane = 2 * t, .lanes = 2, .values = {g, g, g, g}, .ids = {7}, .width = 4}}, 1)
            .ok());
  }
  // Adagrad moves nothing where the gradient is 0.
  EXPECT_EQ(Pull(0, 1, "t", 1, {7}, 4)->values, before);
}

TEST_F(ServerStepsTest, PartsComeInAnyOrderAndCountOnce) {
  Start({});
  JoinAll();
  const std::vector<float> before = Bias(0);
  const PushSpec last{.step = 0, .part = 1, .part_count = 2, .samples = 1};
  const PushSpec first{.step = 0, .part = 0, .items = {{.values = {1, 1, 1, 1, 1}}}};
  ASSERT_TRUE(Push(last).ok());
  EXPECT_EQ(core_->Version(), 0);
  EXPECT_TRUE(Push(last)->duplicate());
  EXPECT_FALSE(Push(first)->duplicate());
  EXPECT_EQ(core_->Version(), 1);
  // Long after it took effect it is still acknowledged, and dropped.
  EXPECT_TRUE(Push(first)->duplicate());
  EXPECT_TRUE(Push(last)->duplicate());
  EXPECT_EQ(core_->Version(), 1);
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
}

TEST_F(ServerStepsTest, AStepAheadOfTheServerAndPartsBeyondTheLastAreRefused) {
  Start({});
  JoinAll();
  EXPECT_STATUS(PushStep(0, 1, {}, 1), kFailedPrecondition, "is at step 0");
  ASSERT_TRUE(Push({.step = 0, .part = 1, .part_count = 2, .samples = 1}).ok());
  EXPECT_STATUS(Push({.step = 0, .part = 2}).status(), kInvalidArgument, "the step has 2 parts");
  EXPECT_STATUS(Push({.step = 0, .part = -1}).status(), kInvalidArgument, "parts run from 0");
  EXPECT_STATUS(Push({.step = -1, .part = 0}).status(), kInvalidArgument, "steps run from 0");
  for (const int64_t version :
       {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_STATUS(Call(Method::kPull, PullBytes(0, version, 0, "b", 5))->value().status(), kInvalidArgument,
                  "versions run from 0");
  }
}

TEST_F(ServerStepsTest, ALastPartThatContradictsEarlierOnesIsRefused) {
  Start({});
  JoinAll();
  ASSERT_TRUE(Push({.step = 0, .part = 5}).ok());
  EXPECT_STATUS(Push({.step = 0, .part = 2, .part_count = 3, .samples = 1}).status(), kInvalidArgument,
                "last of 3 parts");
  EXPECT_STATUS(Push({.step = 0, .part = 2, .part_count = 9, .samples = 1}).status(), kInvalidArgument,
                "last of 9 parts");
}

TEST_F(ServerStepsTest, OneSkipSkipsTheStepForAllAndTheVersionGoesOn) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1, v1::SKIP).ok());
  const auto pulled = Pull(0, 1, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_TRUE(pulled->header.ready());
  EXPECT_TRUE(pulled->header.skipped());
  EXPECT_EQ(pulled->header.version(), 1);
  EXPECT_EQ(Bias(0), before);
}

TEST_F(ServerStepsTest, AStepWithoutSamplesChangesNothingAndSaysSo) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {}, 0).ok());
  ASSERT_TRUE(PushStep(1, 0, {}, 0).ok());
  const auto pulled = Pull(1, 1, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_EQ(pulled->header.samples(), 0);
  EXPECT_TRUE(pulled->header.ended());
  EXPECT_FALSE(pulled->header.skipped());
  EXPECT_EQ(Bias(0), before);
}

TEST_F(ServerStepsTest, AStepWithLessThanHalfOfStepZeroChangesNothingAndEndsTheRun) {
  Start({.trainers = 2});
  JoinAll();
  const std::vector<Item> left = {{.lane = 0, .lanes = 4, .values = {1, 1, 1, 1, 1}}};
  const auto push = [&](int64_t step, int64_t of_0, int64_t of_1) {
    ASSERT_TRUE(Push({.step = step, .items = left, .part_count = 1, .samples = of_0, .first_samples = 8}).ok());
    ASSERT_TRUE(
        Push({.trainer = 1, .step = step, .items = {}, .part_count = 1, .samples = of_1, .first_samples = 3}).ok());
  };
  // 11 samples in step 0: 6 are enough, whoever has them, 5 are not.
  push(0, 8, 3);
  const std::vector<float> before = Bias(0);
  push(1, 6, 0);
  const std::vector<float> moved = Bias(0);
  EXPECT_NE(moved, before);
  auto pulled = Pull(1, 2, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_FALSE(pulled->header.ended());
  EXPECT_EQ(pulled->header.first_samples(), 11);
  push(2, 4, 1);
  EXPECT_EQ(Bias(0), moved);
  pulled = Pull(1, 3, "b", 5);
  ASSERT_TRUE(pulled.ok());
  EXPECT_TRUE(pulled->header.ended());
  EXPECT_EQ(pulled->header.samples(), 5);
  EXPECT_EQ(core_->counters().Value("push.applied"), 4);
}

TEST_F(ServerStepsTest, RowsOfAStepThatIsTooSmallForItsTrainerTakeNoEffectWithAsyncTables) {
  Start({.trainers = 2, .async_tables = true});
  JoinAll();
  const auto row = [&] { return Pull(0, 0, "t", 1, {7}, 4)->values; };
  const std::vector<float> before = row();
  const Item rows{.name = "t", .lane = 0, .lanes = 4, .values = {1, 1, 1, 1}, .ids = {7}, .width = 4};
  ASSERT_TRUE(Push({.step = 0, .items = {rows}, .part_count = 1, .samples = 3, .first_samples = 8}).ok());
  EXPECT_EQ(row(), before);
  ASSERT_TRUE(Push({.trainer = 1, .step = 0, .items = {}, .part_count = 1, .samples = 8, .first_samples = 8}).ok());
  ASSERT_TRUE(Push({.step = 1, .items = {rows}, .part_count = 1, .samples = 4, .first_samples = 8}).ok());
  EXPECT_NE(row(), before);
}

TEST_F(ServerStepsTest, SamplesOfStepZeroThatMakeNoSenseAreRefused) {
  Start({});
  JoinAll();
  for (const int64_t samples :
       {int64_t{-1}, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
    EXPECT_STATUS(Push({.step = 0, .items = {}, .part_count = 1, .samples = 1, .first_samples = samples}).status(),
                  kInvalidArgument, "samples in step 0");
  }
}

TEST_F(ServerStepsTest, AnAbsentGradientLeavesItsBlockAlone) {
  Start({});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.values = {1, 1, 1, 1, 1}}}, 1).ok());
  const std::vector<float> moved = Bias(0);
  // Momentum would move it again with a gradient of zero.
  ASSERT_TRUE(PushStep(0, 1, {}, 1).ok());
  EXPECT_EQ(Bias(0), moved);
  EXPECT_NE(moved, before);
}

TEST_F(ServerStepsTest, TheEndIsFixedForAVersionAndSeenByAll) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  ASSERT_TRUE(PushStep(1, 0, {}, 1).ok());
  // Asked for after version 1 exists: whoever reads version 1, before or after, goes on.
  EXPECT_FALSE(Pull(0, 1, "b", 5)->header.stop());
  core_->RequestStop();
  EXPECT_FALSE(Pull(1, 1, "b", 5)->header.stop());
  EXPECT_TRUE(Beat(0)->stop_requested());
  ASSERT_TRUE(PushStep(0, 1, {}, 1).ok());
  ASSERT_TRUE(PushStep(1, 1, {}, 1).ok());
  EXPECT_TRUE(Pull(0, 2, "b", 5)->header.stop());
  EXPECT_TRUE(Pull(1, 2, "b", 5)->header.stop());
}

TEST_F(ServerStepsTest, OnlyServer0DecidesTheEnd) {
  Start({.servers = 2}, /*server=*/1);
  JoinAll();
  core_->RequestStop();
  ASSERT_TRUE(PushStep(0, 0, {}, 1).ok());
  EXPECT_FALSE(Pull(0, 1, "b", 5)->header.stop());
}

TEST_F(ServerStepsTest, ATrainerThatIsDoneWhileAnotherGoesOnIsAnError) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_STATUS(PushStep(1, 0, {}, 1), kFailedPrecondition, "trainer 0 (trainer:0) has ended before step 0");
  EXPECT_FALSE(core_->JobStatus().ok());
}

TEST_F(ServerStepsTest, TheServerIsFinishedWhenEveryTrainerIsDone) {
  Start({.trainers = 2});
  JoinAll();
  ASSERT_TRUE(Beat(0, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_FALSE(core_->Finished());
  ASSERT_TRUE(Beat(1, [](auto& r) { r.set_done(true); }).ok());
  EXPECT_TRUE(core_->Finished());
  // A trainer that is done holds no lease.
  Pass(30, {});
  EXPECT_TRUE(core_->JobStatus().ok());
}

TEST_F(ServerStepsTest, InAsyncEachTrainersStepTakesEffectByItselfDividedByItsOwnSamples) {
  Start({.trainers = 2, .sync = false});
  JoinAll();
  const std::vector<float> before = Bias(0);
  ASSERT_TRUE(PushStep(1, 0, {{.lane = 4, .lanes = 4, .values = {6, 6, 6, 6, 6}}}, 3).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f * 2);
  EXPECT_TRUE(Push({.trainer = 1, .step = 0, .items = {}, .part_count = 1, .samples = 3})->duplicate());
  // The other is at a step of its own; a skipped step of it changes nothing.
  const std::vector<float> now = Bias(0);
  ASSERT_TRUE(PushStep(0, 0, {{.lanes = 4, .values = {1, 1, 1, 1, 1}}}, 1, v1::SKIP).ok());
  EXPECT_EQ(Bias(0), now);
}

TEST_F(ServerStepsTest, EagerPartsTakeEffectOnArrivalOnceAndCannotBeSkipped) {
  Start({.sync = false, .eager = true});
  JoinAll();
  const std::vector<float> before = Bias(0);
  auto [request, payload] = MakePush({.step = 0, .part = 0, .items = {{.values = {2, 2, 2, 2, 2}}}});
  request.set_samples(2);
  ASSERT_TRUE(PushStatus(request, payload).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
  ASSERT_TRUE(PushStatus(request, payload).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
  EXPECT_STATUS(Push({.step = 0, .part = 1, .part_count = 2, .samples = 2, .verdict = v1::SKIP}).status(),
                kInvalidArgument, "EAGER");
  ASSERT_TRUE(Push({.step = 0, .part = 1, .part_count = 2, .samples = 2}).ok());
  EXPECT_FLOAT_EQ(Bias(0)[0], before[0] - 0.05f);
}

TEST_F(ServerStepsTest, RowsAreMadeByTheirFirstUpdateNotByReading) {
  Start({});
  JoinAll();
  const uint64_t empty = Digest(0)->values();
  const auto first = Pull(0, 0, "t", 2, {5, -5}, 4);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(Digest(0)->values(), empty);
  ASSERT_TRUE(PushStep(0, 0, {{.name = "t", .values = {1, 1, 1, 1}, .ids = {5}, .width = 4}}, 1).ok());
  EXPECT_NE(Digest(0)->values(), empty);
  const auto second = Pull(0, 1, "t", 2, {5, -5}, 4);
  for (size_t i = 0; i < 4; ++i) EXPECT_LT(second->values[i], first->values[i]);
  for (size_t i = 4; i < 8; ++i) EXPECT_EQ(second->values[i], first->values[i]);
}

TEST_F(ServerStepsTest, ATablePastItsCapacityFailsTheJobWithTheTableNamed) {
  Start({.table_capacity = 2});
  JoinAll();
  (void)PushStep(0, 0, {{.name = "u", .values = {1, 1, 1}, .ids = {1, 2, 3}, .width = 1}}, 1);
  EXPECT_STATUS(core_->JobStatus(), kResourceExhausted, "table u is full");
  EXPECT_THAT(std::string(core_->JobStatus().message()), HasSubstr("server 0 (server:1): step 0"));
}

}  // namespace
}  // namespace weir
