// State of a job as one of its trainers knows it.
#include "pserver/member/job_view.h"

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using SteadyClock = std::chrono::steady_clock;

class JobViewTest : public ::testing::Test {
 protected:
  std::atomic<int> news_{0};  // times that `news` has been called
  JobView job_{/*trainers=*/3, [this] { ++news_; }};
};

TEST_F(JobViewTest, TheFirstFailureStaysAndIsToldOnce) {
  EXPECT_TRUE(job_.failure().ok());
  job_.Fail(absl::DataLossError("first"));
  job_.Fail(absl::InternalError("second"));
  job_.Refused(absl::InternalError("third"), /*expelled=*/false);
  EXPECT_EQ(job_.failure(), absl::DataLossError("first"));
  EXPECT_EQ(news_, 1);
}

TEST_F(JobViewTest, OfFailuresOnSeveralThreadsOneStays) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] { job_.Fail(absl::InternalError("a mistake")); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(job_.failure(), absl::InternalError("a mistake"));
  EXPECT_EQ(news_, 1);
}

TEST_F(JobViewTest, WhoIsToldOfTheFailureMayAskForIt) {
  absl::Status told;
  JobView* self = nullptr;
  JobView job(3, [&] { told = self->failure(); });
  self = &job;
  job.Fail(absl::InternalError("a mistake"));
  EXPECT_EQ(told, absl::InternalError("a mistake"));
}

TEST_F(JobViewTest, ARefusalBehindTheEndMeansNothing) {
  job_.SetDone();
  job_.Refused(absl::FailedPreconditionError("the lease has run out"), /*expelled=*/true);
  EXPECT_TRUE(job_.done());
  EXPECT_TRUE(job_.failure().ok());
  EXPECT_FALSE(job_.expelled());
  EXPECT_EQ(news_, 0);
}

TEST_F(JobViewTest, ARefusedTrainerHasFailedAndMayBeExpelled) {
  job_.Refused(absl::FailedPreconditionError("another job"), /*expelled=*/false);
  EXPECT_FALSE(job_.expelled());
  job_.Refused(absl::FailedPreconditionError("the lease has run out"), /*expelled=*/true);
  EXPECT_TRUE(job_.expelled());
  EXPECT_EQ(job_.failure(), absl::FailedPreconditionError("another job"));
}

TEST_F(JobViewTest, AReportedFailureIsReplacedByOneThatStandsAlready) {
  job_.Fail(absl::DataLossError("first"));
  EXPECT_EQ(job_.FailUnlessExpelled(absl::InternalError("second")), absl::DataLossError("first"));
}

TEST_F(JobViewTest, AReportedFailureStandsIfItIsTheFirst) {
  EXPECT_EQ(job_.FailUnlessExpelled(absl::InternalError("a mistake")), absl::InternalError("a mistake"));
  EXPECT_EQ(job_.failure(), absl::InternalError("a mistake"));
  EXPECT_EQ(news_, 1);
}

TEST_F(JobViewTest, AFailureOfAnExpelledTrainerIsNotTheJobs) {
  job_.Refused(absl::FailedPreconditionError("the lease has run out"), /*expelled=*/true);
  EXPECT_EQ(job_.FailUnlessExpelled(absl::InternalError("a mistake")), std::nullopt);
}

TEST_F(JobViewTest, WhoAwaitsAFailureGetsTheOneThatIsThere) {
  job_.Fail(absl::DataLossError("a torn file"));
  EXPECT_EQ(job_.AwaitFailure(absl::AbortedError("the job has failed")), absl::DataLossError("a torn file"));
}

TEST_F(JobViewTest, WhereNoFailureComesTheAwaitedOneIsRecorded) {
  EXPECT_EQ(job_.AwaitFailure(absl::AbortedError("the job has failed")), absl::AbortedError("the job has failed"));
  EXPECT_EQ(job_.failure(), absl::AbortedError("the job has failed"));
}

TEST_F(JobViewTest, ASleepEndsAtItsTime) {
  const SteadyClock::time_point until = SteadyClock::now() + std::chrono::milliseconds(20);
  EXPECT_TRUE(job_.SleepUntil(until));
  EXPECT_GE(SteadyClock::now(), until);
}

TEST_F(JobViewTest, AFailureThatServersAreToldOfEndsNoSleep) {
  job_.Fail(absl::InternalError("a mistake"));
  job_.RelayBegins();
  const SteadyClock::time_point until = SteadyClock::now() + std::chrono::milliseconds(20);
  EXPECT_TRUE(job_.SleepUntil(until));
  EXPECT_GE(SteadyClock::now(), until);
}

TEST_F(JobViewTest, ClosingEndsTheSleepOfAnotherThread) {
  std::atomic<bool> closed{false};
  std::thread sleeper([&] { closed = !job_.SleepUntil(SteadyClock::now() + std::chrono::hours(1)); });
  job_.Close();
  sleeper.join();
  EXPECT_TRUE(closed);
}

TEST_F(JobViewTest, AFailureEndsTheSleepOfAnotherThread) {
  std::atomic<bool> open{false};
  std::thread sleeper([&] { open = job_.SleepUntil(SteadyClock::now() + std::chrono::hours(1)); });
  job_.Fail(absl::InternalError("a mistake"));
  sleeper.join();
  EXPECT_TRUE(open);
}

TEST_F(JobViewTest, AnOlderVersionChangesNothing) {
  EXPECT_EQ(job_.version(), 0);
  job_.SawVersion(7);
  job_.SawVersion(5);
  EXPECT_EQ(job_.version(), 7);
}

TEST_F(JobViewTest, WaitsHearOfEachChangeOnce) {
  job_.SawVersion(7);
  job_.SawVersion(5);
  EXPECT_EQ(news_, 1);
  job_.SetAnyAwaitsFiles(false);
  EXPECT_EQ(news_, 1);
  job_.SetAnyAwaitsFiles(true);
  job_.SetAnyAwaitsFiles(true);
  EXPECT_EQ(news_, 2);
  job_.RequestStop();
  job_.RequestStop();
  EXPECT_EQ(news_, 3);
  job_.SetChief(1);
  job_.SetChief(1);
  EXPECT_EQ(news_, 4);
}

TEST_F(JobViewTest, TheChiefIsTrainer0UntilAnotherIsNamed) {
  EXPECT_EQ(job_.chief(), 0);
  job_.SetChief(2);
  EXPECT_EQ(job_.chief(), 2);
  for (const int nobody : {-1, 3}) job_.SetChief(nobody);
  EXPECT_EQ(job_.chief(), 2);
}

TEST_F(JobViewTest, ADeathIsNewsOnce) {
  EXPECT_TRUE(job_.SetDead(2));
  EXPECT_FALSE(job_.SetDead(2));
  EXPECT_TRUE(job_.SetDead(0));
  for (const int nobody : {-1, 3}) EXPECT_FALSE(job_.SetDead(nobody));
}

TEST_F(JobViewTest, StepsAndTheWishToStopAreKept) {
  EXPECT_EQ(job_.step(), -1);
  job_.SetStep(4);
  EXPECT_EQ(job_.step(), 4);
  EXPECT_FALSE(job_.stop_requested());
  job_.RequestStop();
  EXPECT_TRUE(job_.stop_requested());
}

}  // namespace
}  // namespace weir
