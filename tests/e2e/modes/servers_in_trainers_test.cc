// Jobs without server processes (distribute.servers: 0): the same bits as one process and as a cluster with servers,
// from checkpoints of either kind, and the same predictions.

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

std::string Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

class ServersInTrainersTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/servers_in_trainers";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
    // A parameter that is cut (12 x 2000), a distributed table, a sparse one that is not, Adam, and a norm over all.
    job_ = absl::StrReplaceAll(
        kSlotJob,
        {{"size: 16", "size: 2000"},
         {"width: 1 is_sparse: true is_distributed: true", "width: 1 dict_size: 150 is_sparse: true"},
         {"adam { learning_rate: 0.005 }", "adam { learning_rate: 0.005 } clip { by_global_norm { max_norm: 0.05 } }"},
         {"epochs: 8 digest_every_steps: 100", "epochs: 1 digest_every_steps: 20 max_steps: 60"}});
    reference_ = new InProcessResult(Run({.overrides = {CheckpointDir("reference")}}));
  }
  static void TearDownTestSuite() {
    delete reference_;
    std::filesystem::remove_all(dir_);
  }

  static InProcessResult Run(InProcessRun run) {
    run.job_text = job_;
    run.directory = dir_;
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  static std::string CheckpointDir(const std::string& name) {
    std::filesystem::remove_all(dir_ + "/" + name);
    return absl::StrCat("checkpoint.dir=\"", dir_, "/", name, "\"");
  }

  static std::string dir_, job_;
  static InProcessResult* reference_;
};
std::string ServersInTrainersTest::dir_, ServersInTrainersTest::job_;
InProcessResult* ServersInTrainersTest::reference_ = nullptr;

TEST_F(ServersInTrainersTest, SameBitsAsInOneProcess) {
  ASSERT_EQ(reference_->digests.size(), 3u);
  EXPECT_EQ(Run({.servers = 2, .trainers = 2}).digests, reference_->digests);
  for (const int trainers : {2, 3}) {
    const InProcessResult result = Run({.servers = 0, .trainers = trainers, .threads = trainers - 1});
    EXPECT_EQ(result.digests, reference_->digests) << trainers;
    EXPECT_EQ(result.summary.examples, reference_->summary.examples);
    EXPECT_EQ(result.plan.servers(), trainers);
    EXPECT_EQ(static_cast<int>(result.server_counters.size()), trainers);
  }
}

TEST_F(ServersInTrainersTest, CheckpointsResumeWithServersAndWithout) {
  struct Corner {
    int servers, trainers;
  };
  for (const auto& [first, second] : {std::pair(Corner{0, 3}, Corner{2, 2}), std::pair(Corner{2, 3}, Corner{0, 2})}) {
    const std::string dir = CheckpointDir("corners");
    Run({.overrides = {dir, "train.max_steps=40"}, .servers = first.servers, .trainers = first.trainers});
    const InProcessResult resumed =
        Run({.overrides = {dir}, .servers = second.servers, .trainers = second.trainers, .resume = true});
    ASSERT_EQ(resumed.digests.size(), 1u) << first.servers;
    EXPECT_EQ(resumed.digests[0], reference_->digests[2]) << first.servers;
  }
}

TEST_F(ServersInTrainersTest, PredictionsAreThoseOfOneProcess) {
  const auto predict = [](int servers, int trainers, const std::string& name) {
    const absl::StatusOr<int64_t> scored =
        PredictInProcess({.job_text = job_, .directory = dir_, .servers = servers, .trainers = trainers},
                         {.checkpoints = dir_ + "/reference", .output = dir_ + "/" + name});
    EXPECT_TRUE(scored.ok()) << scored.status();
    return Contents(dir_ + "/" + name);
  };
  const std::string alone = predict(1, 1, "alone");
  EXPECT_GT(alone.size(), 1000u);
  EXPECT_EQ(predict(0, 3, "inside"), alone);
}

}  // namespace
}  // namespace weir
