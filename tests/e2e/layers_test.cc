// Layers of attention, recurrence and products of vectors, norms, and activations with parameters: the same bits on
// every cluster, with any number of threads and after a resume, and models that learn.

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/history_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

// A block of a transformer over what was read before, and the interest in an item (tests/testing/jobs/history_job.h).
constexpr char kSequenceJob[] = R"(
name: "attention"
data {
  train { files: "history/train.txt" }
  eval { files: "history/eval.txt" }
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
  layer { name: "target" embedding { ids: "item" table: "items" pooling: SUM } }
  layer { name: "read" embedding { ids: "history" table: "items" sequence: 6 padding_id: -1 } }
  layer { name: "placed" add_positions { input: "read" from_end: true } }
  layer { name: "norm" layer_norm { input: "placed" } }
  layer { name: "look" self_attention { input: "norm" heads: 2 size: 6 causal: true length: "read.length" } }
  layer { name: "seen" add { input: "placed" input: "look" } }
  layer { name: "wide" fc { input: "seen" size: 8 per_element: true } }
  layer { name: "bent" prelu { input: "wide" } }
  layer { name: "narrow" fc { input: "bent" size: 4 per_element: true activation: TANH } }
  layer { name: "kept" add { input: "seen" input: "narrow" } }
  layer { name: "state" sequence_pool { input: "kept" type: LAST length: "read.length" } }
  layer { name: "interest" attention_pool { query: "target" sequence: "kept" length: "read.length" sizes: 8 } }
  layer { name: "input" concat { input: "target" input: "state" input: "interest" input: "x" } }
  layer { name: "deep" fc { input: "input" size: 16 } }
  layer { name: "active" dice { input: "deep" } }
  layer { name: "out" fc { input: "active" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table {
  name: "items" width: 4 is_sparse: true is_distributed: true optimizer { adagrad { learning_rate: 0.1 } }
  initializer { uniform { min: -0.5 max: 0.5 } }
}
optimizer { adam { learning_rate: 0.01 } }
train { seed: 3 epochs: 3 lanes: 4 digest_every_steps: 40 }
)";

// AutoInt (Song et al. 2019): slots attend to each other, with a residual connection.
constexpr char kSlotsJob[] = R"(
name: "autoint"
data {
  train { files: "train.txt" }
  eval { files: "eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" pooling: SUM per_slot: true } }
  layer { name: "look" self_attention { input: "fields" heads: 2 size: 8 project: false } }
  layer { name: "kept" fc { input: "fields" size: 8 per_element: true bias: false } }
  layer { name: "sum" add { input: "look" input: "kept" } }
  layer { name: "bent" prelu { input: "sum" per_column: false initial: 0 } }
  layer { name: "input" concat { input: "bent" input: "x" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.02 } }
train { epochs: 4 seed: 3 lanes: 4 digest_every_steps: 10 }
)";

// gru, cin and bilinear.
constexpr char kInteractionsJob[] = R"(
name: "interactions"
data {
  train { files: "history/train.txt" }
  eval { files: "history/eval.txt" }
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

class LayersTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    std::filesystem::create_directories(Path("history"));
    WriteHistoryData(Path("history"));
  }

  // Compares runs of a job, and returns the AUC.
  static double CheckBits(const std::string& job) {
    const InProcessResult one = Run({.job_text = job, .overrides = {CheckpointIn("one")}});
    EXPECT_GT(one.digests.size(), 5u);
    const auto same = [&](const char* name, InProcessRun other) {
      other.job_text = job;
      const InProcessResult result = Run(std::move(other));
      EXPECT_EQ(result.digests, one.digests) << name;
      EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
    };
    same("cluster", {.servers = 2, .trainers = 3});
    same("threads", {.threads = 3});
    same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2, .threads = 2});
    same("memory", {.overrides = {"distribute.memory_optimize=true"}, .servers = 1, .trainers = 2});
    Run({.job_text = job, .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
    const InProcessResult resumed =
        Run({.job_text = job, .overrides = {CheckpointIn("resumed")}, .trainers = 2, .resume = true});
    EXPECT_EQ(EvalLines(resumed), EvalLines(one));
    std::filesystem::remove_all(Path("one"));
    std::filesystem::remove_all(Path("resumed"));
    return one.summary.eval.has_value() ? one.summary.eval->Measure("auc") : 0;
  }
};

TEST_F(LayersTest, ASequenceLearnsWithTheSameBitsOnEveryCluster) { EXPECT_GT(CheckBits(kSequenceJob), 0.7); }

TEST_F(LayersTest, InteractionsLearnWithTheSameBitsOnEveryCluster) { EXPECT_GT(CheckBits(kInteractionsJob), 0.75); }

TEST_F(LayersTest, SlotsLearnWithTheSameBitsOnEveryCluster) { EXPECT_GT(CheckBits(kSlotsJob), 0.75); }

}  // namespace
}  // namespace weir
