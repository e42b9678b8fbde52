// Pictures in IDX files: the fashion_mnist example comes to the accuracy that networks of its size reach.

#include <filesystem>
#include <string>

#include "gtest/gtest.h"
#include "tests/testing/jobs/pictures.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

TEST(FashionMnistTest, ReachesItsAccuracyInFiveEpochs) {
  if (!FashionMnistIsThere()) GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  const std::string dir = ::testing::TempDir() + "/fashion_mnist";
  ASSERT_TRUE(PrepareFashionMnist(dir));

  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = ContentsOf("examples/fashion_mnist/job.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"},
                      .servers = 1,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples + result->summary.left_out, 5 * 60000);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 10000);
  EXPECT_GE(result->summary.eval->Measure("accuracy"), 0.86);
  // No network of this size is known to come so far: labels would have leaked into the input.
  EXPECT_LE(result->summary.eval->Measure("accuracy"), 0.9);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
