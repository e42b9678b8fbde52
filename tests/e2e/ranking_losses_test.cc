// Losses of scores beside other scores on real runs: they learn what the labels say, and give the same bits on every
// cluster, with any number of threads and after a resume.

#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

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
  EXPECT_GT(one.summary.eval->Measure("auc"), 0.7);
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

// In-batch negatives of rows whose probability the data give, without a label.
constexpr char kProbabilityJob[] = R"(
name: "probability"
data {
  train { files: "p.txt" }
  eval { files: "p_eval.txt" }
  multi_slot {
    slot { name: "p" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" }
    slot { name: "b" }
  }
  batch_size: 64
}
model {
  layer { name: "queries" embedding { ids: "a" table: "query_vectors" pooling: SUM } }
  layer { name: "item" embedding { ids: "b" table: "item_vectors" pooling: SUM } }
  layer { name: "joined" concat { input: "queries" input: "x" } }
  layer { name: "query" fc { input: "joined" size: 8 } }
  loss { in_batch_softmax { query: "query" item: "item" item_id: "b" probability: "p" } }
}
table { name: "query_vectors" width: 8 is_sparse: true is_distributed: true }
table { name: "item_vectors" width: 8 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 2 seed: 3 lanes: 4 digest_every_steps: 10 eval_every_steps: 10 }
)";

class ProbabilityTest : public RankingLossesTest {
 protected:
  static void SetUpTestSuite() {
    RankingLossesTest::SetUpTestSuite();
    const auto write = [](const char* name, int64_t begin, int64_t end, const std::string& p) {
      std::ofstream file(Path(name));
      for (int64_t n = begin; n < end; ++n) {
        const std::vector<std::string> words = absl::StrSplit(SlotLine(n), absl::MaxSplits(' ', 2));
        file << (!p.empty() ? p : absl::StrCat("1 0.", n % 7 + 1)) << " " << words[2] << "\n";
      }
    };
    write("p.txt", 0, 2000, "");
    write("p_eval.txt", 2000, 2300, "");
    write("p_zero.txt", 2000, 2300, "1 0");
    write("p_none.txt", 2000, 2300, "0");
  }
};

TEST_F(ProbabilityTest, TransformsReachFeaturesAndNotTheProbability) {
  const std::vector<std::string> plain = Run({.job_text = kProbabilityJob}).digests;
  ASSERT_GT(plain.size(), 2u);
  EXPECT_NE(Run({.job_text = kProbabilityJob, .overrides = {"data.dense.transform=LOG1P"}}).digests, plain);
  // Of all but the features there is no transform: they alone are named.
  EXPECT_EQ(Run({.job_text = absl::StrReplaceAll(kProbabilityJob,
                                                 {{"  batch_size",
                                                   "  dense { transform: LOG1P column { variable: \"x\" index: 0 } "
                                                   "column { variable: \"x\" index: 1 } column { variable: \"x\" "
                                                   "index: 2 } column { variable: \"x\" index: 3 } }\n  batch_size"}})})
                .digests,
            plain);
}

TEST_F(ProbabilityTest, AnEvaluationHasTheLossAlone) {
  // Of six evaluations.
  const InProcessResult result = Run({.job_text = kProbabilityJob, .overrides = {"train.early_stop.patience=5"}});
  ASSERT_GE(EvalLines(result).size(), 6u);
  EXPECT_FALSE(result.summary.early_stopped);
  EXPECT_THAT(EvalLines(result).back(), ::testing::Not(HasSubstr("auc")));
}

TEST_F(ProbabilityTest, ALineWithoutAProbabilityIsABadOneUnlessItIsPredicted) {
  const auto said = [](const std::string& file) {
    return std::string(
        TryRun({.job_text = kProbabilityJob, .overrides = {"data.train.files=[\"" + file + "\"]"}}).status().message());
  };
  EXPECT_THAT(said("p_zero.txt"), HasSubstr("'p' is 0; in_batch_softmax needs a probability, a number above 0"));
  EXPECT_THAT(said("p_none.txt"), HasSubstr("'p' is missing"));
  Run({.job_text = kProbabilityJob, .overrides = {CheckpointIn("probability")}});
  std::vector<std::string> predictions;
  for (const char* const input : {"p_eval.txt", "p_zero.txt", "p_none.txt"}) {
    const absl::StatusOr<int64_t> scored = PredictInProcess(
        {.job_text = kProbabilityJob, .directory = dir_},
        {.checkpoints = Path("probability"), .input = Path(input), .output = Path(absl::StrCat(input, ".out"))});
    ASSERT_TRUE(scored.ok()) << scored.status();
    EXPECT_EQ(*scored, 300);
    std::ifstream file(Path(absl::StrCat(input, ".out")));
    predictions.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  EXPECT_GT(predictions[0].size(), 300u);
  EXPECT_EQ(predictions[1], predictions[0]);
  EXPECT_EQ(predictions[2], predictions[0]);
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
  // The labels say which items are liked, and drawn ones are liked as often as all. 16 seeds give 0.57 to 0.63.
  EXPECT_GT(one.summary.eval->Measure("auc"), 0.55);
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
