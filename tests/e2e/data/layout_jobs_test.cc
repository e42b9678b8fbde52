// One job for each layout of public data, trained on examples of a known model in that layout, comes to the AUC of the
// same model in PyTorch (tests/bench/layouts_torch.py; examples/layouts/README.md has the figures).

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

namespace fs = std::filesystem;

std::string Contents(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A directory of its own.
std::string Directory(const std::string& name) {
  std::string dir = ::testing::TempDir() + "/layout_" + name;
  fs::remove_all(dir);
  fs::create_directories(dir + "/data");
  return dir;
}

struct Layout {
  std::string name = {};
  std::string job = {};
  // Mean of the program in PyTorch over at least eight seeds.
  double auc = 0;
  // Of one seed from that mean: what Weir's seeds differ by, and the .002 by which means may.
  double tolerance = 0;
  std::vector<std::string> overrides = {};
};

void PrintTo(const Layout& layout, std::ostream* out) { *out << layout.name; }

absl::StatusOr<InProcessResult> Train(const Layout& layout, const std::string& dir) {
  std::vector<std::string> overrides = layout.overrides;
  overrides.push_back("checkpoint.dir=\"\"");
  overrides.push_back("checkpoint.every_steps=0");
  return TrainInProcess({.job_text = Contents("examples/" + layout.job),
                         .directory = dir,
                         .overrides = overrides,
                         .servers = 2,
                         .trainers = 2});
}

class LayoutJobsTest : public ::testing::TestWithParam<Layout> {};

TEST_P(LayoutJobsTest, ReachesTheAucThatTheModelReachesInPyTorch) {
  const Layout& layout = GetParam();
  const std::string dir = Directory(layout.name);
  const std::string generate =
      absl::StrCat("examples/layouts/generate ", layout.name, " --output=", dir, "/data > /dev/null");
  ASSERT_EQ(std::system(generate.c_str()), 0) << generate;
  const absl::StatusOr<InProcessResult> result = Train(layout, dir);
  fs::remove_all(dir);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_GT(result->summary.eval->samples, 12000);
  EXPECT_NEAR(result->summary.eval->Measure("auc"), layout.auc, layout.tolerance);
}

// The job's batch is for 40 million lines.
Layout Avazu() {
  return {.name = "avazu",
          .job = "avazu/job.textproto",
          .auc = 0.7843,
          .tolerance = 0.006,
          .overrides = {"data.batch_size=512", "train.eval_every_steps=0", "data.train.files=\"data/avazu/train.gz\"",
                        "data.eval.files=\"data/avazu/train.gz\""}};
}

Layout Of(const std::string& name, double auc, double tolerance) {
  return {.name = name, .job = "layouts/" + name + ".textproto", .auc = auc, .tolerance = tolerance};
}

INSTANTIATE_TEST_SUITE_P(Layouts, LayoutJobsTest,
                         ::testing::Values(Avazu(), Of("bank", 0.7916, 0.004), Of("criteo", 0.7988, 0.004),
                                           Of("libffm", 0.7180, 0.004), Of("libsvm", 0.8401, 0.003),
                                           Of("list_csv", 0.7364, 0.003), Of("slot_sign", 0.7691, 0.004),
                                           Of("tfrecord", 0.7395, 0.003)),
                         [](const ::testing::TestParamInfo<Layout>& layout) { return layout.param.name; });

TEST(LayoutFlightsTest, AreReadAsTheyAreJoined) {
  const char* const data = std::getenv("WEIR_DATA_DIR");
  const std::string flights = absl::StrCat(data == nullptr ? "" : data, "/nycflights-late/flights.csv.gz");
  if (data == nullptr || !fs::exists(flights)) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (nycflights-late)";
  }
  const std::string dir = Directory("nycflights");
  fs::create_directories(dir + "/data/nycflights");
  fs::copy_file(flights, dir + "/data/nycflights/flights.csv.gz");
  const absl::StatusOr<InProcessResult> result = Train({.job = "layouts/nycflights.textproto"}, dir);
  fs::remove_all(dir);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 31611) << "the days 10, 20 and 30";
  EXPECT_NEAR(result->summary.eval->Measure("auc"), 0.7403, 0.004);
}

// A generator that gave other bytes would give other figures.
TEST(LayoutGeneratorTest, TheSameSeedGivesTheSameBytes) {
  const std::string one = Directory("one"), two = Directory("two");
  for (const std::string& dir : {one, two}) {
    const std::string generate = absl::StrCat("examples/layouts/generate --lines=1000 --output=", dir, " > /dev/null");
    ASSERT_EQ(std::system(generate.c_str()), 0) << generate;
  }
  int files = 0;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(one)) {
    if (!entry.is_regular_file()) continue;
    ++files;
    const std::string name = fs::relative(entry.path(), one).string();
    EXPECT_EQ(Contents(entry.path().string()), Contents(two + "/" + name)) << name;
  }
  EXPECT_EQ(files, 23);
  fs::remove_all(one);
  fs::remove_all(two);
}

}  // namespace
}  // namespace weir
