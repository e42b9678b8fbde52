// Several tasks with labels of their own, of which some are missing: the same bits on every cluster, with any number of
// threads and after a resume; and figures of each task over the examples that have its label.

#include <cstdint>
#include <fstream>
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

constexpr char kJob[] = R"(
name: "tasks"
data {
  train { files: "tasks.txt" }
  eval { files: "tasks_eval.txt" }
  multi_slot {
    slot { name: "label" type: FLOAT }
    slot { name: "buys" type: FLOAT }
    slot { name: "pays" type: FLOAT }
    slot { name: "x" type: FLOAT dim: 4 }
    slot { name: "a" output: "cat" }
    slot { name: "b" output: "cat" }
  }
  batch_size: 64
}
model {
  layer { name: "fields" embedding { ids: "cat" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "x" } }
  layer { name: "shared" mmoe { input: "input" experts: 3 sizes: [16, 8] tasks: 3 } }
  layer { name: "click" fc { input: "shared.0" size: 1 } }
  layer { name: "buy" fc { input: "shared.1" size: 1 } }
  layer { name: "pay" fc { input: "shared.2" size: 1 } }
  loss { name: "ctr" sigmoid_cross_entropy { logits: "click" label: "label" } }
  loss { name: "cvr" weight: 0.5 label_may_be_missing: true sigmoid_cross_entropy { logits: "buy" label: "buys" } }
  loss { name: "price" weight: 0.1 label_may_be_missing: true square_error { input: "pay" label: "pays" } }
}
table { name: "vectors" width: 4 is_sparse: true is_distributed: true }
optimizer { adam { learning_rate: 0.01 } }
metric { name: "cvr_auc" auc {} loss: "cvr" }
metric { name: "price_rmse" rmse {} loss: "price" }
train { epochs: 4 seed: 3 lanes: 4 digest_every_steps: 10 }
)";

// Whoever clicks may buy; of others nothing is known.
std::string TaskLine(int64_t n) {
  const std::vector<std::string> words = absl::StrSplit(SlotLine(n), absl::MaxSplits(' ', 2));
  const bool clicks = words[1] == "1";
  const std::string buys = clicks ? absl::StrCat("1 ", SlotLabel(n + 1000000)) : "0";
  const std::string pays = clicks && n % 3 == 0 ? absl::StrCat("1 ", n % 7) : "0";
  return absl::StrCat("1 ", words[1], " ", buys, " ", pays, " ", words[2]);
}

class MultiTaskTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    std::ofstream train(Path("tasks.txt")), eval(Path("tasks_eval.txt"));
    for (int64_t n = 0; n < 2000; ++n) train << TaskLine(n) << "\n";
    for (int64_t n = 2000; n < 3000; ++n) eval << TaskLine(n) << "\n";
  }
};

TEST_F(MultiTaskTest, TheSameBitsOnEveryClusterAndAfterAResume) {
  const InProcessResult one = Run({.job_text = kJob, .overrides = {CheckpointIn("one")}});
  ASSERT_GT(one.digests.size(), 5u);
  EXPECT_GT(one.summary.eval->Measure("auc"), 0.75);
  EXPECT_THAT(EvalLines(one).back(), HasSubstr(" cvr_auc=0."));
  EXPECT_THAT(EvalLines(one).back(), HasSubstr(" price_rmse="));
  const auto same = [&](const char* name, InProcessRun other) {
    other.job_text = kJob;
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
  };
  same("cluster", {.servers = 2, .trainers = 3});
  same("threads", {.threads = 3});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2, .threads = 2});
  Run({.job_text = kJob, .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  const InProcessResult resumed =
      Run({.job_text = kJob, .overrides = {CheckpointIn("resumed")}, .trainers = 2, .resume = true});
  EXPECT_EQ(EvalLines(resumed), EvalLines(one));
}

// The weights are parameters like any other; reports show the losses themselves.
TEST_F(MultiTaskTest, LearnedWeightsOfTasksBehindExpertsOfTheirOwn) {
  const std::string job =
      absl::StrReplaceAll(kJob, {{"mmoe { input: \"input\" experts: 3 sizes: [16, 8] tasks: 3 }",
                                  "ple { input: \"input\" task_experts: 1 shared_experts: 2 sizes: [16, 8] tasks: 3 }"},
                                 {"name: \"ctr\" sigmoid_cross_entropy { logits: \"click\"",
                                  "name: \"ctr\" learned_weight: true square_error { input: \"click\""},
                                 {"name: \"cvr\" weight: 0.5", "name: \"cvr\" learned_weight: true"},
                                 {"name: \"price\" weight: 0.1", "name: \"price\" learned_weight: true"}});
  const InProcessResult one = Run({.job_text = job});
  ASSERT_GT(one.digests.size(), 5u);
  // The square error itself: s has left 0, so that e^-s loss + s / 2 is another number.
  const double rmse = one.summary.eval->Measure("rmse");
  EXPECT_NEAR(one.summary.eval->Measure("loss"), rmse * rmse, 1e-5);
  for (const auto& [name, other] : std::vector<std::pair<std::string, InProcessRun>>{
           {"cluster", {.job_text = job, .servers = 2, .trainers = 3}},
           {"threads", {.job_text = job, .threads = 3}},
           {"shared buffers", {.job_text = job, .overrides = {"distribute.memory_optimize=true"}, .servers = 2}},
           {"all-reduce",
            {.job_text = job, .overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2}}}) {
    const InProcessResult result = Run(other);
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
  }
}

TEST_F(MultiTaskTest, ALabelThatALossNeedsIsABadLine) {
  const auto said = [&](const std::string& job) { return std::string(TryRun({.job_text = job}).status().message()); };
  EXPECT_THAT(said(absl::StrReplaceAll(kJob, {{"weight: 0.5 label_may_be_missing: true", "weight: 0.5"}})),
              HasSubstr("'buys' is missing"));
  // Another loss that needs it is named before the data are read.
  EXPECT_THAT(said(absl::StrReplaceAll(kJob, {{"  loss { name: \"price\"",
                                               "  loss { name: \"again\" hinge_loss { scores: "
                                               "\"buy\" label: \"buys\" } }\n  loss { name: "
                                               "\"price\""}})),
              HasSubstr("label_may_be_missing is set for 'buys', but loss 'again' needs it in every example"));
  std::ofstream(Path("wrong.txt")) << "1 1 1 3 0 4 0 0 0 0 1 1 1 100\n";
  EXPECT_THAT(said(absl::StrReplaceAll(kJob, {{"\"tasks.txt\"", "\"wrong.txt\""}})),
              HasSubstr("'buys' is 3; sigmoid_cross_entropy_with_logits needs 0 or 1"));
}

}  // namespace
}  // namespace weir
