// How a run ends when its streams do: leftovers make no step, whatever the cluster, the mode and the files; what is
// left out is said.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/files/stream_rule.h"

namespace weir {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class RunEndTest : public SlotJobTest {
 protected:
  // Trains one epoch of the first `lines` examples. Steps of 32, 4 a lane.
  static InProcessResult RunOf(int64_t lines, InProcessRun run = {}) {
    WriteSlotLines(Path("some.txt"), 0, lines);
    run.overrides.insert(run.overrides.begin(),
                         {"data.train.files=\"some.txt\"", "train.epochs=1", "train.digest_every_steps=0"});
    return Run(std::move(run));
  }
  // The digest of all values of the newest checkpoint in Path(name).
  static uint64_t ValuesIn(const std::string& name) { return Newest(name).manifest.values_digest(); }
  static NewestCheckpoint Newest(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path(name));
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? *newest : NewestCheckpoint();
  }
};

TEST_F(RunEndTest, LeftoversMakeNoStep) {
  // 24 whole steps; the last 9 examples are one a lane, two of lane 0.
  const InProcessResult result = RunOf(777, {.overrides = {CheckpointIn("all")}});
  EXPECT_EQ(result.summary.steps, 24);
  EXPECT_EQ(result.summary.examples, 768);
  EXPECT_EQ(result.summary.left_out, 9);
  EXPECT_FALSE(result.summary.left_out_more);
  EXPECT_THAT(result.summary.DoneLine(), HasSubstr(" left_out=9"));
  EXPECT_EQ(Newest("all").manifest.step(), 24);
  EXPECT_EQ(Newest("all").manifest.trainers().first_step_examples(), 32);
  // The model is that of the whole steps.
  const InProcessResult cut = RunOf(777, {.overrides = {CheckpointIn("cut"), "train.max_steps=24"}});
  EXPECT_EQ(cut.summary.left_out, 0) << "max_steps ended it";
  EXPECT_EQ(ValuesIn("all"), ValuesIn("cut"));
  EXPECT_EQ(Newest("all").manifest.state_digest(), Newest("cut").manifest.state_digest());
}

TEST_F(RunEndTest, HalfAStepIsAStep) {
  const InProcessResult result = RunOf(784);
  EXPECT_EQ(result.summary.steps, 25);
  EXPECT_EQ(result.summary.examples, 784);
  EXPECT_EQ(result.summary.left_out, 0);
  EXPECT_THAT(result.summary.DoneLine(), Not(HasSubstr("left_out")));
}

TEST_F(RunEndTest, BatchesGoOnOverTheBordersOfEpochs) {
  // Streams of 97 and 98, five times: 121 whole steps of 4 a lane.
  const InProcessResult result = RunOf(777, {.overrides = {"train.epochs=5"}});
  EXPECT_EQ(result.summary.steps, 121);
  EXPECT_EQ(result.summary.examples, 121 * 32);
  EXPECT_EQ(result.summary.left_out, 5 * 777 - 121 * 32);
}

TEST_F(RunEndTest, FewerExamplesThanABatchMakeAStepAnEpoch) {
  const InProcessResult result = RunOf(20, {.overrides = {"train.epochs=3"}});
  EXPECT_EQ(result.summary.steps, 3);
  EXPECT_EQ(result.summary.examples, 60);
  EXPECT_EQ(result.summary.left_out, 0);
}

TEST_F(RunEndTest, ACycleOfBatchesIsJudgedAsOne) {
  // Cycles of 96.
  EXPECT_EQ(RunOf(777, {.overrides = {"train.accumulate_steps=3"}}).summary.steps, 8);
  // The ninth has 48: its second and third batch are short.
  const InProcessResult result = RunOf(816, {.overrides = {"train.accumulate_steps=3"}});
  EXPECT_EQ(result.summary.steps, 9);
  EXPECT_EQ(result.summary.left_out, 0);
}

TEST_F(RunEndTest, EveryClusterEndsAtTheSameStepWithTheSameBits) {
  for (const int64_t lines : {777, 784, 43}) {
    const InProcessResult local = RunOf(lines, {.overrides = {CheckpointIn("local"), "train.epochs=3"}});
    for (const auto& [servers, trainers] : {std::pair{2, 2}, std::pair{1, 3}, std::pair{3, 8}}) {
      const InProcessResult result = RunOf(
          lines, {.overrides = {CheckpointIn("cluster"), "train.epochs=3"}, .servers = servers, .trainers = trainers});
      EXPECT_EQ(result.summary.steps, local.summary.steps);
      EXPECT_EQ(result.summary.left_out, local.summary.left_out);
      EXPECT_EQ(ValuesIn("cluster"), ValuesIn("local")) << lines << " lines, " << servers << " + " << trainers;
      std::filesystem::remove_all(Path("cluster"));
    }
    std::filesystem::remove_all(Path("local"));
  }
}

TEST_F(RunEndTest, ARunThatGoesOnInItsLastStepsEndsAsTheUndisturbedOne) {
  const std::vector<std::string> overrides = {"train.epochs=5", "checkpoint.every_steps=1", "checkpoint.keep_last=200",
                                              CheckpointIn("kept")};
  const InProcessResult whole = RunOf(777, {.overrides = overrides});
  EXPECT_EQ(whole.summary.steps, 121);
  const uint64_t values = ValuesIn("kept");
  for (const int last : {121, 120, 119, 97, 24}) {
    for (int step = last + 1; step <= 121; ++step)
      std::filesystem::remove_all(absl::StrCat(Path("kept"), "/", StepDirectoryName(step)));
    const InProcessResult resumed = RunOf(777, {.overrides = overrides, .servers = 2, .trainers = 3, .resume = true});
    EXPECT_EQ(resumed.summary.steps, 121) << "from " << last;
    EXPECT_EQ(resumed.summary.left_out, whole.summary.left_out);
    EXPECT_EQ(ValuesIn("kept"), values) << "from " << last;
  }
}

TEST_F(RunEndTest, ARunDoesNotGoOnWithDataInWhichStepZeroIsAnother) {
  const std::vector<std::string> overrides = {"data.train.files=\"few.txt\"", "data.bad_line=SKIP", "train.epochs=4",
                                              "train.digest_every_steps=0", CheckpointIn("few")};
  // Long lines, so that what is changed below is between the places that a resume compares.
  {
    std::ofstream out(Path("few.txt"));
    for (int64_t i = 0; i < 20; ++i) out << SlotLine(i) << std::string(2000, ' ') << "\n";
  }
  std::vector<std::string> first = overrides;
  first.push_back("train.max_steps=2");
  Run({.overrides = first});
  // Keep name and size of the file, and make one of its lines unreadable.
  absl::StatusOr<std::string> text = ReadWholeFile(Path("few.txt"));
  ASSERT_TRUE(text.ok());
  (*text)[text->find('\n', 10000) + 1] = 'x';
  ASSERT_TRUE(WriteFileAtomically(Path("few.txt"), *text).ok());
  const absl::Status status = TryRun({.overrides = overrides, .resume = true}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              ContainsRegex("stream [0-7] had 3 examples in an epoch when the checkpoint was written, and has 2"));

  // An older build kept no places of streams: all is read again.
  const std::string checkpoint = absl::StrCat(Path("few"), "/", StepDirectoryName(2));
  absl::StatusOr<v1::CheckpointManifest> manifest = ReadManifest(checkpoint);
  const absl::StatusOr<std::string> another = BeginCheckpoint(Path("few"), 2);
  ASSERT_TRUE(manifest.ok() && another.ok()) << manifest.status() << another.status();
  for (const v1::CheckpointShard& shard : manifest->shards()) {
    std::filesystem::copy_file(absl::StrCat(checkpoint, "/", shard.file().name()),
                               absl::StrCat(Path("few"), "/", *another, "/", shard.file().name()));
  }
  manifest->clear_extra();
  ASSERT_TRUE(PublishCheckpoint(Path("few"), *another, *manifest).ok());
  EXPECT_THAT(std::string(TryRun({.overrides = overrides, .resume = true}).status().message()),
              HasSubstr("step 0 had 20 examples when the checkpoint was written, and has 19"));
}

TEST_F(RunEndTest, InOtherModesEachTrainerJudgesItsOwnSteps) {
  struct Mode {
    std::vector<std::string> overrides;
    int64_t steps;  // of each trainer
  };
  // 389 and 388 examples in steps of 16.
  for (const Mode& mode : std::vector<Mode>{
           {{"distribute.sync=false"}, 24},
           {{"distribute.sync=false", "distribute.async_apply=EAGER"}, 24},
           {{"distribute.sync=false", "distribute.prefetch_rows=true"}, 24},
           {{"distribute.sync=false", "distribute.bounded_staleness.steps=1"}, 24},
           {{"distribute.sync=false", "distribute.bounded_staleness.steps=1", "train.accumulate_steps=3"}, 8},
           {{"distribute.sync=false", "distribute.geo.every_steps=5"}, 24},
           {{"distribute.sync=false", "distribute.half_async={}", "train.workers=2"}, 12},
           {{"distribute.sync=false", "distribute.half_async={}", "train.workers=2", "train.accumulate_steps=3"}, 4},
           {{"distribute.async_tables=true", "distribute.reproducible=false"}, 24},
       }) {
    const InProcessResult result = RunOf(777, {.overrides = mode.overrides, .servers = 2, .trainers = 2});
    ASSERT_EQ(result.summaries.size(), 2u) << testing::PrintToString(mode.overrides);
    for (const TrainSummary& summary : result.summaries) {
      EXPECT_EQ(summary.steps, mode.steps) << testing::PrintToString(mode.overrides);
      EXPECT_EQ(summary.left_out, 9) << testing::PrintToString(mode.overrides);
      EXPECT_FALSE(summary.left_out_more) << testing::PrintToString(mode.overrides);
    }
  }
}

// Three streams of 300 lines that parse and one of thousands: when the three have ended, the one is a quarter of a
// step.
TEST_F(RunEndTest, WhatUnevenStreamsLeaveOutIsCountedAsFarAsItIsWorth) {
  constexpr int64_t kLines = 3000, kSeed = 5, kStreams = 4;
  std::string text;
  for (int64_t round = 0; round < kLines; ++round) {
    for (int64_t place = 0; place < kStreams; ++place) {
      const bool of_the_last = PlaceInRound(kSeed, round, kStreams - 1, kStreams) == place;
      absl::StrAppend(&text, of_the_last || round < 300 ? SlotLine(round) : "does not parse", "\n");
    }
  }
  ASSERT_TRUE(WriteFileAtomically(Path("uneven"), text).ok());
  const InProcessResult result = Run({.overrides = {"data.train.files=\"uneven\"", "data.bad_line=SKIP", "train.seed=5",
                                                    "train.epochs=1", "train.digest_every_steps=0", "train.lanes=4"}});
  // 37 steps of 8 a lane and one of 4 from three lanes, 8 from the fourth: 20 of 32.
  EXPECT_EQ(result.summary.steps, 38);
  EXPECT_TRUE(result.summary.left_out_more);
  EXPECT_GT(result.summary.left_out, result.summary.examples / 100);
  EXPECT_LT(result.summary.left_out, kLines - 38 * 8);
}

}  // namespace
}  // namespace weir
