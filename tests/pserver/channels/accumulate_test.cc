#include "pserver/channels/accumulate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/channels/step_recorder.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class AccumulatingChannelTest : public testing::Test {
 protected:
  // Runs one batch of 10 samples with the gradient `w` of lane 0.
  StepOutcome Batch(int64_t step, const std::vector<float>& w, v1::Verdict verdict = v1::APPLY) {
    EXPECT_TRUE(channel_.BeginStep(step, /*read_only=*/false).ok());
    channel_.SetStepSamples(10);
    w_ = Floats(w);
    EXPECT_TRUE(SendLane(&channel_, "w", 0, w_).ok());
    EXPECT_TRUE(channel_.FinishSends(10, verdict).ok());
    return Receive();
  }
  StepOutcome Receive() {
    EXPECT_TRUE(channel_.Receive({.name = "w", .count = received_.size()}, &received_).ok());
    StepOutcome outcome;
    EXPECT_TRUE(channel_.FinishReceives(&outcome).ok());
    return outcome;
  }

  StepRecorder servers_;
  AccumulatingChannel channel_{&servers_, 3};
  Tensor w_;
  Tensor received_ = Floats({-1, -1});
};

TEST_F(AccumulatingChannelTest, SumsLeaveWithTheLastBatchAndTheSamplesOfAll) {
  Batch(4, {1, 2});
  EXPECT_THAT(servers_.Take(), ElementsAre("begin 4"));
  Batch(4, {10, 20});
  EXPECT_THAT(servers_.Take(), IsEmpty());
  const StepOutcome outcome = Batch(4, {100, 200});
  EXPECT_THAT(servers_.Take(),
              ElementsAre("step samples 30", "dense w lane 0: 111 222", "finish 30 APPLY", "receive w", "received"));
  EXPECT_EQ(outcome.samples, 100);
}

TEST_F(AccumulatingChannelTest, ParametersStayWithinACycle) {
  const StepOutcome outcome = Batch(0, {1, 2});
  EXPECT_THAT(received_.span<float>(), ElementsAre(-1, -1));
  EXPECT_EQ(outcome.samples, 10);
  Batch(0, {1, 2});
  Batch(0, {1, 2});
  EXPECT_THAT(received_.span<float>(), ElementsAre(1, 2));
}

TEST_F(AccumulatingChannelTest, AVerdictSkipOfOneBatchIsThatOfTheStep) {
  Batch(0, {1, 2});
  Batch(0, {1, 2}, v1::SKIP);
  Batch(0, {1, 2});
  EXPECT_THAT(servers_.Take(), testing::Contains("finish 30 SKIP"));
  Batch(1, {1, 2});
  Batch(1, {1, 2});
  Batch(1, {1, 2});
  EXPECT_THAT(servers_.Take(), testing::Contains("finish 30 APPLY"));
}

TEST_F(AccumulatingChannelTest, NothingOfACycleIsLeftForTheNext) {
  for (int batch = 0; batch < 3; ++batch) Batch(0, {1, 2});
  servers_.Take();
  for (int batch = 0; batch < 3; ++batch) Batch(1, {5, 6});
  EXPECT_THAT(servers_.Take(), testing::Contains("dense w lane 0: 15 18"));
}

TEST_F(AccumulatingChannelTest, ABlockWithoutAGradientInTheLastBatchIsSentAllTheSame) {
  const SelectedRows rows = Rows({7, 3}, {1, 2, 3, 4});
  Batch(0, {1, 2});
  ASSERT_TRUE(channel_.BeginStep(0, false).ok());
  ASSERT_TRUE(SendRowsOf(&channel_, "t", 1, rows).ok());
  ASSERT_TRUE(channel_.FinishSends(0, v1::APPLY).ok());
  Receive();
  servers_.Take();
  Batch(0, {1, 2});
  EXPECT_THAT(servers_.Take(),
              ElementsAre("step samples 20", "dense w lane 0: 2 4", "rows t lane 1: ids 7 3 values 1 2 3 4",
                          "finish 20 APPLY", "receive w", "received"));
}

TEST_F(AccumulatingChannelTest, RowsAreFetchedForEveryBatch) {
  ASSERT_TRUE(channel_.BeginStep(0, false).ok());
  ASSERT_TRUE(channel_.PullRows({}).ok());
  Batch(0, {1, 2});
  ASSERT_TRUE(channel_.PullRows({}).ok());
  EXPECT_THAT(servers_.Take(), ElementsAre("begin 0", "pull 0", "pull 0"));
}

TEST_F(AccumulatingChannelTest, AReadOnlyStepPassesThroughAndLeavesTheCycleAlone) {
  Batch(0, {1, 2});
  servers_.Take();
  ASSERT_TRUE(channel_.BeginStep(9, /*read_only=*/true).ok());
  Receive();
  EXPECT_THAT(servers_.Take(), ElementsAre("begin 9 read only", "receive w", "received"));
  Batch(0, {10, 20});
  Batch(0, {100, 200});
  EXPECT_THAT(servers_.Take(), testing::Contains("dense w lane 0: 111 222"));
}

}  // namespace
}  // namespace weir
