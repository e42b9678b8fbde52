#include "pserver/cluster/job_program.h"

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/flags/reflection.h"
#include "absl/status/status.h"
#include "framework/process/stop_signals.h"
#include "gtest/gtest.h"

ABSL_DECLARE_FLAG(int, stop_code);

namespace weir {
namespace {

class JobProgramTest : public ::testing::Test {
 protected:
  absl::FlagSaver flags_;
  StopSignals signals_;
};

TEST_F(JobProgramTest, AJobThatIsCompleteEndsWithZeroEvenIfItsEndWasRequested) {
  EXPECT_EQ(JobExitCode(absl::OkStatus(), &signals_), 0);
}

TEST_F(JobProgramTest, AStopHasACodeOfItsOwn) {
  EXPECT_EQ(JobExitCode(absl::CancelledError("asked to stop while it waited"), &signals_), 5);
  SetStopped(&signals_);
  EXPECT_EQ(JobExitCode(absl::OkStatus(), &signals_), 5);
}

TEST_F(JobProgramTest, TheCodeOfAStopCanBeChosen) {
  absl::SetFlag(&FLAGS_stop_code, 75);
  EXPECT_EQ(JobExitCode(absl::CancelledError("asked to stop while it waited"), &signals_), 75);
  SetStopped(&signals_);
  EXPECT_EQ(JobExitCode(absl::OkStatus(), &signals_), 75);
}

TEST_F(JobProgramTest, WithZeroATrainingThatWasStoppedCountsAsCompleteAndAWaitAsALostPeer) {
  absl::SetFlag(&FLAGS_stop_code, 0);
  EXPECT_EQ(JobExitCode(absl::CancelledError("asked to stop while it waited"), &signals_), 3);
  SetStopped(&signals_);
  EXPECT_EQ(JobExitCode(absl::OkStatus(), &signals_), 0);
}

TEST_F(JobProgramTest, AFailureKeepsItsCodeInAJobThatWasStopped) {
  SetStopped(&signals_);
  EXPECT_EQ(JobExitCode(absl::InvalidArgumentError("the disk is full"), &signals_), 2);
  EXPECT_EQ(JobExitCode(absl::UnavailableError("a peer is lost"), &signals_), 3);
}

}  // namespace
}  // namespace weir
