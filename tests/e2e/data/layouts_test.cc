// Files as they are published, read by a job alone: no script converts them before.

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

std::string Contents(const std::string& file) {
  std::ifstream in(file);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

// A directory of its own, with a folder "data".
std::string Directory(const std::string& name) {
  const std::string dir = ::testing::TempDir() + "/" + name;
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir + "/data");
  return dir;
}

// Lines of Avazu's layout, of two days, of which the second is for evaluation. Site and hour of the day say how often
// there is a click. Returns the number of lines of the second day.
int WriteAvazu(const std::string& file, int lines) {
  std::ofstream out(file);
  out << "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,device_id,"
         "device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21\n";
  int evaluated = 0;
  for (int i = 0; i < lines; ++i) {
    const PhiloxBlock r = Philox(5, static_cast<uint64_t>(i), 0), s = Philox(5, static_cast<uint64_t>(i), 1);
    const int hour = i * 48 / lines, site = static_cast<int>(r.v[0] % 20);
    const double logit = 1.5 * std::sin(site * 2.0) + (hour % 24 >= 18 ? 1.2 : -0.6);
    const bool click = r.v[1] < 4294967296.0 / (1 + std::exp(-logit));
    evaluated += hour >= 24;
    const std::string day = hour < 24 ? "141029" : "141030";
    out << absl::StrCat("1000", i, ",", click ? 1 : 0, ",", day, hour % 24 < 10 ? "0" : "", hour % 24, ",1005,",
                        r.v[2] % 3, ",s", site, ",d", site % 7, ",28905ebd,a", s.v[0] % 9,
                        ",7801e8d9,07d7df22,a99f214a,ip", s.v[1] % 5000, ",m", s.v[2] % 50, ",1,", s.v[3] % 3, ",",
                        15000 + r.v[3] % 40, ",320,50,1722,0,35,-1,79\n");
  }
  return evaluated;
}

TEST(LayoutsTest, AvazuIsReadAsItIsPublished) {
  const std::string dir = Directory("avazu");
  const int evaluated = WriteAvazu(dir + "/data/train.csv", 9600);
  const absl::StatusOr<InProcessResult> result = TrainInProcess(
      {.job_text = Contents("examples/avazu/job.textproto"),
       .directory = dir,
       .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0", "data.train.files=\"data/train.csv\"",
                     "data.eval.files=\"data/train.csv\"", "data.batch_size=64", "train.epochs=4"},
       .servers = 2,
       .trainers = 2});
  std::filesystem::remove_all(dir);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(evaluated, 4800);
  EXPECT_EQ(result->summary.eval->samples, evaluated) << "the second day, by the rule on the time";
  // What the site and the hour say; 0.5 without them.
  EXPECT_GE(result->summary.eval->Measure("auc"), 0.70);
  EXPECT_LE(result->summary.eval->Measure("auc"), 0.85);
}

TEST(LayoutsTest, AnHourThatIsNoneNamesItsLine) {
  const std::string dir = Directory("avazu_bad");
  WriteAvazu(dir + "/data/train.csv", 100);
  std::ofstream(dir + "/data/train.csv", std::ios::app)
      << "7,0,14103025,1005,0,s,d,c,a,b,c,d,i,m,1,0,1,320,50,1,0,35,-1,79\n";
  const absl::StatusOr<InProcessResult> result = TrainInProcess(
      {.job_text = Contents("examples/avazu/job.textproto"),
       .directory = dir,
       .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0", "data.train.files=\"data/train.csv\"",
                     "data.eval.files=\"data/train.csv\"", "data.batch_size=64"}});
  std::filesystem::remove_all(dir);
  EXPECT_THAT(
      std::string(result.status().message()),
      HasSubstr("data/train.csv:102: field 3 (hour): '14103025' is no time of the form '%y%m%d%H' (time_format)"));
}

TEST(LayoutsTest, MovieLensTrainsTwoTowers) {
  const char* const data = std::getenv("WEIR_DATA_DIR");
  const std::string ratings = absl::StrCat(data == nullptr ? "" : data, "/movielens-latest-small/ratings.csv.gz");
  if (data == nullptr || !std::filesystem::exists(ratings)) {
    GTEST_SKIP() << "WEIR_DATA_DIR does not name the data sets (movielens-latest-small)";
  }
  const std::string dir = Directory("two_tower");
  std::filesystem::copy_file(ratings, dir + "/data/ratings.csv.gz");
  std::vector<std::string> outputs;
  const absl::StatusOr<InProcessResult> result =
      TrainInProcess({.job_text = Contents("examples/movielens/two_tower.textproto"),
                      .directory = dir,
                      .overrides = {"checkpoint.dir=\"\"", "checkpoint.every_steps=0"},
                      .servers = 2,
                      .trainers = 2,
                      .outputs = &outputs});
  std::filesystem::remove_all(dir);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_TRUE(result->summary.eval.has_value());
  EXPECT_EQ(result->summary.eval->samples, 10040);
  // The mean of eight seeds, and three deviations of one.
  EXPECT_NEAR(result->summary.eval->Measure("auc"), 0.638, 0.015) << outputs[0];
}

}  // namespace
}  // namespace weir
