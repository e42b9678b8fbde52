// A job with gru, cin and bilinear: the same bits on every cluster, with any number of threads and after a resume, and
// it learns.
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/history_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr char kJob[] = R"(
name: "interactions"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 2 }
    slot { name: "item" }
    slot { name: "history" }
  }
  ids { shared: "item" shared: "history" empty: ZERO }
  batch_size: 64
}
model {
  layer { name: "target" embedding { ids: "item" table: "items" } }
  layer { name: "read" embedding { ids: "history" table: "items" sequence: 6 padding_id: -1 } }
  layer { name: "states" gru { input: "read" size: 8 sequence: true } }
  layer { name: "interest" attention_pool { query: "target" sequence: "states" length: "read.length" sizes: 8 } }
  layer { name: "last" gru { input: "read" size: 8 } }
  layer { name: "mean" sequence_pool { input: "read" } }
  layer { name: "halves" cin { input: "target" input: "interest" input: "mean" sizes: [8, 6] split_half: true } }
  layer { name: "active" cin { input: "target" input: "last" input: "mean" sizes: [5, 4] activation: RELU } }
  layer { name: "pairs" bilinear { input: "target" input: "last" input: "mean" type: INTERACTION } }
  layer { name: "all" concat { input: "halves" input: "active" input: "pairs" input: "x" } }
  layer { name: "deep" mlp { input: "all" sizes: [16] } }
  layer { name: "logit" fc { input: "deep" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "logit" label: "label" } }
}
table { name: "items" width: 8 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.01 } }
train { epochs: 3 seed: 5 lanes: 8 digest_every_steps: 40 }
)";

class InteractionsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/interactions";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteHistoryData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static InProcessResult Run(InProcessRun run) {
    run.job_text = kJob;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  static std::string dir_;
};
std::string InteractionsTest::dir_;

TEST_F(InteractionsTest, TheSameBitsOnEveryClusterAndAfterAResume) {
  const InProcessResult one = Run({});
  ASSERT_GT(one.digests.size(), 3u);
  ASSERT_TRUE(one.summary.eval.has_value());
  EXPECT_GE(one.summary.eval->auc, 0.75);
  const auto same = [&](const char* name, InProcessRun other) {
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    ASSERT_TRUE(result.summary.eval.has_value());
    EXPECT_EQ(result.summary.eval->loss, one.summary.eval->loss) << name;
  };
  same("cluster", {.servers = 2, .trainers = 3});
  same("threads", {.threads = 3});
  same("shared buffers", {.overrides = {"distribute.memory_optimize=true"}, .servers = 2, .trainers = 2});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2});
  const std::vector<std::string> kept = {absl::StrCat("checkpoint.dir=\"", dir_, "/kept\""), "train.max_steps=100"};
  Run({.overrides = kept});
  const InProcessResult resumed = Run({.overrides = {kept[0]}, .trainers = 2, .resume = true});
  EXPECT_EQ(resumed.digests.back(), one.digests.back());
}

}  // namespace
}  // namespace weir
