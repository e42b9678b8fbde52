// Derived variables and rows by a rule on real runs: the same bits on every cluster and after a resume, in evaluation
// and prediction alike; a split of one file by a rule is the split into two files.

#include <cstdint>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

// Ids of slot b are 100 to 149: three tenths of them are for evaluation.
constexpr char kTrainRule[] = "where { of: \"b\" modulo: 10 remainder: 3 remainder: 4 remainder: 9 invert: true }";
constexpr char kEvalRule[] = "where { of: \"b\" modulo: 10 remainder: 3 remainder: 4 remainder: 9 }";
bool IsForEval(const std::string& line) {
  const std::vector<std::string> words = absl::StrSplit(line, ' ');
  int64_t b = 0;
  EXPECT_TRUE(absl::SimpleAtoi(words.back(), &b)) << line;
  return b % 10 == 3 || b % 10 == 4 || b % 10 == 9;
}

class DerivedColumnsTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    std::ofstream all(Path("all.txt")), eval(Path("by_hand.txt"));
    for (int64_t n = 0; n < 3000; ++n) {
      const std::string line = SlotLine(n);
      all << line << "\n";
      if (!IsForEval(line)) continue;
      eval << line << "\n";
      ++evaluated_;
    }
  }
  static std::string Job(const std::string& eval) {
    return absl::StrReplaceAll(
        kSlotJob, {{"train { files: \"train.txt\" }", absl::StrCat("train { files: \"all.txt\" ", kTrainRule, " }")},
                   {"eval { files: \"eval.txt\" }", absl::StrCat("eval { ", eval, " }")},
                   {"  batch_size: 32", R"(  dense { transform: STANDARDIZE }
  derived { name: "a_x_b" cross { of: "a" of: "b" } }
  derived { name: "x_bucket" bucketize { of: "x[0]" boundaries: -0.5 boundaries: 0 boundaries: 0.5 } }
  derived { name: "all" cross { of: "a_x_b" of: "x_bucket" buckets: 1000 seed: 5 } }
  batch_size: 32)"},
                   {"layer { name: \"input\" concat { input: \"fields\" ",
                    R"(layer { name: "crossed" embedding { ids: "a_x_b" ids: "x_bucket" ids: "all" table: "vectors" } }
  layer { name: "input" concat { input: "fields" input: "crossed" )"},
                   {"epochs: 8", "epochs: 2"}});
  }
  static uint64_t StateIn(const std::string& name) {
    const absl::StatusOr<NewestCheckpoint> newest = OpenCheckpoint(Path(name));
    EXPECT_TRUE(newest.ok()) << newest.status();
    return newest.ok() ? newest->manifest.state_digest() : 0;
  }

  static inline int64_t evaluated_ = 0;
};

TEST_F(DerivedColumnsTest, TheSameBitsOnEveryClusterAndAfterAResume) {
  const std::string job = Job(absl::StrCat("files: \"all.txt\" ", kEvalRule));
  const InProcessResult one =
      Run({.job_text = job, .overrides = {CheckpointIn("one"), "train.digest_every_steps=10", "data.shuffle=ALL"}});
  // Two epochs of the others, less what is left over.
  EXPECT_NEAR(static_cast<double>(one.summary.examples), 2.0 * static_cast<double>(3000 - evaluated_), 64);
  const auto same = [&](const char* name, InProcessRun other) {
    other.job_text = job;
    other.overrides.insert(other.overrides.end(), {CheckpointIn(name), "train.digest_every_steps=10"});
    const InProcessResult result = Run(std::move(other));
    EXPECT_EQ(result.digests, one.digests) << name;
    EXPECT_EQ(EvalLines(result), EvalLines(one)) << name;
    EXPECT_EQ(StateIn(name), StateIn("one")) << name;
  };
  ASSERT_GT(one.digests.size(), 5u);
  same("two", {.servers = 2, .trainers = 3, .threads = 2});
  same("collective", {.overrides = {"distribute.mode=COLLECTIVE"}, .servers = 0, .trainers = 2});

  Run({.job_text = job, .overrides = {CheckpointIn("resumed"), "train.max_steps=50"}});
  const InProcessResult resumed =
      Run({.job_text = job, .overrides = {CheckpointIn("resumed")}, .servers = 2, .trainers = 2, .resume = true});
  EXPECT_EQ(StateIn("resumed"), StateIn("one"));
  EXPECT_EQ(EvalLines(resumed), EvalLines(one));
}

TEST_F(DerivedColumnsTest, ARuleEvaluatesWhatAFileOfItsLinesDoes) {
  const InProcessResult by_rule =
      Run({.job_text = Job(absl::StrCat("files: \"all.txt\" ", kEvalRule)), .overrides = {CheckpointIn("by_rule")}});
  const InProcessResult by_hand = Run({.job_text = Job("files: \"by_hand.txt\"")});
  EXPECT_THAT(EvalLines(by_hand).back(), HasSubstr(absl::StrCat("examples=", evaluated_, " ")));
  EXPECT_EQ(EvalLines(by_rule), EvalLines(by_hand));

  // Prediction of data.eval has the examples of the rule; of files that are named, all.
  const auto lines = [](const std::string& name) {
    std::ifstream in(Path(name));
    std::vector<std::string> all;
    for (std::string line; std::getline(in, line);) all.push_back(line);
    return all;
  };
  const auto predict = [&](const std::string& eval, const std::string& input, const std::string& output) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = Job(eval), .directory = dir_, .trainers = 2},
                         {.checkpoints = Path("by_rule"), .input = input, .output = Path(output)});
    EXPECT_TRUE(scored.ok()) << scored.status();
  };
  predict(absl::StrCat("files: \"all.txt\" ", kEvalRule), "", "by_rule.scores");
  predict("files: \"by_hand.txt\"", "", "by_hand.scores");
  predict(absl::StrCat("files: \"all.txt\" ", kEvalRule), Path("by_hand.txt"), "named.scores");
  const std::vector<std::string> by_rule_scores = lines("by_rule.scores"), by_hand_scores = lines("by_hand.scores");
  EXPECT_EQ(lines("named.scores"), by_hand_scores);
  ASSERT_EQ(by_hand_scores.size(), static_cast<size_t>(evaluated_));
  ASSERT_EQ(by_rule_scores.size(), by_hand_scores.size());
  for (size_t i = 0; i < by_hand_scores.size(); ++i) {
    // Examples of the two files meet in other batches, and a product of few rows may round otherwise.
    double by_rule_score = 0, by_hand_score = 0;
    ASSERT_TRUE(absl::SimpleAtod(by_rule_scores[i], &by_rule_score) &&
                absl::SimpleAtod(by_hand_scores[i], &by_hand_score));
    EXPECT_NEAR(by_rule_score, by_hand_score, 1e-6) << i;
  }
}

TEST_F(DerivedColumnsTest, ARuleThatKeepsNothingIsNamed) {
  std::string job = Job("files: \"by_hand.txt\"");
  job = absl::StrReplaceAll(job, {{kTrainRule, "where { of: \"b\" from: 1000 }"}});
  const absl::Status none = TryRun({.job_text = job}).status();
  EXPECT_THAT(std::string(none.message()), HasSubstr("there are no examples to train on in 1 file"));
  EXPECT_THAT(std::string(none.message()), HasSubstr("data.train.where may leave out all"));
}

}  // namespace
}  // namespace weir
