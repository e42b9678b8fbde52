// A job with a schedule, clip and decay, trained: after a resume on another cluster, and from a program file that
// brings the operators of the schedule, it comes to the same bits.
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "framework/graph/program_text.h"
#include "gtest/gtest.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/train_in_process.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

namespace weir {
namespace {

constexpr char kOptimizer[] = R"(optimizer {
  adam { learning_rate: 0.005 }
  schedule { polynomial { decay_steps: 30 end_learning_rate: 0.0005 } warm_up { steps: 5 } }
  l2_decay: 0.001
  clip { by_value { max: 0.02 } }
  parameter { name: "*.b" learning_rate_factor: 2 l2_decay: 0 }
})";

class ScheduleTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    dir_ = ::testing::TempDir() + "/schedule";
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    WriteSlotData(dir_);
    reference_ = new InProcessResult(Run({}));
  }
  static void TearDownTestSuite() {
    delete reference_;
    std::filesystem::remove_all(dir_);
  }

  static std::string JobText() {
    return absl::StrReplaceAll(kSlotJob, {{"optimizer { adam { learning_rate: 0.005 } }", kOptimizer},
                                          {"optimizer { ftrl {} }",
                                           "optimizer { ftrl {} schedule { noam { d_model: 1 "
                                           "warmup_steps: 10 } } l1_decay: 0.0001 }"},
                                          {"digest_every_steps: 100", "digest_every_steps: 20 max_steps: 40"}});
  }
  static InProcessResult Run(InProcessRun run) {
    if (run.job_text.empty()) run.job_text = JobText();
    run.directory = dir_;
    const absl::StatusOr<InProcessResult> result = TrainInProcess(run);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : InProcessResult();
  }

  static std::string dir_;
  static InProcessResult* reference_;
};
std::string ScheduleTest::dir_;
InProcessResult* ScheduleTest::reference_ = nullptr;

TEST_F(ScheduleTest, SameBitsOnAnyCluster) {
  ASSERT_EQ(reference_->digests.size(), 2u);
  EXPECT_EQ(Run({.servers = 3, .trainers = 2}).digests, reference_->digests);
  // One step later everything is different: the comparison would notice a counter that is off by one.
  EXPECT_NE(Run({.overrides = {"optimizer.schedule.warm_up.steps=6"}}).digests, reference_->digests);
}

TEST_F(ScheduleTest, SameBitsAfterAResumeOnAnotherCluster) {
  const std::string dir = absl::StrCat("checkpoint.dir=\"", dir_, "/checkpoints\"");
  Run({.overrides = {dir, "train.max_steps=20"}, .servers = 2, .trainers = 2});
  const InProcessResult resumed = Run({.overrides = {dir}, .servers = 3, .resume = true});
  ASSERT_EQ(resumed.digests.size(), 1u);
  EXPECT_EQ(resumed.digests[0], reference_->digests[1]);
}

TEST_F(ScheduleTest, AProgramThatBringsItsScheduleComesToTheSameBits) {
  const absl::StatusOr<Job> job = ParseJob(JobText(), dir_ + "/job.textproto", {});
  ASSERT_TRUE(job.ok()) << job.status();
  const absl::StatusOr<Programs> single = BuildSingleMachine(*job);
  ASSERT_TRUE(single.ok()) << single.status();
  ASSERT_TRUE(WriteProgramFile(dir_ + "/single.program", single->main).ok());
  std::string text = JobText();
  const size_t begin = text.find("model {");
  const size_t end = text.find("\ntrain {");
  text.replace(begin, end - begin, "program: \"single.program\"");
  const InProcessResult brought = Run({.job_text = text, .servers = 2, .trainers = 2});
  EXPECT_EQ(brought.digests, reference_->digests);
}

}  // namespace
}  // namespace weir
