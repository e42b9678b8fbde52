// The split set against the unsplit program with loss scaling: gradients that overflow are skipped by both, and both
// scales move alike.
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/arithmetic.h"
#include "trainer/verify/verify_split.h"
#include "transpiler/job/load_job.h"

namespace weir {
namespace {

Job JobOf(const std::string& text, const std::vector<std::string>& overrides) {
  const absl::Status arithmetic = SetArithmetic(v1::Train::AUTO);
  EXPECT_TRUE(arithmetic.ok()) << arithmetic;
  auto job = ParseJob(text, "job.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *std::move(job) : Job();
}

TEST(VerifyLossScalingTest, BothSkipWhatOverflowsAndGoOnAtOneScale) {
  const std::string file = ::testing::TempDir() + "/scaled.txt";
  {
    // A weight's gradient is about 1e30 times the scale in every second step.
    std::ofstream out(file);
    for (int i = 0; i < 256; ++i) {
      out << "1 " << i % 2 << " 2 0." << i % 10 << " " << (i / 4 % 2 == 0 ? "1e30" : "0.25") << " 1 " << i % 2 << "\n";
    }
  }
  const std::string text = "name: \"scaled\" data { train { files: \"" + file + R"(" } multi_slot {
    slot { name: "label" type: FLOAT } slot { name: "x" type: FLOAT dim: 2 } slot { name: "id" } }
  shuffle: NO_SHUFFLE batch_size: 32 }
model {
  layer { name: "vector" embedding { ids: "id" table: "vectors" pooling: SUM } }
  layer { name: "norm" batch_norm { input: "vector" } }
  layer { name: "input" concat { input: "x" input: "norm" } }
  layer { name: "out" fc { input: "input" size: 1 } }
  loss { sigmoid_cross_entropy { logits: "out" label: "label" } }
}
table { name: "vectors" width: 2 is_sparse: true is_distributed: true optimizer { adagrad {} } }
optimizer { adam { learning_rate: 0.01 } }
distribute { servers: 2 trainers: 2 }
)";
  for (const std::vector<std::string>& overrides : std::vector<std::vector<std::string>>{
           {"train.loss_scaling={ initial: 1099511627776 most: 1099511627776 growth_every: 1 }"},
           {"train.loss_scaling={}"},
           {"train.loss_scaling={ initial: 1099511627776 most: 1099511627776 backoff: 0.0000152587890625 }",
            "train.accumulate_steps=2"},
           {"train.loss_scaling={ initial: 1099511627776 most: 1099511627776 growth_every: 1 }",
            "distribute.dense=ALL_REDUCE", "distribute.trainers=3"},
           {"train.loss_scaling={ initial: 1099511627776 most: 1099511627776 growth_every: 1 }",
            "distribute.dense=ALL_REDUCE", "distribute.trainers=3", "train.accumulate_steps=2",
            "distribute.all_reduce={reduction: ADASUM}"},
           {"train.loss_scaling={ initial: 1099511627776 most: 1099511627776 growth_every: 1 }",
            "distribute.dense=ALL_REDUCE", "distribute.update=SHARDED", "distribute.trainers=3"}}) {
    const auto report = VerifySplit(JobOf(text, overrides), {.steps = 8});
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->equal) << overrides[0] << ": " << report->text;
  }
}

}  // namespace
}  // namespace weir
