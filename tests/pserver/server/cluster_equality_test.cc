// Sync training gives the same bits whatever the cluster and the network: the claim, its faults, and that the
// comparison would notice if it were false.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/count_repeats.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"
#include "tests/testing/sum_in_arrival_order.h"

namespace weir {
namespace {

constexpr int kSteps = 12;

ClusterOptions PatientOptionsFor(const HandMadeJob& job) {
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_rpc_s(20);
  return options;
}

struct TrainingRun {
  InProcessCluster::Digest digest;
  std::vector<StepOutcome> outcomes;  // of trainer 0
  Client::Counters counters;          // of all clients
  int64_t dropped = 0, duplicates = 0, delays = 0, reordered = 0;
};

absl::StatusOr<TrainingRun> Train(const HandMadeJob& job, ClusterOptions options) {
  ASSIGN_OR_RETURN(std::unique_ptr<InProcessCluster> cluster, InProcessCluster::Create(std::move(options)));
  TrainingRun run;
  RETURN_IF_ERROR(cluster->RunTrainers([&](int t) -> absl::Status {
    Client& client = cluster->client(t);
    RETURN_IF_ERROR(client.Join());
    HandMadeParams params;
    RETURN_IF_ERROR(ReceiveHandMade(job, &client.steps(), &params));
    for (int step = 0; step < kSteps; ++step) {
      // One step is skipped by one lane's owner, one has no samples anywhere.
      const LaneRange lanes = LanesOfTrainer(job.lanes, job.trainers, t);
      const bool skip = step == 4 && lanes.begin <= 5 && 5 < lanes.begin + lanes.count;
      ASSIGN_OR_RETURN(
          const StepOutcome outcome,
          RunHandMadeStep(job, t, {.step = step, .skip = skip, .empty = step == 7}, &client.steps(), &params));
      if (t == 0) run.outcomes.push_back(outcome);
    }
    // Everyone is at the border, so that the digest is one of a whole step.
    RETURN_IF_ERROR(client.board().Exchange("end", absl::StrCat("trainer ", t)).status());
    return absl::OkStatus();
  }));
  ASSIGN_OR_RETURN(run.digest, cluster->GetDigest());
  RETURN_IF_ERROR(cluster->RunTrainers([&](int t) { return cluster->client(t).member().Done(); }));
  for (int t = 0; t < job.trainers; ++t) {
    const Client::Counters counters = cluster->client(t).counters();
    run.counters.retries += counters.retries;
    run.counters.rows_pulled += counters.rows_pulled;
    run.counters.rows_pushed += counters.rows_pushed;
  }
  run.dropped = cluster->faults().dropped_requests + cluster->faults().dropped_replies;
  run.duplicates = cluster->faults().duplicates;
  run.delays = cluster->faults().delays;
  run.reordered = cluster->faults().reordered;
  for (int s = 0; s < job.servers; ++s) {
    EXPECT_TRUE(cluster->servers().server(s).Finished());
    EXPECT_EQ(cluster->servers().server(s).Version(), kSteps);
  }
  return run;
}

const TrainingRun& Reference() {
  static const TrainingRun* const run = [] {
    const HandMadeJob job;
    const absl::StatusOr<TrainingRun> trained = Train(job, PatientOptionsFor(job));
    EXPECT_TRUE(trained.ok()) << trained.status();
    return new TrainingRun(trained.ok() ? *trained : TrainingRun());
  }();
  return *run;
}

TEST(ClusterEqualityTest, AnyNumberOfServersAndTrainersGivesTheSameBits) {
  ASSERT_NE(Reference().digest.values, 0u);
  ASSERT_NE(Reference().digest.state, 0u);
  for (int servers : {1, 2, 3}) {
    for (int trainers : {1, 2, 3, 4}) {
      const HandMadeJob job{.servers = servers, .trainers = trainers};
      const absl::StatusOr<TrainingRun> run = Train(job, PatientOptionsFor(job));
      ASSERT_TRUE(run.ok()) << run.status();
      EXPECT_EQ(run->digest, Reference().digest) << servers << " servers, " << trainers << " trainers";
      EXPECT_GT(run->counters.rows_pushed, 0);
    }
  }
}

TEST(ClusterEqualityTest, AnyNumberOfThreadsGivesTheSameBits) {
  for (int threads : {0, 1, 3}) {
    const HandMadeJob job{.servers = 2, .trainers = 2};
    ClusterOptions options = PatientOptionsFor(job);
    options.threads = threads;
    const absl::StatusOr<TrainingRun> run = Train(job, std::move(options));
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->digest, Reference().digest) << threads;
  }
}

// One trainer adds rows of eight of its sixteen lanes, two add those of all their eight: sums in one pass must be those
// of the tree.
TEST(ClusterEqualityTest, RowsOfEightLanesAreAddedAsTheTreeSays) {
  InProcessCluster::Digest first;
  for (int trainers : {1, 2, 4, 16}) {
    const HandMadeJob job{.servers = 2, .trainers = trainers, .lanes = 16};
    const absl::StatusOr<TrainingRun> run = Train(job, PatientOptionsFor(job));
    ASSERT_TRUE(run.ok()) << run.status();
    if (trainers == 1) first = run->digest;
    EXPECT_EQ(run->digest, first) << trainers << " trainers";
  }
}

TEST(ClusterEqualityTest, OtherLanesAreAnotherJob) {
  const HandMadeJob job{.lanes = 4};
  const absl::StatusOr<TrainingRun> run = Train(job, PatientOptionsFor(job));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->digest == Reference().digest);
}

TEST(ClusterEqualityTest, AllTrainersSeeSkippedAndEmptySteps) {
  const std::vector<StepOutcome>& outcomes = Reference().outcomes;
  ASSERT_EQ(outcomes.size(), static_cast<size_t>(kSteps));
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(outcomes[static_cast<size_t>(step)].version, step + 1);
    EXPECT_EQ(outcomes[static_cast<size_t>(step)].skipped, step == 4);
    EXPECT_EQ(outcomes[static_cast<size_t>(step)].samples == 0, step == 7);
  }
}

ClusterOptions WithFaults(const HandMadeJob& job, uint64_t seed) {
  ClusterOptions options = PatientOptionsFor(job);
  options.deadlines.set_rpc_s(0.15);
  options.faults = {.seed = seed, .drop_request = 0.05, .drop_reply = 0.05, .duplicate = 0.05, .delay = 0.05};
  return options;
}

TEST(ClusterEqualityTest, DropsDuplicatesAndDelaysChangeNothing) {
  for (uint64_t seed : {1, 2}) {
    const HandMadeJob job{.servers = 2, .trainers = 3};
    const absl::StatusOr<TrainingRun> run = Train(job, WithFaults(job, seed));
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_EQ(run->digest, Reference().digest) << "seed " << seed;
    // It really happened.
    EXPECT_GT(run->dropped, 0);
    EXPECT_GT(run->duplicates, 0);
    EXPECT_GT(run->delays, 0);
    EXPECT_GT(run->reordered, 0);
    EXPECT_GT(run->counters.retries, 0);
  }
}

TEST(ClusterEqualityTest, ARepeatThatIsCountedTwiceIsSeenInTheDigest) {
  const HandMadeJob job{.servers = 2, .trainers = 2};
  ClusterOptions options = PatientOptionsFor(job);
  options.faults.duplicate = 0.5;
  // At once, while the step they belong to is still open.
  options.faults.max_delay = absl::ZeroDuration();
  absl::StatusOr<TrainingRun> run = Train(job, options);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->digest, Reference().digest);
  options.on_repeat = CountRepeats;
  run = Train(job, std::move(options));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->digest == Reference().digest);
}

TEST(ClusterEqualityTest, LanesAddedInOrderOfArrivalAreSeenInTheDigest) {
  const HandMadeJob job{.servers = 1, .trainers = 3};
  ClusterOptions options = PatientOptionsFor(job);
  const SumInArrivalOrder in_arrival_order;
  options.dense_sum = &in_arrival_order;
  const absl::StatusOr<TrainingRun> run = Train(job, std::move(options));
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_FALSE(run->digest == Reference().digest);
}

TEST(ClusterEqualityTest, AverageByTrainersAndWithoutLanesTrainToo) {
  for (const HandMadeJob& job : {HandMadeJob{.servers = 2, .trainers = 3, .average_by_trainers = true},
                                 HandMadeJob{.servers = 2, .trainers = 3, .lanes = 0}}) {
    const absl::StatusOr<TrainingRun> run = Train(job, PatientOptionsFor(job));
    ASSERT_TRUE(run.ok()) << run.status();
    EXPECT_FALSE(run->digest == Reference().digest);
    const absl::StatusOr<TrainingRun> again = Train(job, PatientOptionsFor(job));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(run->digest, again->digest);
  }
}

}  // namespace
}  // namespace weir
