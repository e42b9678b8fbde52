// What a run that goes on from a checkpoint knows of the one before.
#include "trainer/progress/run_progress.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/clock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"

namespace weir {
namespace {

class RunProgressTest : public ::testing::Test {
 protected:
  // A run of the name that does steps from `step` to `last`, one each second, and ends in good order or dies.
  v1::RunProgress Run(const std::string& name, int64_t step, bool resumed, int64_t last, bool ends,
                      int64_t restarts = 0) {
    RunProgress run(dir_.path(), name, &clock_);
    run.Begin(step, resumed, restarts);
    while (step < last) {
      clock_.Advance(absl::Seconds(1));
      run.Step(++step);
    }
    if (ends) run.End();
    goodput_ = run.Goodput();
    return run.now();
  }
  std::string file() const { return JoinPath(dir_.path(), RunProgress::kFile); }

  double goodput_ = 0;  // of the last run
  TempDir dir_;
  FakeClock clock_{absl::FromUnixSeconds(1'800'000'000)};
};

TEST_F(RunProgressTest, ARunThatDiesLosesTimeAndSteps) {
  EXPECT_EQ(Run("a", 0, false, 17, /*ends=*/false).restarts(), 0);
  clock_.Advance(absl::Seconds(5));
  const v1::RunProgress second = Run("a", 10, true, 30, /*ends=*/false);
  EXPECT_EQ(second.restarts(), 1);
  EXPECT_EQ(second.repeated_steps(), 7);
  EXPECT_DOUBLE_EQ(second.lost_seconds(), 6);  // to the end of the first step
  // 36 s of 42, in which 37 steps were done for 30.
  EXPECT_DOUBLE_EQ(goodput_, 36.0 / 42 * 30 / 37);
  clock_.Advance(absl::Seconds(2));
  const v1::RunProgress third = Run("a", 30, true, 40, /*ends=*/true);
  EXPECT_EQ(third.restarts(), 2);
  EXPECT_EQ(third.repeated_steps(), 7);
  EXPECT_DOUBLE_EQ(third.lost_seconds(), 9);
  EXPECT_DOUBLE_EQ(goodput_, 45.0 / 54 * 40 / 47);
}

TEST_F(RunProgressTest, AStopIsNoDeathAndTheSumsGoOn) {
  Run("a", 0, false, 5, /*ends=*/false);
  EXPECT_EQ(goodput_, 1);
  Run("a", 5, true, 10, /*ends=*/true);
  clock_.Advance(absl::Hours(9));
  const v1::RunProgress resumed = Run("a", 10, true, 20, /*ends=*/true);
  EXPECT_EQ(resumed.restarts(), 1);
  EXPECT_DOUBLE_EQ(resumed.lost_seconds(), 1);
  EXPECT_DOUBLE_EQ(goodput_, 0.95);
}

TEST_F(RunProgressTest, AStartThatDidNotComeSoFarCountsTooIfItIsToldOf) {
  Run("a", 0, false, 5, /*ends=*/false);
  EXPECT_EQ(Run("a", 5, true, 6, /*ends=*/true, /*restarts=*/3).restarts(), 3);
}

TEST_F(RunProgressTest, ARunThatBeginsAfreshHasLostNothingUnlessItIsTheSame) {
  Run("a", 0, false, 5, /*ends=*/false);
  EXPECT_EQ(Run("b", 0, false, 5, /*ends=*/false).restarts(), 0);
  const v1::RunProgress again = Run("b", 0, false, 5, /*ends=*/true);
  EXPECT_EQ(again.restarts(), 1);
  EXPECT_EQ(again.repeated_steps(), 5);
  EXPECT_EQ(Run("", 0, false, 5, /*ends=*/true).restarts(), 0);
  EXPECT_EQ(Run("", 0, false, 5, /*ends=*/true).restarts(), 0);
}

TEST_F(RunProgressTest, ADamagedFileOrNoneCostsTheFiguresAlone) {
  for (const char* const text : {"", "step: -5 time: 1e300", "step: 9", "\x80\xff", "repeated_steps: 1 }"}) {
    std::ofstream(file()) << text;
    EXPECT_GE(Run("a", 3, true, 5, /*ends=*/true).lost_seconds(), 0) << text;
  }
  std::filesystem::remove(file());
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(Run("a", 3, true, 5, /*ends=*/true).restarts(), 0);
  std::filesystem::remove(file());
  dir_.Write("elsewhere", "kept");
  std::filesystem::create_symlink(JoinPath(dir_.path(), "elsewhere"), file());
  Run("a", 3, true, 5, /*ends=*/true);
  EXPECT_EQ(*ReadWholeFile(JoinPath(dir_.path(), "elsewhere")), "kept");
}

TEST_F(RunProgressTest, AShorterTextDoesNotEndInTheRestOfALongerOne) {
  Run(std::string(200, 'n'), 0, false, 100000, /*ends=*/false);
  Run("a", 0, false, 1, /*ends=*/true);
  const std::string text = *ReadWholeFile(file());
  EXPECT_TRUE(text.starts_with("run: \"a\"")) << text;
  EXPECT_EQ(text.find('n', text.find('\n')), text.find("ended") + 1) << text;
}

}  // namespace
}  // namespace weir
