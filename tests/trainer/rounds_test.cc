// Batches of the steps of a trainer, and the judgement about the end of its data.
#include "trainer/loop/rounds.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "framework/base/clock.h"
#include "glog/logging.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/line_job.h"
#include "trainer/follow/file_course.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// One trainer with two lanes of two examples each.
class RoundsTest : public LineJobTest {
 protected:
  // Writes training lines whose x are 0, 1, 2, ... and starts the job.
  void StartWith(int lines, std::vector<std::string> overrides = {}) {
    std::vector<LabelledNumber> all;
    for (int i = 0; i < lines; ++i) all.push_back({.x = static_cast<float>(i)});
    WriteLines("train.txt", all);
    WriteLines("eval.txt", {{}});
    StartRounds(std::move(overrides));
  }
  void StartRounds(std::vector<std::string> overrides = {}, int64_t expected_first_step = 0) {
    Start(/*trainers=*/1, std::move(overrides));
    workers_ = MakeWorkers(0);
    order_ = StepOrder::Of(Trainer(0), mode());
    rounds_ = std::make_unique<Rounds>(Rounds::Options{.trainer = Trainer(0),
                                                       .mode = mode(),
                                                       .batch_size = job_.config.data().batch_size(),
                                                       .epochs = job_.config.train().epochs(),
                                                       .expected_first_step = expected_first_step,
                                                       .order = order_.get(),
                                                       .workers = workers_.get(),
                                                       .course = &course_},
                                       TrainReader(0));
  }
  void TearDown() override {
    rounds_.reset();
    workers_.reset();
    LineJobTest::TearDown();
  }
  Round* Next(int64_t step, int batch = 0) {
    const absl::StatusOr<Round*> round = rounds_->Next(step, batch);
    CHECK(round.ok()) << round.status();
    return *round;
  }
  // Reads a step of one round that is not the end.
  void Step(int64_t step) {
    ASSERT_FALSE(Next(step)->ended);
    rounds_->EndStep();
  }
  // Returns the numbers x of a lane in a round.
  static std::vector<float> Numbers(const Round& round, size_t lane, size_t worker = 0) {
    const auto x = std::get<Tensor>(round.batches[worker][lane].vars[1]).span<float>();
    return {x.begin(), x.end()};
  }

  std::unique_ptr<Workers> workers_;
  std::unique_ptr<StepOrder> order_;
  FileCourse course_;
  std::unique_ptr<Rounds> rounds_;
};

TEST_F(RoundsTest, ARoundIsABatchForEachLane) {
  StartWith(8);
  Round* round = Next(0);
  EXPECT_EQ(round->step, 0);
  EXPECT_THAT(Numbers(*round, 0), ElementsAre(1, 3));
  EXPECT_THAT(Numbers(*round, 1), ElementsAre(0, 2));
  round = Next(1);
  EXPECT_THAT(Numbers(*round, 0), ElementsAre(4, 7));
}

TEST_F(RoundsTest, WorkersHaveBatchesInTurn) {
  StartWith(16, {"distribute.sync=false", "distribute.half_async={}", "train.workers=2"});
  const Round* const round = Next(0);
  ASSERT_EQ(round->batches.size(), 2);
  EXPECT_THAT(Numbers(*round, 0, /*worker=*/0), ElementsAre(1, 3));
  EXPECT_THAT(Numbers(*round, 0, /*worker=*/1), ElementsAre(4, 7));
}

TEST_F(RoundsTest, AnAsyncRunEndsWithTheData) {
  StartWith(8, {"distribute.sync=false"});
  Step(0);
  Step(1);
  EXPECT_TRUE(Next(2)->ended);
}

TEST_F(RoundsTest, AnAsyncStepOfFewerThanHalfTheExamplesIsTheEnd) {
  StartWith(9, {"distribute.sync=false"});
  Step(0);
  Step(1);
  EXPECT_TRUE(Next(2)->ended);  // one example; step 0 had four
}

TEST_F(RoundsTest, AnAsyncStepOfHalfTheExamplesIsNotTheEnd) {
  StartWith(10, {"distribute.sync=false"});
  Step(0);
  Step(1);
  Step(2);
  EXPECT_TRUE(Next(3)->ended);
}

TEST_F(RoundsTest, AStepIsJudgedByAllItsRounds) {
  StartWith(13, {"distribute.sync=false", "train.accumulate_steps=2"});
  EXPECT_FALSE(Next(0, 0)->ended);
  EXPECT_FALSE(Next(0, 1)->ended);
  rounds_->EndStep();
  // Five of eight examples, one of them in the last round.
  EXPECT_FALSE(Next(1, 0)->ended);
  EXPECT_FALSE(Next(1, 1)->ended);
}

TEST_F(RoundsTest, InSyncTheServersDecideAboutTheEnd) {
  StartWith(4);
  Step(0);
  const Round* const round = Next(1);
  EXPECT_FALSE(round->ended);
  EXPECT_TRUE(round->batches[0][0].ended);
}

TEST_F(RoundsTest, TheFractionIsThatOfTheStreams) {
  StartWith(8, {"data.shuffle=ALL"});
  EXPECT_EQ(rounds_->fraction(), 0);
  Step(0);
  EXPECT_EQ(rounds_->fraction(), 0.5);
  Step(1);
  EXPECT_EQ(rounds_->fraction(), 1);
}

TEST_F(RoundsTest, AResumeOnOtherDataIsRefused) {
  WriteLines("train.txt", {{}, {}, {}, {}});
  WriteLines("eval.txt", {{}});
  StartRounds({}, /*expected_first_step=*/4);
  // What the checkpoint says, so that a run that ends before its first step passes it on.
  EXPECT_EQ(rounds_->first_step_examples(), 4);
  EXPECT_EQ(rounds_->CheckFirstStep(4), absl::OkStatus());
  EXPECT_EQ(rounds_->first_step_examples(), 4);
  const absl::Status refused = rounds_->CheckFirstStep(3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("step 0 had 4 examples"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("has 3"));
}

TEST_F(RoundsTest, AResumeOfAccumulatedStepsThatDifferNamesTheEpochs) {
  // Streams of two examples, of which a step takes four: with one epoch step 0 has four examples, with two eight.
  WriteLines("train.txt", {{}, {}, {}, {}});
  WriteLines("eval.txt", {{}});
  StartRounds({"train.accumulate_steps=2", "train.epochs=2"}, /*expected_first_step=*/4);
  const absl::Status refused = rounds_->CheckFirstStep(8);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train.epochs was another than 2"));
}

TEST_F(RoundsTest, ARunWithoutACheckpointHasAnyFirstStep) {
  StartWith(4);
  EXPECT_EQ(rounds_->CheckFirstStep(3), absl::OkStatus());
  EXPECT_EQ(rounds_->first_step_examples(), 3);
}

// Filling shuffle buffers takes as long as reading the data does.
TEST_F(RoundsTest, AStopEndsTheWaitForABatch) {
  WriteLines("train.txt", {{}, {}, {}, {}});
  WriteLines("eval.txt", {{}});
  Start(/*trainers=*/1, {"train.accumulate_steps=2"});
  workers_ = MakeWorkers(0);
  order_ = StepOrder::Of(Trainer(0), mode());
  std::atomic<bool> there = false;
  JobDataOptions options = DataOptions(0);
  options.before_batch = [&](int, int64_t) { there.wait(false); };
  const auto data = JobData::Open(std::move(options));
  ASSERT_TRUE(data.ok()) << data.status();
  auto reader = (*data)->TrainReader();
  ASSERT_TRUE(reader.ok()) << reader.status();
  rounds_ = std::make_unique<Rounds>(Rounds::Options{.trainer = Trainer(0),
                                                     .mode = mode(),
                                                     .batch_size = 4,
                                                     .expected_first_step = 4,
                                                     .order = order_.get(),
                                                     .workers = workers_.get(),
                                                     .course = &course_},
                                     *std::move(reader));
  cluster_->client(0).member().RequestStop();
  const absl::Time begin = Clock::Real()->Now();
  for (int batch = 0; batch < 2; ++batch) {
    const Round* const round = Next(0, batch);
    // In sync the servers end the run, before this step.
    EXPECT_FALSE(round->ended);
    for (const LaneBatch& lane : round->batches[0]) {
      EXPECT_EQ(lane.examples, 0);
      EXPECT_TRUE(lane.stopped);
      EXPECT_EQ(lane.vars.size(), 2);
    }
    EXPECT_TRUE(rounds_->stopped());
  }
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(20));
  // Another trainer may have given the servers fewer examples of step 0 than it has.
  EXPECT_EQ(rounds_->first_step_examples(), 4);
  there = true;
  there.notify_all();
  rounds_.reset();
}

TEST_F(RoundsTest, ExamplesThatNoStepUsedAreCounted) {
  StartWith(9, {"distribute.sync=false"});
  Step(0);
  Step(1);
  ASSERT_TRUE(Next(2)->ended);
  const v1::LeftOut left = rounds_->CountLeftOut(/*steps=*/2);
  EXPECT_EQ(left.examples(), 1);
  EXPECT_FALSE(left.more());
  EXPECT_EQ(left.trained(), 8);
}

TEST_F(RoundsTest, ManyExamplesThatAreLeftAreNotReadToTheEnd) {
  StartWith(100);
  Step(0);
  const v1::LeftOut left = rounds_->CountLeftOut(/*steps=*/1);
  // A batch of four says no more than that there are many, the next that there are more than that.
  EXPECT_EQ(left.examples(), 8);
  EXPECT_TRUE(left.more());
}

TEST_F(RoundsTest, LinesThatDoNotParseAreCountedAtTheEnd) {
  WriteText("train.txt", "1 0 1 5\nnonsense\n1 0 1 6\n");
  WriteLines("eval.txt", {{}});
  StartRounds({"distribute.sync=false", "data.bad_line=SKIP"});
  EXPECT_FALSE(Next(0)->ended);
  EXPECT_TRUE(Next(1)->ended);
  EXPECT_EQ(rounds_->CloseReader(), 1);
}

TEST_F(RoundsTest, ABadLineIsAnError) {
  WriteText("train.txt", "nonsense\n");
  WriteLines("eval.txt", {{}});
  StartRounds();
  EXPECT_THAT(std::string(rounds_->Next(0, 0).status().message()), HasSubstr("train.txt:1"));
}

}  // namespace
}  // namespace weir
