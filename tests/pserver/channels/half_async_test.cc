#include "pserver/channels/half_async.h"

#include <memory>

#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/channels/step_recorder.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WorkerGroupTest : public testing::Test {
 protected:
  explicit WorkerGroupTest(absl::Duration deadline = absl::Minutes(5))
      : group_({.workers = 3, .progress_deadline = deadline, .inner = &servers_, .pool = &pool_}) {}

  // Runs a step of one worker up to the end of its sends: 10 samples, and gradients of lane `lane` that tell the
  // worker.
  absl::Status Send(int worker, int64_t step, int lane = 0, v1::Verdict verdict = v1::APPLY) {
    ParamChannel* const channel = group_.channel(worker);
    Worker& w = workers_[worker];
    const float value = worker == 0 ? 1 : worker == 1 ? 10 : 100;
    w.dense = Floats({value, 2 * value});
    w.rows = Rows({5, worker}, {value, value});
    absl::Status status = channel->BeginStep(step, /*read_only=*/false);
    if (status.ok()) status = SendLane(channel, "w", lane, w.dense);
    if (status.ok()) status = SendRowsOf(channel, "t", lane, w.rows);
    return status.ok() ? channel->FinishSends(10, verdict) : status;
  }
  absl::Status Receive(int worker) {
    Worker& w = workers_[worker];
    absl::Status status = group_.channel(worker)->Receive({.name = "w", .count = 2}, &w.received);
    return status.ok() ? group_.channel(worker)->FinishReceives(&w.outcome) : status;
  }
  absl::Status Step(int worker, int64_t step, v1::Verdict verdict = v1::APPLY) {
    const absl::Status sent = Send(worker, step, /*lane=*/0, verdict);
    return sent.ok() ? Receive(worker) : sent;
  }

  struct Worker {
    Tensor dense;
    SelectedRows rows;
    Tensor received = Floats({-1, -1});
    StepOutcome outcome;
  };
  StepRecorder servers_;
  ThreadPool pool_{"weir-test", 2};
  Worker workers_[3];
  WorkerGroup group_;
};

TEST_F(WorkerGroupTest, GradientsAreMergedIntoOnePushInOrderOfTheWorkers) {
  ASSERT_TRUE(group_.Run([&](int worker) { return Step(worker, 4); }).ok());
  EXPECT_THAT(servers_.Take(),
              ElementsAre("begin 4", "step samples 30", "rows t lane 0: ids 5 0 1 2 values 111 1 10 100",
                          "dense w lane 0: 111 222", "finish 30 APPLY", "receive w", "received"));
}

TEST_F(WorkerGroupTest, EveryWorkerHasTheValuesAndTheOutcomeThatWorker0Received) {
  ASSERT_TRUE(group_.Run([&](int worker) { return Step(worker, 4); }).ok());
  for (const Worker& worker : workers_) {
    EXPECT_THAT(worker.received.span<float>(), ElementsAre(5, 10));
    EXPECT_EQ(worker.outcome.version, 5);
    EXPECT_EQ(worker.outcome.samples, 100);
  }
}

TEST_F(WorkerGroupTest, AVerdictSkipOfOneWorkerIsThatOfTheStepOnly) {
  ASSERT_TRUE(group_.Run([&](int worker) { return Step(worker, 0, worker == 2 ? v1::SKIP : v1::APPLY); }).ok());
  EXPECT_THAT(servers_.Take(), Contains("finish 30 SKIP"));
  ASSERT_TRUE(group_.Run([&](int worker) { return Step(worker, 1); }).ok());
  EXPECT_THAT(servers_.Take(), AllOf(Contains("finish 30 APPLY"), Contains("dense w lane 0: 111 222")));
}

TEST_F(WorkerGroupTest, LanesAreAddedEachByItself) {
  ASSERT_TRUE(group_
                  .Run([&](int worker) {
                    const absl::Status sent = Send(worker, 0, /*lane=*/worker == 1 ? 2 : 1);
                    return sent.ok() ? Receive(worker) : sent;
                  })
                  .ok());
  EXPECT_THAT(servers_.Take(), Contains("dense w lane 1: 101 202 lane 2: 10 20"));
}

TEST_F(WorkerGroupTest, TheErrorOfOneWorkerEndsTheWaitsOfTheOthers) {
  const absl::Status ended =
      group_.Run([&](int worker) { return worker == 1 ? absl::DataLossError("cut file") : Step(worker, 0); });
  EXPECT_EQ(ended, absl::DataLossError("cut file"));
  EXPECT_TRUE(group_.Run([&](int worker) { return Step(worker, 1); }).ok());
}

TEST_F(WorkerGroupTest, AReadOnlyStepOfOneWorkerPassesThrough) {
  ParamChannel* const channel = group_.channel(1);
  ASSERT_TRUE(channel->BeginStep(7, /*read_only=*/true).ok());
  EXPECT_EQ(SendLane(channel, "w", 0, Floats({1})).code(), absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(Receive(1).ok());
  EXPECT_THAT(servers_.Take(), ElementsAre("begin 7 read only", "receive w", "received"));
}

class HastyWorkerGroupTest : public WorkerGroupTest {
 protected:
  HastyWorkerGroupTest() : WorkerGroupTest(absl::Milliseconds(50)) {}
};

TEST_F(HastyWorkerGroupTest, AWaitHasADeadlineAndNamesTheWorker) {
  const absl::Status ended = group_.Run([&](int worker) { return worker == 2 ? absl::OkStatus() : Step(worker, 0); });
  EXPECT_EQ(ended.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(ended.message(), AnyOf(HasSubstr("the batch of worker 2"), HasSubstr("worker 0 receives")));
}

}  // namespace
}  // namespace weir
