// Vocabularies, frequencies, quantiles and popularities on real runs: the same bits on every cluster, in evaluation and
// after a resume, from one pass over the training data; prediction has what the checkpoint learned, whatever has become
// of the files.

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class LearnedColumnsTest : public SlotJobTest {
 protected:
  void SetUp() override {
    SlotJobTest::SetUp();
    WriteList(100, 130);
  }
  static void WriteList(int first, int end) {
    std::ofstream list(Path("places.txt"));
    for (int id = first; id < end; ++id) list << id << "\n";
  }
  static std::string Job() {
    return absl::StrReplaceAll(kSlotJob, {{"  batch_size: 32", R"(
  derived { name: "a_place" vocabulary { of: "a" learned { most: 40 } unknown_buckets: 4 } }
  derived { name: "b_place" vocabulary { of: "b" file: "places.txt" } }
  derived { name: "x_quantile" bucketize { of: "x[0]" quantiles: 8 } }
  derived { name: "both" cross { of: "a_place" of: "x_quantile" sizes: 44 sizes: 8 } }
  derived { name: "often" frequency { of: "a" } }
  derived { name: "other" negatives { of: "b" count: 2 popularity {} } }
  dense { transform: STANDARDIZE }
  batch_size: 32)"},
                                          {"layer { name: \"input\" concat { input: \"fields\" ", R"(
  layer { name: "learned" embedding { ids: "a_place" ids: "b_place" ids: "x_quantile" ids: "both" table: "vectors" } }
  layer { name: "drawn" embedding { ids: "other" table: "vectors" pooling: SUM } }
  layer { name: "input" concat { input: "fields" input: "learned" input: "drawn" input: "often" )"},
                                          {"epochs: 8", "epochs: 2"}});
  }
  static uint64_t StateIn(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path(name));
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? newest->manifest.state_digest() : 0;
  }
};

TEST_F(LearnedColumnsTest, TheSameBitsOnEveryClusterAndAfterAResume) {
  const InProcessResult one =
      Run({.job_text = Job(), .overrides = {CheckpointIn("one"), "train.digest_every_steps=10"}});
  ASSERT_GT(one.digests.size(), 5u);
  const auto same = [&](const char* name, InProcessRun other) {
    other.job_text = Job();
    other.overrides.insert(other.overrides.end(), {CheckpointIn(name), "train.digest_every_steps=10"});
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
    EXPECT_EQ(StateIn(name), StateIn("one")) << name;
  };
  same("two", {.servers = 2, .trainers = 3, .threads = 2});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2});

  Run({.job_text = Job(), .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  // A resumed run has what the run began with.
  WriteList(120, 150);
  const InProcessResult resumed =
      Run({.job_text = Job(), .overrides = {CheckpointIn("resumed")}, .servers = 2, .trainers = 2, .resume = true});
  EXPECT_EQ(StateIn("resumed"), StateIn("one"));
  EXPECT_EQ(EvalLines(resumed), EvalLines(one));

  // With another list the bits are others.
  const InProcessResult other =
      Run({.job_text = Job(), .overrides = {CheckpointIn("other"), "train.digest_every_steps=10"}});
  EXPECT_NE(StateIn("other"), StateIn("one"));
}

TEST_F(LearnedColumnsTest, PredictionHasWhatTheCheckpointLearned) {
  Run({.job_text = Job(), .overrides = {CheckpointIn("trained")}});
  const auto scores = [&](const std::string& output) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = Job(), .directory = dir_, .trainers = 2},
                         {.checkpoints = Path("trained"), .input = "", .output = Path(output)});
    EXPECT_TRUE(scored.ok()) << scored.status();
    std::ifstream in(Path(output));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
  };
  const std::vector<std::string> first = scores("first");
  ASSERT_EQ(first.size(), 1000u);
  EXPECT_NE(first[0], first[1]);
  WriteList(0, 1);
  EXPECT_EQ(scores("second"), first);
}

TEST_F(LearnedColumnsTest, WhatCannotBeLearnedNamesItsPlaceInTheJob) {
  const std::string job =
      absl::StrReplaceAll(Job(), {{"learned { most: 40 }", "learned { most: 40 min_count: 100000 }"}});
  const absl::Status status = TryRun({.job_text = job, .trainers = 2}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("data.derived[0]: 'a_place': data.train has no value of 'a' that is there 100000 times "
                        "(min_count): the vocabulary would be empty"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(":14:")) << "line and column of the variable in the job";
}

}  // namespace
}  // namespace weir
