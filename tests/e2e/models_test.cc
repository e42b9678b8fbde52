// Real data: the models beside DeepFM reach the figures that their READMEs state. Above what is known to be possible,
// labels would have leaked into the input.

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

struct Example {
  std::string directory, job;
  std::string data;  // that must be there
  int64_t samples;   // to test on
  double least, most;
};

class ModelsTest : public ::testing::TestWithParam<Example> {
 protected:
  static void TearDownTestSuite() {
    for (const char* example : {"flights", "movielens"}) {
      std::filesystem::remove_all(absl::StrCat(::testing::TempDir(), "/", example));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(
    Examples, ModelsTest,
    ::testing::Values(Example{"flights", "wide_and_deep", "nycflights-late/flights.csv.gz", 32735, 0.770, 0.80},
                      Example{"flights", "dcn_v2", "nycflights-late/flights.csv.gz", 32735, 0.780, 0.80},
                      Example{"flights", "dlrm", "nycflights-late/flights.csv.gz", 32735, 0.776, 0.80},
                      Example{"flights", "xdeepfm", "nycflights-late/flights.csv.gz", 32735, 0.780, 0.80},
                      Example{"movielens", "din", "movielens-latest-small/ratings.csv.gz", 19940, 0.763, 0.80},
                      Example{"movielens", "skip_gram", "movielens-latest-small/ratings.csv.gz", 122215, 0.63, 0.75},
                      Example{"movielens", "sasrec", "movielens-latest-small/ratings.csv.gz", 61610, 0.86, 0.90}),
    [](const auto& info) { return info.param.job; });

TEST_P(ModelsTest, ReachesItsAuc) {
  const Example& example = GetParam();
  const char* data = std::getenv("WEIR_DATA_DIR");
  if (data == nullptr || !std::filesystem::exists(absl::StrCat(data, "/", example.data))) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (" << example.data << ")";
  }
  // Models of one example share its data, which takes as long to prepare as a model to train.
  const std::string dir = absl::StrCat(::testing::TempDir(), "/", example.directory);
  if (!std::filesystem::exists(dir)) {
    std::filesystem::create_directories(dir);
    const std::string prepare =
        absl::StrCat("examples/", example.directory, "/prepare --output=", dir, "/data > /dev/null");
    ASSERT_EQ(std::system(prepare.c_str()), 0) << prepare;
  }
  std::ifstream job(absl::StrCat("examples/", example.directory, "/", example.job, ".textproto"));
  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = std::string(std::istreambuf_iterator<char>(job), {}),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"},
                      .servers = 2,
                      .trainers = 2});
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, example.samples);
  EXPECT_GE(result->summary.eval->Measure("auc"), example.least);
  EXPECT_LE(result->summary.eval->Measure("auc"), example.most);
}

}  // namespace
}  // namespace weir
