// The jobs of examples/corners on a part of the real data: the same bits in every corner, and those of the jobs of
// examples/flights and examples/fashion_mnist with servers.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/pictures.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

constexpr char kDenseOnServers[] = "distribute.dense=SERVERS";

class CornersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = ::testing::TempDir() + "/corners";
    std::filesystem::remove_all(dir_);
    // Paths in the jobs lead through it.
    std::filesystem::create_directories(dir_ + "/corners");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  // `job`: file under examples/, whose directory the paths in it are relative to.
  InProcessResult Run(const std::string& job, InProcessRun run) {
    run.job_text = ContentsOf("examples/" + job);
    run.directory = dir_ + "/" + std::filesystem::path(job).parent_path().string();
    run.overrides.insert(run.overrides.end(), {"checkpoint={}", absl::StrCat("train.max_steps=", max_steps_),
                                               absl::StrCat("train.digest_every_steps=", max_steps_ / 2)});
    absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *std::move(result) : InProcessResult();
  }
  void ExpectSame(const InProcessResult& result, const InProcessResult& reference) {
    EXPECT_EQ(result.digests, reference.digests);
    EXPECT_EQ(result.summary.examples, reference.summary.examples);
    ASSERT_TRUE(result.summary.eval.has_value());
    EXPECT_EQ(result.summary.eval->Measure("loss"), reference.summary.eval->Measure("loss"));
    EXPECT_EQ(result.summary.eval->ToString(), reference.summary.eval->ToString());
  }

  std::string dir_;
  int max_steps_ = 0;
};

TEST_F(CornersTest, FlightsHaveTheSameBitsInEveryCorner) {
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/nycflights-late/flights.csv.gz"))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late)";
  }
  const std::string prepare =
      absl::StrCat("examples/flights/prepare --rows=40000 --output=", dir_, "/flights/data > /dev/null");
  ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;
  max_steps_ = 60;
  const InProcessResult reference = Run("flights/job.textproto", {.servers = 2, .trainers = 2});
  ASSERT_EQ(reference.digests.size(), 2u);
  ASSERT_TRUE(reference.summary.eval.has_value());
  EXPECT_NE(reference.digests[0], reference.digests[1]);

  for (const int servers : {0, 2}) {
    for (const int trainers : {2, 3}) {
      const std::string corner = absl::StrCat(servers, " servers, ", trainers, " trainers");
      SCOPED_TRACE(corner);
      const InProcessResult all_reduced = Run("corners/flights.textproto", {.servers = servers, .trainers = trainers});
      ExpectSame(all_reduced, reference);
      for (const v1::PlacedBlock& block : all_reduced.plan.blocks()) EXPECT_EQ(block.server(), -1) << block.name();
      const InProcessResult on_servers =
          Run("corners/flights.textproto", {.overrides = {kDenseOnServers}, .servers = servers, .trainers = trainers});
      ExpectSame(on_servers, reference);
      for (const v1::PlacedBlock& block : on_servers.plan.blocks()) EXPECT_GE(block.server(), 0) << block.name();
    }
  }
}

TEST_F(CornersTest, PicturesInNccl2ModeHaveTheBitsOfServers) {
  if (!FashionMnistIsThere()) GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  ASSERT_TRUE(PrepareFashionMnist(dir_ + "/fashion_mnist", /*train=*/4096, /*eval=*/512));
  max_steps_ = 12;
  const InProcessResult reference = Run("fashion_mnist/cnn.textproto", {.servers = 1, .trainers = 2});
  ASSERT_EQ(reference.digests.size(), 2u);
  ASSERT_TRUE(reference.summary.eval.has_value());
  EXPECT_NE(reference.digests[0], reference.digests[1]);
  for (const int trainers : {2, 3}) {
    SCOPED_TRACE(trainers);
    const InProcessResult result =
        Run("corners/fashion_mnist.textproto", {.servers = 0, .trainers = trainers, .shuffle = 7});
    ExpectSame(result, reference);
    for (const v1::PlacedBlock& block : result.plan.blocks()) EXPECT_EQ(block.server(), -1) << block.name();
  }
}

}  // namespace
}  // namespace weir
