// Pictures in IDX files: the fashion_mnist example comes to the accuracy that networks of its size reach.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
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

TEST(FashionMnistTest, ReachesItsAccuracyInFiveEpochs) {
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/fashion-mnist/train-images-idx3-ubyte.gz"))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (fashion-mnist)";
  }
  const std::string dir = ::testing::TempDir() + "/fashion_mnist";
  std::filesystem::create_directories(dir);
  const std::string prepare = absl::StrCat("examples/fashion_mnist/prepare --output=", dir, "/data > /dev/null");
  ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;

  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = Contents("examples/fashion_mnist/job.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"},
                      .servers = 1,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples, 5 * 60000);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 10000);
  EXPECT_GE(result->summary.eval->accuracy, 0.86);
  // No network of this size is known to come so far: labels would have leaked into the input.
  EXPECT_LE(result->summary.eval->accuracy, 0.9);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
