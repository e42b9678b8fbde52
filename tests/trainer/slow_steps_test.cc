// Explanations of steps that take much longer than others.
#include "trainer/progress/slow_steps.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/trainer/data/data_testing.h"
#include "trainer/progress/machine_state.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class SlowStepsTest : public ::testing::Test {
 protected:
  void Write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(dir_.path()) / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  // A step of so many milliseconds, none of them waits.
  StepTimes Took(int64_t ms) {
    now_ += absl::Milliseconds(ms);
    return {.step = ++step_, .end = now_, .whole = absl::Milliseconds(ms)};
  }
  std::string Explain(int64_t ms) { return steps_.Explain(Took(ms)); }

  TempDir dir_;
  SlowSteps steps_{10, absl::Seconds(10), MachineState(dir_.path())};
  absl::Time now_ = absl::FromUnixSeconds(1'800'000'000);
  int64_t step_ = 0;
};

TEST_F(SlowStepsTest, AStepIsComparedWithTheMedian) {
  // Uneven ones, of which the median is 70.
  for (int i = 0; i < 65; ++i) ASSERT_EQ(Explain(40 + i % 7 * 10), "");
  EXPECT_EQ(Explain(690), "");
  StepTimes slow = Took(2000);
  slow.data = absl::Milliseconds(30);
  slow.servers = absl::Milliseconds(1900);
  slow.processor = absl::Milliseconds(80);
  slow.longest_wait = absl::Milliseconds(1850);
  slow.longest_wait_for = "version 41 of server 1 (h:1)";
  slow.late_trainer = 2;
  slow.late = absl::Milliseconds(1800);
  EXPECT_EQ(steps_.Explain(slow),
            "step 67 took 2.00 s, 29 times the median of the 64 before it (70 ms): 30 ms waiting for data, 1.90 s for "
            "servers, 70 ms for the rest, in which time this process used 80 ms of processors; longest wait 1.85 s for "
            "version 41 of server 1 (h:1); trainer 2 was the last with its gradients, 1.80 s after the others");
}

TEST_F(SlowStepsTest, FewStepsAndShortOnesAreNotExplained) {
  for (int i = 0; i < 7; ++i) ASSERT_EQ(Explain(i == 0 ? 90'000 : 20), "");
  EXPECT_EQ(Explain(5000), "");  // the eighth
  EXPECT_EQ(Explain(499), "");
  EXPECT_NE(Explain(500), "");
}

TEST_F(SlowStepsTest, LinesKeepTheirDistanceAndCountWhatTheyLeaveOut) {
  for (int i = 0; i < 30; ++i) ASSERT_EQ(Explain(20), "");
  EXPECT_THAT(Explain(600), Not(HasSubstr("other slow steps")));
  EXPECT_EQ(Explain(600), "");
  EXPECT_EQ(Explain(600), "");
  EXPECT_THAT(Explain(10'000), HasSubstr("; 2 other slow steps since the last such line"));
}

TEST_F(SlowStepsTest, AJobCanDoWithout) {
  SlowSteps none(0, absl::Seconds(10), MachineState(dir_.path()));
  for (int i = 0; i < 30; ++i) none.Explain(Took(20));
  EXPECT_EQ(none.Explain(Took(60'000)), "");
}

TEST_F(SlowStepsTest, TheMachineIsSaidAsFarAsItIsKnown) {
  Write("loadavg", "5.10 3.00 2.00 3/400 1234\n");
  Write("stat", "cpu  100 0 100 700 0 0 0 100 0 0\ncpu0 1 2 3\n");
  Write("pressure/cpu", "some avg10=31.20 avg60=1.00 avg300=0.50 total=1\n");
  Write("pressure/io", "some avg10=0.40 avg60=1.00 avg300=0.50 total=1\n");
  MachineState machine(dir_.path());
  machine.Look();
  Write("stat", "cpu  150 0 150 720 0 0 0 180 0 0\ncpu0 1 2 3\n");
  const std::string text = machine.Text();
  EXPECT_THAT(text, HasSubstr("load 5.10 on "));
  EXPECT_THAT(text, HasSubstr("processors, 40 % of their time went to other machines, tasks waited for a processor for "
                              "31 % of 10 s"));
  EXPECT_THAT(text, Not(HasSubstr("disk")));
  Write("stat", "cpu  what\n");
  EXPECT_THAT(machine.Text(), Not(HasSubstr("other machines")));
}

}  // namespace
}  // namespace weir
