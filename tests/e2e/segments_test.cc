// The wide and the deep part of a model in one table, trained: it is what two tables are, on any cluster and after a
// resume.
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/checkpoint/digest.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr char kTables[] = R"(table { name: "vectors" width: 4 is_sparse: true is_distributed: true )"
                           R"(optimizer { adagrad { learning_rate: 0.05 } } }
table { name: "weights" width: 1 is_sparse: true is_distributed: true optimizer { ftrl {} } })";
constexpr char kLayers[] = R"(  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "wide" embedding { ids: "cat" table: "weights" pooling: SUM } })";

// One table: a weight, then a vector. `deep`: more of the vector's segment.
std::string SegmentsJob(const std::string& deep) {
  return absl::StrReplaceAll(
      kSlotJob, {{kTables, absl::StrCat(R"(table { name: "rows" width: 5 is_sparse: true is_distributed: true
  segment { width: 1 optimizer { ftrl {} } initializer { constant {} } }
  segment { width: 4 optimizer { adagrad { learning_rate: 0.05 } } )",
                                        deep, " } }")},
                 {kLayers, R"(  layer { name: "row" embedding { ids: "cat" table: "rows" } }
  layer { name: "part" split { input: "row" sizes: [1, 4] axis: 2 } }
  layer { name: "wide" reduce_sum { input: "part.0" axis: 1 } })"},
                 {"input: \"fields\"", "input: \"part.1\""},
                 {"digest_every_steps: 100", "digest_every_steps: 20 max_steps: 40"}});
}

class SegmentsTest : public SlotJobTest {
 protected:
  static DigestTable DigestsIn(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(dir_ + "/" + name);
    EXPECT_TRUE(newest.ok()) << newest.status();
    if (!newest.ok()) return {};
    absl::StatusOr<DigestTable> digests = CheckpointDigests(newest->found.path, newest->manifest);
    EXPECT_TRUE(digests.ok()) << digests.status();
    return digests.ok() ? *std::move(digests) : DigestTable();
  }
};

constexpr char kLater[] = "after: 3 initializer { gaussian { stddev: 0.1 } }";

TEST_F(SegmentsTest, OneTableIsWhatTwoAre) {
  // Initial values hang on names: constants do not.
  const std::string two =
      absl::StrReplaceAll(kSlotJob, {{"adagrad { learning_rate: 0.05 } }",
                                      "adagrad { learning_rate: 0.05 } } initializer { constant { value: 0.05 } }"},
                                     {"digest_every_steps: 100", "digest_every_steps: 20 max_steps: 40"}});
  Run({.job_text = two, .overrides = {CheckpointIn("two")}, .servers = 2, .trainers = 2});
  Run({.job_text = SegmentsJob("initializer { constant { value: 0.05 } }"),
       .overrides = {CheckpointIn("one")},
       .servers = 2,
       .trainers = 2});
  DigestTable apart = DigestsIn("two"), together = DigestsIn("one");
  for (const char* dense : {"deep.w", "deep.b", "out.w", "out.b"}) {
    EXPECT_EQ(together.at(dense).values, apart.at(dense).values) << dense;
    EXPECT_EQ(together.at(dense).state, apart.at(dense).state) << dense;
  }
  EXPECT_EQ(together.count("rows"), 1u);
}

TEST_F(SegmentsTest, SameBitsOnAnyClusterAndAfterAResume) {
  const std::string job = SegmentsJob(kLater);
  const InProcessResult alone = Run({.job_text = job});
  ASSERT_EQ(alone.digests.size(), 2u);
  EXPECT_EQ(Run({.job_text = job, .servers = 3, .trainers = 2}).digests, alone.digests);
  EXPECT_EQ(Run({.job_text = job, .servers = 2, .trainers = 4, .threads = 2}).digests, alone.digests);
  // Ids of slot b are in fewer steps than those would need.
  EXPECT_NE(Run({.job_text = SegmentsJob("after: 4 initializer { gaussian { stddev: 0.1 } }")}).digests, alone.digests);
  const std::string checkpoints = CheckpointIn("later");
  Run({.job_text = job, .overrides = {checkpoints, "train.max_steps=20"}, .servers = 2, .trainers = 2});
  const InProcessResult resumed = Run({.job_text = job, .overrides = {checkpoints}, .servers = 3, .resume = true});
  ASSERT_EQ(resumed.digests.size(), 1u);
  EXPECT_EQ(resumed.digests[0], alone.digests[1]);
}

TEST_F(SegmentsTest, ACheckpointOfOtherSegmentsIsRefused) {
  const std::string checkpoints = CheckpointIn("other");
  Run({.job_text = SegmentsJob(""), .overrides = {checkpoints, "train.max_steps=3"}});
  const auto resumed = TryRun({.job_text = SegmentsJob(kLater), .overrides = {checkpoints}, .resume = true});
  ASSERT_FALSE(resumed.ok());
  EXPECT_THAT(std::string(resumed.status().message()), HasSubstr("steps"));
}

TEST_F(SegmentsTest, AnEpochReachesTheAucOfTwoTables) {
  const InProcessResult trained =
      Run({.job_text = SegmentsJob(kLater), .overrides = {"train.max_steps=0"}, .servers = 2, .trainers = 2});
  ASSERT_TRUE(trained.summary.eval.has_value());
  EXPECT_GE(trained.summary.eval->Measure("auc"), kSlotJobAuc);
}

}  // namespace
}  // namespace weir
