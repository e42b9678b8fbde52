// --start_from, beside jobs with and without start_from.
#include "transpiler/start/start_from_flag.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/transpiler/jobs.h"
#include "transpiler/job/load_job.h"
#include "transpiler/job/start_paths.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class StartFromFlagTest : public ::testing::Test {
 protected:
  ~StartFromFlagTest() override { absl::SetFlag(&FLAGS_start_from, ""); }

  static absl::StatusOr<Job> Read(const std::string& more, const std::vector<std::string>& start_from,
                                  const std::vector<std::string>& overrides = {}) {
    return ParseJob(absl::StrCat(kDeepFm, more), "job.textproto", overrides, {.start_from = start_from});
  }
};

TEST_F(StartFromFlagTest, PathsAreThoseOfTheWorkingDirectory) {
  EXPECT_THAT(*StartFromFlag(), IsEmpty());
  absl::SetFlag(&FLAGS_start_from, "days/1/,/models/../a");
  const std::string here = std::filesystem::current_path().string();
  EXPECT_THAT(*StartFromFlag(), ElementsAre(here + "/days/1", "/a"));
  absl::SetFlag(&FLAGS_start_from, "a,,b");
  EXPECT_EQ(StartFromFlag().status().message(), "--start_from=a,,b: directory 1 is blank, must be DIR or DIR,DIR");
}

TEST_F(StartFromFlagTest, AJobWithoutStartFromGetsOneForEach) {
  const absl::StatusOr<Job> job = Read("", {"/a", "/b"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(StartPaths(*job), ElementsAre("/a", "/b"));
}

TEST_F(StartFromFlagTest, TheRulesOfTheJobStayAndItsCheckpointIsReplaced) {
  const absl::StatusOr<Job> job =
      Read("start_from { checkpoint: \"old\" new: \"x\" new_values: ZERO }", {"/a b"}, {"start_from[0].drop=y"});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_THAT(StartPaths(*job), ElementsAre("/a b"));
  const v1::StartFrom& from = job->config.start_from(0);
  EXPECT_EQ(from.new_(0), "x");
  EXPECT_EQ(from.drop(0), "y");
  EXPECT_EQ(from.new_values(), v1::StartFrom::ZERO);
  // A job that leaves the checkpoint to the flag.
  EXPECT_TRUE(Read("start_from { new: \"x\" }", {"/a"}).ok());
  EXPECT_THAT(Read("start_from { new: \"x\" }", {}).status().message(),
              AllOf(HasSubstr("start_from[0].checkpoint: is missing"), HasSubstr("--start_from")));
}

TEST_F(StartFromFlagTest, AnotherNumberThanTheJobHasIsRefused) {
  EXPECT_THAT(Read("start_from { checkpoint: \"old\" }", {"/a", "/b"}).status().message(),
              AllOf(HasSubstr("job.textproto:"),
                    HasSubstr("--start_from names 2 checkpoints (/a, /b), but the job has 1 start_from, whose "
                              "checkpoints they replace: name one for each, in their order")));
}

}  // namespace
}  // namespace weir
