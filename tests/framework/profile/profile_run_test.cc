#include "framework/profile/profile_run.h"

#include <filesystem>
#include <string>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "framework/base/atomic_file.h"
#include "framework/profile/profiler.h"
#include "framework/profile/trace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(std::string, profile);
ABSL_DECLARE_FLAG(std::string, profile_steps);
ABSL_DECLARE_FLAG(bool, profile_table);

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class ProfileRunTest : public ::testing::Test {
 protected:
  ProfileRunTest()
      : directory_(::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
    absl::SetFlag(&FLAGS_profile, directory_ + "/trace.json");
    absl::SetFlag(&FLAGS_profile_steps, "1:3");
    absl::SetFlag(&FLAGS_profile_table, true);
  }
  ~ProfileRunTest() override { Profiler::Process().Stop(); }

  static void Step(int64_t step) { const ProfileSpan span(step, ProfileKind::kStep, "step"); }
  int StepsInFile() {
    const auto trace = ReadTrace(directory_ + "/trace.json");
    EXPECT_TRUE(trace.ok()) << trace.status();
    int steps = 0;
    for (const v1::TraceEvent& event : trace->trace_events()) steps += event.cat() == "step";
    return steps;
  }

  const std::string directory_;
};

TEST_F(ProfileRunTest, WithoutTheFlagNothingIsRecordedOrWritten) {
  absl::SetFlag(&FLAGS_profile, "");
  auto run = ProfileRun::Start("trainer 0");
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(Profiler::Started());
  Step(1);
  EXPECT_EQ(run->Finish(), "");
  EXPECT_TRUE(std::filesystem::is_empty(directory_));
}

TEST_F(ProfileRunTest, TheFileIsThereWhenTheLastStepOfTheWindowIsDone) {
  auto run = ProfileRun::Start("trainer 0");
  ASSERT_TRUE(run.ok()) << run.status();
  for (int64_t step = 0; step < 2; ++step) {
    Step(step);
    run->AfterStep(step + 1);
  }
  EXPECT_FALSE(PathExists(directory_ + "/trace.json"));
  Step(2);
  run->AfterStep(3);
  EXPECT_EQ(StepsInFile(), 2);
  Step(3);
  EXPECT_THAT(run->Finish(), HasSubstr("trainer 0: 2 steps of"));
  EXPECT_EQ(StepsInFile(), 2);
}

TEST_F(ProfileRunTest, ARunThatEndsEarlierWritesWhatThereIs) {
  absl::SetFlag(&FLAGS_profile_table, false);
  auto run = ProfileRun::Start("trainer 0");
  ASSERT_TRUE(run.ok()) << run.status();
  Step(1);
  EXPECT_EQ(run->Finish(), "");
  EXPECT_EQ(StepsInFile(), 1);
}

TEST_F(ProfileRunTest, PartsArePutTogetherWithoutThoseThatAreNotThere) {
  auto run = ProfileRun::Start("trainer 0");
  ASSERT_TRUE(run.ok()) << run.status();
  Step(1);
  run->Finish();
  WriteFileAtomically(directory_ + "/half.json", "{\"traceEvents\":[").IgnoreError();
  const auto table = MergeProfiles({{"trainer 0", directory_ + "/trace.json"},
                                    {"trainer 1", directory_ + "/none.json"},
                                    {"server 0", directory_ + "/half.json"}},
                                   directory_ + "/all.json");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_THAT(*table, HasSubstr("trainer 0: 1 step of"));
  EXPECT_THAT(*table, HasSubstr("no trace of trainer 1, which was killed"));
  EXPECT_THAT(*table, HasSubstr("no trace of server 0, which was killed"));
  EXPECT_THAT(*table, Not(HasSubstr("no trace of trainer 0")));
  EXPECT_TRUE(ReadTrace(directory_ + "/all.json").ok());
}

TEST_F(ProfileRunTest, WrongFlagsAreRefused) {
  for (const char* steps : {"", "20", "20:", ":40", "40:20", "20:20", "-1:4", "a:b", "1:2:3"}) {
    absl::SetFlag(&FLAGS_profile_steps, steps);
    const absl::Status status = ReadProfileFlags().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << steps;
    EXPECT_THAT(std::string(status.message()), HasSubstr("BEGIN:END is wanted")) << steps;
  }
  absl::SetFlag(&FLAGS_profile_steps, "0:5");
  absl::SetFlag(&FLAGS_profile, directory_ + "/nowhere/trace.json");
  EXPECT_THAT(std::string(ReadProfileFlags().status().message()),
              HasSubstr("nowhere is no directory that can be written"));
  absl::SetFlag(&FLAGS_profile, directory_);
  EXPECT_THAT(std::string(ReadProfileFlags().status().message()), HasSubstr("is a directory; a file is wanted"));
}

}  // namespace
}  // namespace weir
