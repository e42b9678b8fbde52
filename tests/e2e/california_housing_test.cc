// Real data in CSV: the california_housing example comes to the error that networks of its size reach.

#include <cmath>
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

TEST(CaliforniaHousingTest, ReachesItsErrorInTenEpochs) {
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/california-housing/housing.csv.gz"))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (california-housing)";
  }
  const std::string dir = ::testing::TempDir() + "/california_housing";
  std::filesystem::create_directories(dir);
  const std::string prepare = absl::StrCat("examples/california_housing/prepare --output=", dir, "/data > /dev/null");
  ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;

  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = Contents("examples/california_housing/job.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"},
                      .servers = 1,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->summary.examples + result->summary.left_out, 10 * 16512);
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 4128);
  // Networks of this size reach 0.551 to 0.568 after ten epochs, least squares 0.674.
  EXPECT_LE(std::sqrt(result->summary.eval->Measure("loss")), 0.575);
  EXPECT_GE(std::sqrt(result->summary.eval->Measure("loss")), 0.5);
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace weir
