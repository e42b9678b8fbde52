// Real data, one epoch: the flights example reaches the AUC that its data set's README gives as reference, with the
// same bits local and on a cluster, and nearly the same in async.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class FlightsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const char* data = std::getenv("WEIR_DATA_DIR");
    if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/nycflights-late/flights.csv.gz"))) return;
    dir_ = ::testing::TempDir() + "/flights";
    std::filesystem::create_directories(dir_);
    const std::string prepare = absl::StrCat("examples/flights/prepare --output=", dir_, "/data > /dev/null");
    ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;
  }
  static void TearDownTestSuite() {
    if (!dir_.empty()) std::filesystem::remove_all(dir_);
  }
  void SetUp() override {
    if (dir_.empty()) GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late)";
  }

  static InProcessResult Run(InProcessRun run) {
    run.job_text = Contents("examples/flights/job.textproto");
    run.directory = dir_;
    run.overrides.push_back("checkpoint.dir=\"\"");
    run.overrides.push_back("checkpoint.every_steps=0");
    run.overrides.push_back("train.digest_every_steps=100");
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }

  static std::string dir_;
};
std::string FlightsTest::dir_;

TEST_F(FlightsTest, SyncReachesTheReferenceAucWithTheSameBitsLocalAndDistributed) {
  const InProcessResult local = Run({.threads = 2});
  ASSERT_TRUE(local.summary.eval.has_value());
  EXPECT_GE(local.summary.eval->Measure("auc"), 0.766);
  EXPECT_EQ(local.summary.eval->samples, 32735);
  EXPECT_EQ(local.summary.examples + local.summary.left_out, 294611);
  EXPECT_LT(local.summary.eval->measures[1].error.value(), 1e-4);

  const InProcessResult cluster = Run({.servers = 2, .trainers = 2});
  ASSERT_TRUE(cluster.summary.eval.has_value());
  EXPECT_EQ(cluster.digests, local.digests);
  EXPECT_FALSE(local.digests.empty());
  EXPECT_EQ(cluster.summary.eval->Measure("auc"), local.summary.eval->Measure("auc"));
  EXPECT_EQ(cluster.summary.eval->Measure("loss"), local.summary.eval->Measure("loss"));
}

TEST_F(FlightsTest, AsyncComesClose) {
  const InProcessResult result = Run({.overrides = {"distribute.sync=false"}, .servers = 2, .trainers = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_GE(result.summary.eval->Measure("auc"), 0.76);
}

// Sparse tables, Adam, a schedule, and a norm over all gradients that is above its bound: the same bits after 200 steps
// on every cluster.
TEST_F(FlightsTest, AScheduleAndAGlobalNormChangeNoBitOnAnyCluster) {
  const auto run = [](int servers, int trainers, const std::string& clip) {
    return Run({.overrides = {"train.max_steps=200",
                              "optimizer.schedule={cosine { decay_steps: 300 } warm_up { steps: 20 }}", clip},
                .servers = servers,
                .trainers = trainers});
  };
  const std::string clip = "optimizer.clip={by_global_norm { max_norm: 0.02 }}";
  const InProcessResult reference = run(1, 1, clip);
  ASSERT_EQ(reference.digests.size(), 2u);
  for (const int trainers : {1, 2, 3, 4, 8}) {
    for (const int servers : {1, 2, 3}) {
      if (servers == 1 && trainers == 1) continue;
      EXPECT_EQ(run(servers, trainers, clip).digests, reference.digests)
          << servers << " servers, " << trainers << " trainers";
    }
  }
  EXPECT_NE(run(1, 1, "optimizer.clip={by_global_norm { max_norm: 1e9 }}").digests, reference.digests);
}

}  // namespace
}  // namespace weir
