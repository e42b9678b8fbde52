// Losses of scores beside other scores on real runs: they learn what the labels say, and give the same bits on every
// cluster, with any number of threads and after a resume.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/slot_job.h"
#include "tests/testing/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// The slot a is a query, the slot b an item; two towers and every loss that compares scores.
constexpr char kRankingJob[] = R"(
name: "ranking"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" }
    slot { name: "b" }
  }
  batch_size: 64
}
model {
  layer { name: "queries" embedding { ids: "a" table: "query_vectors" pooling: SUM } }
  layer { name: "items" embedding { ids: "b" table: "item_vectors" pooling: SUM } }
  layer { name: "query" fc { input: "queries" input: "x" size: 8 } }
  layer { name: "item" fc { input: "items" size: 8 } }
  layer { name: "products" mul { input: "query" input: "item" } }
  layer { name: "score" reduce_sum { input: "products" axis: 1 keep_dim: true } }
  layer { name: "others" fc { input: "x" size: 4 } }
  loss { in_batch_softmax { query: "query" item: "item" item_id: "b" label: "label" temperature: 2 } }
  loss { weight: 0.5 bpr_loss { positive: "score" negative: "others" label: "label" } }
  loss { weight: 0.25 pairwise_hinge_loss { positive: "score" negative: "others" label: "label" } }
  loss { weight: 0.25 sampled_softmax { positive: "score" negative: "others" label: "label" } }
  loss { weight: 0.5 sigmoid_cross_entropy { logits: "score" label: "label" } }
  loss { weight: 0.1 listwise_softmax { scores: "others" label: "four" } }
  loss { weight: 0.1 name: "several" sigmoid_cross_entropy { logits: "others" label: "four" } }
}
table { name: "query_vectors" width: 8 is_sparse: true is_distributed: true }
table { name: "item_vectors" width: 8 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 4 seed: 3 lanes: 4 digest_every_steps: 10 }
)";

class RankingLossesTest : public SlotJobTest {
 protected:
  // Labels of four candidates, made of the data's own.
  static std::string Job() {
    return absl::StrReplaceAll(
        kRankingJob,
        {{"  loss { in_batch",
          R"(  layer { name: "four" concat { input: "label" input: "label" input: "label" input: "label" } }
  loss { in_batch)"}});
  }
};

TEST_F(RankingLossesTest, TheSameBitsOnEveryClusterAndAfterAResume) {
  const InProcessResult one = Run({.job_text = Job(), .overrides = {CheckpointIn("one")}});
  ASSERT_GT(one.digests.size(), 5u);
  EXPECT_GT(one.summary.eval->auc, 0.7);
  const auto same = [&](const char* name, InProcessRun other) {
    other.job_text = Job();
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
  };
  same("cluster", {.servers = 2, .trainers = 3});
  same("threads", {.threads = 3});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2, .threads = 2});
  Run({.job_text = Job(), .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  const InProcessResult resumed =
      Run({.job_text = Job(), .overrides = {CheckpointIn("resumed")}, .trainers = 2, .resume = true});
  EXPECT_EQ(EvalLines(resumed), EvalLines(one));
}

// Matrix factorisation with a weight of each item, and drawn negatives.
constexpr char kDrawnJob[] = R"(
name: "drawn"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" }
    slot { name: "b" }
  }
  derived { name: "none" negatives { of: "b" count: 4 uniform { first: 100 items: 50 } } }
  batch_size: 64
}
model {
  layer { name: "query" embedding { ids: "a" table: "query_vectors" pooling: SUM } }
  layer { name: "item" embedding { ids: "b" table: "item_vectors" pooling: SUM } }
  layer { name: "others" embedding { ids: "none" table: "item_vectors" sequence: 4 } }
  layer { name: "liked" embedding { ids: "b" table: "item_weights" pooling: SUM } }
  layer { name: "other_liked" embedding { ids: "none" table: "item_weights" sequence: 4 } }
  layer { name: "other_weights" reshape { input: "other_liked" dims: 4 } }
  layer { name: "product" dot { x: "query" y: "item" } }
  layer { name: "products" dot { x: "query" y: "others" } }
  layer { name: "score" add { input: "product" input: "liked" } }
  layer { name: "other_scores" add { input: "products" input: "other_weights" } }
  loss { sampled_softmax { positive: "score" negative: "other_scores" label: "label" } }
}
table { name: "query_vectors" width: 2 is_sparse: true is_distributed: true }
table { name: "item_vectors" width: 2 is_sparse: true is_distributed: true }
table { name: "item_weights" width: 1 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 6 seed: 3 lanes: 4 digest_every_steps: 10 }
)";

TEST_F(RankingLossesTest, NegativesAreDrawnAlikeOnEveryCluster) {
  const InProcessResult one = Run({.job_text = kDrawnJob, .overrides = {CheckpointIn("drawn")}});
  ASSERT_GT(one.digests.size(), 5u);
  // The labels say which items are liked, and drawn ones are liked as often as all.
  EXPECT_GT(one.summary.eval->auc, 0.6);
  const auto same = [&](const char* name, InProcessRun other) {
    other.job_text = kDrawnJob;
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
  };
  same("cluster", {.servers = 2, .trainers = 3});
  same("threads", {.overrides = {"data.shuffle=ALL"}, .threads = 3});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2, .threads = 2});
  // In the fourth epoch: its draws are those of a run that was not interrupted.
  Run({.job_text = kDrawnJob, .overrides = {CheckpointIn("drawn_resumed"), "train.max_steps=110"}});
  const InProcessResult resumed =
      Run({.job_text = kDrawnJob, .overrides = {CheckpointIn("drawn_resumed")}, .trainers = 2, .resume = true});
  EXPECT_EQ(EvalLines(resumed), EvalLines(one));
  EXPECT_EQ(resumed.digests.back(), one.digests.back());
  // Another seed draws otherwise.
  const InProcessResult other = Run({.job_text = kDrawnJob, .overrides = {"train.seed=4"}});
  EXPECT_NE(other.digests, one.digests);
}

}  // namespace
}  // namespace weir
