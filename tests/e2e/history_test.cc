// A job of sequences, attention, cross networks and products of pairs: the same bits on every cluster, and it learns.
#include <filesystem>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/history_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

class HistoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/history";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteHistoryData(dir_);
  }
  static void TearDownTestSuite() { std::filesystem::remove_all(dir_); }

  static absl::StatusOr<InProcessResult> TryRun(InProcessRun run) {
    run.job_text = kHistoryJob;
    run.directory = dir_;
    return TrainInProcess(run);
  }
  static InProcessResult Run(InProcessRun run) {
    absl::StatusOr<InProcessResult> result = TryRun(std::move(run));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  // The first 120 steps.
  static InProcessResult Short(int servers, int trainers, std::vector<std::string> overrides = {}, int threads = 1) {
    overrides.push_back("train.max_steps=120");
    return Run({.overrides = std::move(overrides), .servers = servers, .trainers = trainers, .threads = threads});
  }

  static std::string dir_;
};
std::string HistoryTest::dir_;

TEST_F(HistoryTest, LearnsWhatAnItemAndItsHistoryHaveInCommon) {
  const InProcessResult result = Run({.servers = 2, .trainers = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_GE(result.summary.eval->Measure("auc"), 0.75);
}

TEST_F(HistoryTest, SameBitsOnEveryCluster) {
  const InProcessResult reference = Short(1, 1);
  ASSERT_EQ(reference.digests.size(), 2u);
  for (const auto& [servers, trainers, threads] :
       {std::tuple{1, 1, 2}, std::tuple{2, 2, 1}, std::tuple{3, 1, 1}, std::tuple{2, 8, 1}}) {
    const InProcessResult result = Short(servers, trainers, {}, threads);
    EXPECT_EQ(result.digests, reference.digests) << servers << " servers, " << trainers << " trainers";
    ASSERT_TRUE(result.summary.eval.has_value());
    EXPECT_EQ(result.summary.eval->Measure("loss"), reference.summary.eval->Measure("loss"));
  }
  EXPECT_EQ(Short(2, 2, {"distribute.memory_optimize=true"}).digests, reference.digests);
  EXPECT_EQ(Short(2, 2, {"table[3].fetch=WHOLE"}).digests, reference.digests);
}

TEST_F(HistoryTest, IdsThatAreNotReadAreNeitherFetchedNorUpdated) {
  const auto counters = [](int sequence) {
    return Short(1, 1, {absl::StrCat("model.layer[10].embedding.sequence=", sequence)}).counters[0];
  };
  const auto one = counters(1), two = counters(2);
  EXPECT_LT(one.rows_pulled, two.rows_pulled);
  EXPECT_LT(one.rows_pushed, two.rows_pushed);
}

TEST_F(HistoryTest, RowsOfSequencesAreFetchedAheadInAsync) {
  const InProcessResult result = Short(2, 2, {"distribute.sync=false", "distribute.prefetch_rows=true"});
  EXPECT_GT(result.summary.steps, 0);
  EXPECT_TRUE(result.summary.eval.has_value());
}

TEST_F(HistoryTest, TheLengthOfAnotherSequenceIsRefused) {
  // Up to 6 where there are 3.
  const absl::StatusOr<InProcessResult> result =
      TryRun({.overrides = {"model.layer[8].sequence_pool.length=\"read.length\""}});
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("has sequences of 0 to 3 elements"));
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("sequence_pool"));
}

}  // namespace
}  // namespace weir
