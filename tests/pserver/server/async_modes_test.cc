// Guarantees of the asynchronous modes, on servers and clients: bounded staleness, every push applied exactly once,
// gradients corrected for changes since the pull, tables that do not wait.

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/status_macros.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/params/server_params.h"
#include "tests/testing/hand_made_cluster.h"
#include "tests/testing/hand_made_job.h"
#include "tests/testing/in_process_cluster.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

ClusterOptions QuickOptionsFor(const HandMadeJob& job) {
  ClusterOptions options = OptionsFor(job);
  options.deadlines.set_heartbeat_s(0.1);
  return options;
}

absl::Status Steps(InProcessCluster& cluster, const HandMadeJob& job, int trainer, int begin, int end) {
  Client& client = cluster.client(trainer);
  HandMadeParams params;
  if (begin == 0) RETURN_IF_ERROR(client.Join());
  RETURN_IF_ERROR(ReceiveHandMade(job, &client.steps(), &params));
  for (int step = begin; step < end; ++step) {
    RETURN_IF_ERROR(RunHandMadeStep(job, trainer, {.step = step}, &client.steps(), &params).status());
  }
  return absl::OkStatus();
}

int64_t Counted(InProcessCluster& cluster, int server, const std::string& name) {
  return cluster.servers().server(server).counters().Value(name);
}

// Waits until the server has applied so many pushes, at most 20 s.
void WaitForPushes(InProcessCluster& cluster, int64_t pushes) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (Counted(cluster, 0, "push.applied") < pushes && absl::Now() < end) std::this_thread::yield();
  EXPECT_EQ(Counted(cluster, 0, "push.applied"), pushes);
}

// -------------------------------------------------------------------------------------------------- bounded staleness

TEST(BoundedStalenessTest, FastTrainersWaitForTheSlowestAndNeverPassTheBound) {
  // With 16 lanes no trainer has a step without samples, which would count as its end.
  const HandMadeJob job{.servers = 2, .trainers = 3, .lanes = 16, .sync = false, .staleness = 2};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  constexpr int kSteps = 6;
  std::vector<absl::Status> ends(2);
  std::vector<std::thread> fast;
  for (int t = 0; t < 2; ++t) fast.emplace_back([&, t] { ends[t] = Steps(*cluster, job, t, 0, kSteps); });
  // The slow trainer has done nothing: each of the others does steps 0, 1, 2 and is held.
  WaitForPushes(*cluster, 2 * 3);
  HandMadeParams params;
  ASSERT_TRUE(cluster->client(2).Join().ok());
  ASSERT_TRUE(ReceiveHandMade(job, &cluster->client(2).steps(), &params).ok());
  for (int step = 0; step < 3; ++step) {
    ASSERT_TRUE(RunHandMadeStep(job, 2, {.step = step}, &cluster->client(2).steps(), &params).ok());
    // Each step of the slow trainer lets the others do exactly one more.
    WaitForPushes(*cluster, 2 * (4 + step) + step + 1);
  }
  // A step without samples ends the slow trainer, so nobody waits for it after the last step.
  ASSERT_TRUE(cluster->client(2).steps().BeginStep(3, /*read_only=*/false).ok());
  ASSERT_TRUE(cluster->client(2).steps().FinishSends(0, v1::APPLY).ok());
  for (std::thread& thread : fast) thread.join();
  for (const absl::Status& end : ends) EXPECT_FALSE(!end.ok()) << end;
  for (int s = 0; s < 2; ++s) EXPECT_EQ(Counted(*cluster, s, "staleness.most_steps"), 2) << s;
}

TEST(BoundedStalenessTest, ADeadTrainerHoldsNobodyAnyMore) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .sync = false, .staleness = 1};
  ClusterOptions options = QuickOptionsFor(job);
  options.deadlines.set_lease_s(0.8);
  options.deadlines.set_rpc_s(0.4);
  auto cluster = MakeCluster(std::move(options));
  ASSERT_TRUE(Steps(*cluster, job, 1, 0, 1).ok());
  cluster->KillTrainer(1);
  const absl::Status end = Steps(*cluster, job, 0, 0, 10);
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(Counted(*cluster, 0, "push.applied"), 1 + 10);
}

TEST(BoundedStalenessTest, WhoHasNoMoreStepsHoldsNobody) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .sync = false, .staleness = 0};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  std::thread other([&] {
    EXPECT_TRUE(Steps(*cluster, job, 1, 0, 2).ok());
    EXPECT_TRUE(cluster->client(1).steps().BeginStep(2, /*read_only=*/false).ok());
    EXPECT_TRUE(cluster->client(1).steps().FinishSends(0, v1::APPLY).ok());
  });
  const absl::Status end = Steps(*cluster, job, 0, 0, 9);
  other.join();
  EXPECT_TRUE(end.ok()) << end;
  EXPECT_EQ(Counted(*cluster, 1, "push.applied"), 2 + 9);
}

TEST(BoundedStalenessTest, AWaitThatIsTooLongNamesWhomItWaitedFor) {
  const HandMadeJob job{.trainers = 2, .sync = false, .staleness = 1};
  ClusterOptions options = QuickOptionsFor(job);
  options.deadlines.set_lease_s(0.6);
  options.deadlines.set_slow_warning_s(0.2);
  options.deadlines.set_progress_deadline_s(0.5);
  auto cluster = MakeCluster(std::move(options));
  ASSERT_TRUE(cluster->client(1).Join().ok());
  const absl::Status end = Steps(*cluster, job, 0, 0, 5);
  EXPECT_FALSE(end.ok());
  EXPECT_THAT(std::string(end.message()), HasSubstr("trainer 1 (host:2001)")) << end;
}

TEST(BoundedStalenessTest, PartsThatTakeEffectOnArrivalAreRefused) {
  HandMadeJob job{.trainers = 2, .sync = false, .staleness = 1};
  job.eager = true;
  const absl::Status refused = InProcessCluster::Create(QuickOptionsFor(job)).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("two consistency modes, async_apply EAGER and bounded_staleness"));
}

// ---------------------------------------------------------------------------------------------------------- rows ahead

constexpr int64_t kRow = int64_t{1} << 62;

// Runs a step of a trainer that pushes the row with a gradient of 4 over 4 samples.
absl::Status PushRow(Client& client, int lane, int64_t step, int64_t id = kRow, std::vector<int32_t> step_rows = {}) {
  RETURN_IF_ERROR(client.steps().BeginStep(step, /*read_only=*/false));
  SelectedRows gradient;
  gradient.ids = {id};
  gradient.step_rows = std::move(step_rows);
  gradient.values = Tensor::Of<float>({1, 4}, {4.0f, 4.0f, 4.0f, 4.0f});
  gradient.merged = gradient.present = true;
  const ParamChannel::LaneRows row{.lane = lane, .value = &gradient};
  RETURN_IF_ERROR(client.steps().SendRows({.name = "t", .server = -1}, 4, absl::MakeConstSpan(&row, 1)));
  return client.steps().FinishSends(4, v1::APPLY);
}

absl::Status PullOf(RowSource& source, int64_t step, const std::vector<int64_t>& ids, std::vector<float>* rows) {
  rows->assign(4 * ids.size(), -1);
  const ParamChannel::TableRows pull{.table = "t", .width = 4, .ids = &ids, .rows = rows->data()};
  RETURN_IF_ERROR(source.BeginStep(step, /*read_only=*/false));
  return source.PullRows(absl::MakeConstSpan(&pull, 1));
}

// Waits until so many more calls have reached the servers, at most 20 s.
void WaitForCalls(InProcessCluster& cluster, int64_t calls) {
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while (cluster.faults().calls < calls && absl::Now() < end) std::this_thread::yield();
  ASSERT_GE(cluster.faults().calls, calls);
}

// Step 2 may read only when the other trainer has finished step 0; this holds for rows pulled ahead as for the
// program's own pull.
TEST(RowsAheadTest, TheBoundHoldsForRowsThatArePulledAheadOfTheirStep) {
  const HandMadeJob job{.trainers = 2, .sync = false, .staleness = 1};
  ClusterOptions options = QuickOptionsFor(job);
  options.deadlines.set_heartbeat_s(1000);  // nothing else calls
  options.deadlines.set_lease_s(2000);
  auto cluster = MakeCluster(std::move(options));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  ASSERT_TRUE(PushRow(cluster->client(0), 0, 0).ok());
  const int64_t calls = cluster->faults().calls;
  std::vector<float> ahead;
  std::atomic<bool> answered{false};
  absl::Status pulled;
  std::thread thread([&] {
    pulled = PullOf(cluster->client(0).ahead(), 2, {kRow}, &ahead);
    answered = true;
  });
  WaitForCalls(*cluster, calls + 1);
  // The trainer's own step 1 goes on meanwhile and takes effect.
  ASSERT_TRUE(PushRow(cluster->client(0), 0, 1).ok());
  EXPECT_FALSE(answered);
  ASSERT_TRUE(PushRow(cluster->client(1), 4, 0).ok());
  thread.join();
  ASSERT_TRUE(pulled.ok()) << pulled;
  // Nothing has been pushed since, so the rows hold all three updates.
  std::vector<float> now;
  ASSERT_TRUE(PullOf(cluster->client(1).steps(), 1, {kRow}, &now).ok());
  EXPECT_EQ(ahead, now);
  EXPECT_LE(Counted(*cluster, 0, "staleness.most_steps"), 1);
}

TEST(RowsAheadTest, WithoutABoundTheyAreWhatIsThereWhenTheyAreAskedFor) {
  const HandMadeJob job{.servers = 2, .sync = false};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.Join().ok());
  ASSERT_TRUE(PushRow(client, 0, 0).ok());
  std::vector<float> before, ahead, after;
  ASSERT_TRUE(PullOf(client.steps(), 1, {kRow}, &before).ok());
  ASSERT_TRUE(PullOf(client.ahead(), 2, {kRow}, &ahead).ok());
  ASSERT_TRUE(PushRow(client, 0, 1).ok());
  ASSERT_TRUE(PullOf(client.steps(), 2, {kRow}, &after).ok());
  EXPECT_EQ(ahead, before);
  EXPECT_NE(ahead, after);
}

// A gradient names its rows by position among the ids pulled ahead; the program's own last pull had other ids.
TEST(RowsAheadTest, GradientsOfRowsPulledAheadFindTheirIds) {
  const HandMadeJob job{.servers = 2, .sync = false};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.Join().ok());
  const std::vector<int64_t> ids = {5, -7, kRow, 12};
  std::vector<float> rows, others;
  ASSERT_TRUE(PullOf(client.steps(), 0, {1, 2, 3}, &others).ok());
  ASSERT_TRUE(PullOf(client.ahead(), 1, ids, &rows).ok());
  client.steps().UseRowsAhead();
  ASSERT_TRUE(PushRow(client, 0, 1, kRow, /*step_rows=*/{2}).ok());
  std::vector<float> now;
  ASSERT_TRUE(PullOf(client.steps(), 2, ids, &now).ok());
  for (size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i] != rows[i], i / 4 == 2) << i;
}

TEST(RowsAheadTest, APullThatIsHeldEndsWhenNobodyWantsItAnyMore) {
  const HandMadeJob job{.trainers = 2, .sync = false, .staleness = 1};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  std::vector<float> rows;
  absl::Status pulled;
  const int64_t calls = cluster->faults().calls;
  std::thread thread([&] { pulled = PullOf(cluster->client(0).ahead(), 2, {kRow}, &rows); });
  WaitForCalls(*cluster, calls + 1);
  cluster->client(0).ahead().Cancel();
  thread.join();
  EXPECT_EQ(pulled.code(), absl::StatusCode::kCancelled) << pulled;
  EXPECT_THAT(std::string(pulled.message()), HasSubstr("rows of step 2, ahead of it"));
  // The program goes on without the rows.
  EXPECT_TRUE(PushRow(cluster->client(0), 0, 0).ok());
}

TEST(RowsAheadTest, TheyArePulledBesideTheProgramOverANetworkThatRepeatsAndLoses) {
  const HandMadeJob job{.servers = 2, .trainers = 2, .lanes = 16, .sync = false, .staleness = 2};
  ClusterOptions options = QuickOptionsFor(job);
  options.deadlines.set_rpc_s(0.1);
  options.faults = {
      .seed = 9, .drop_request = 0.03, .drop_reply = 0.03, .duplicate = 0.1, .max_delay = absl::Milliseconds(2)};
  auto cluster = MakeCluster(std::move(options));
  constexpr int kSteps = 12;
  const std::vector<int64_t> ids = {-3, 0, 1, 2, 3, 17, kRow};
  const absl::Status end = cluster->RunTrainers([&](int trainer) -> absl::Status {
    Client& client = cluster->client(trainer);
    RETURN_IF_ERROR(client.Join());
    HandMadeParams params;
    RETURN_IF_ERROR(ReceiveHandMade(job, &client.steps(), &params));
    for (int step = 0; step < kSteps; ++step) {
      absl::Status pulled;
      std::vector<float> rows;
      std::thread thread([&] { pulled = PullOf(client.ahead(), step + 1, ids, &rows); });
      const absl::Status run = RunHandMadeStep(job, trainer, {.step = step}, &client.steps(), &params).status();
      if (step + 1 == kSteps) {
        // The end of a run: the pull under way is cancelled, and a step without samples lets the other trainer go on.
        client.ahead().Cancel();
        RETURN_IF_ERROR(client.steps().BeginStep(kSteps, /*read_only=*/false));
        RETURN_IF_ERROR(client.steps().FinishSends(0, v1::APPLY));
      }
      thread.join();
      RETURN_IF_ERROR(run);
      if (step + 1 < kSteps) RETURN_IF_ERROR(pulled);
      client.steps().UseRowsAhead();
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(end.ok()) << end;
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(Counted(*cluster, s, "push.applied"), 2 * kSteps);
    EXPECT_LE(Counted(*cluster, s, "staleness.most_steps"), 2);
  }
}

// ---------------------------------------------------------------------------------------------------- exactly once

TEST(AsyncTest, EveryPushIsAppliedExactlyOnceOverANetworkThatRepeatsAndLoses) {
  const HandMadeJob job{.servers = 2, .trainers = 3, .lanes = 16, .sync = false};
  ClusterOptions options = QuickOptionsFor(job);
  options.deadlines.set_rpc_s(0.1);
  options.faults = {
      .seed = 5, .drop_request = 0.05, .drop_reply = 0.1, .duplicate = 0.2, .max_delay = absl::Milliseconds(2)};
  auto cluster = MakeCluster(std::move(options));
  constexpr int kSteps = 12;
  const absl::Status end = cluster->RunTrainers([&](int trainer) { return Steps(*cluster, job, trainer, 0, kSteps); });
  ASSERT_TRUE(end.ok()) << end;
  for (int s = 0; s < 2; ++s) {
    EXPECT_EQ(Counted(*cluster, s, "push.applied"), 3 * kSteps);
    EXPECT_GT(Counted(*cluster, s, "push.repeated"), 0);
  }
}

// ------------------------------------------------------------------------------------------------ delay compensation

Gradient GradientOf(int block, const std::vector<float>& values) {
  Gradient gradient;
  gradient.target = block;
  gradient.node = {0, 8};
  gradient.count = static_cast<int64_t>(values.size());
  gradient.values = values.data();
  return gradient;
}

TEST(ServerParamsTest, ABlockWithoutAValueIsNamed) {
  const HandMadeJob job;
  ThreadPool pool("test", 0);
  for (const bool declared : {true, false}) {
    v1::ProgramDesc startup = job.Startup(0);
    v1::BlockDesc* const block = startup.mutable_blocks(0);
    auto* const ops = block->mutable_ops();
    ops->erase(
        std::remove_if(ops->begin(), ops->end(), [](const v1::OpDesc& op) { return op.outputs(0).vars(0) == "b"; }),
        ops->end());
    if (!declared) {
      auto* const vars = block->mutable_vars();
      vars->erase(std::remove_if(vars->begin(), vars->end(), [](const v1::VarDesc& v) { return v.name() == "b"; }),
                  vars->end());
    }
    const absl::Status status = ServerParams::Create(job.Main(0), startup, 0, &pool).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("block b: the startup program gives it no value"));
  }
}

TEST(DelayCompensationTest, AGradientIsCorrectedByWhatHasChangedSinceItsTrainerRead) {
  const HandMadeJob job{.trainers = 2, .sync = false, .lambda = 0.5};
  ThreadPool pool("test", 0);
  absl::StatusOr<std::unique_ptr<ServerParams>> params = ServerParams::Create(job.Main(0), job.Startup(0), 0, &pool);
  ASSERT_TRUE(params.ok()) << params.status();
  const int b = (*params)->FindBlock("b");
  ASSERT_GE(b, 0);
  std::vector<float> read(5), after(5), now(5);
  (*params)->CopyBlock(b, 0, 5, read.data(), /*reader=*/0);
  // Trainer 1 comes first. The first step of momentum is lr * g; lr is 0.05. Gradients are sums over 4 samples.
  const std::vector<float> first = {4, -8, 2, 0, 6}, second = {8, 4, -4, 2, 12};
  TrainerGradients push{.trainer = 1, .samples = 4, .gradients = {GradientOf(b, first)}};
  ASSERT_TRUE((*params)->Apply(0, absl::MakeConstSpan(&push, 1)).ok());
  // Trainer 1 reads its own update; trainer 0 does not.
  (*params)->CopyBlock(b, 0, 5, after.data(), /*reader=*/1);
  push = {.trainer = 0, .samples = 4, .gradients = {GradientOf(b, second)}};
  ASSERT_TRUE((*params)->Apply(0, absl::MakeConstSpan(&push, 1)).ok());
  (*params)->CopyBlock(b, 0, 5, now.data(), /*reader=*/1);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(after[i], read[i] - 0.05 * first[i] / 4, 1e-6) << i;
    const double g = second[i] / 4;
    const double corrected = g + 0.5 * g * g * (after[i] - read[i]);
    // Velocity 0.9 * first + corrected.
    EXPECT_NEAR(now[i], after[i] - 0.05 * (0.9 * first[i] / 4 + corrected), 1e-6) << i;
  }
  // Trainer 1 has read the present values, so there is nothing to correct.
  std::vector<float> last(5);
  push = {.trainer = 1, .samples = 4, .gradients = {GradientOf(b, first)}};
  ASSERT_TRUE((*params)->Apply(1, absl::MakeConstSpan(&push, 1)).ok());
  (*params)->CopyBlock(b, 0, 5, last.data(), /*reader=*/0);
  for (size_t i = 0; i < 5; ++i) {
    const double g0 = second[i] / 4, g1 = first[i] / 4;
    const double corrected = g0 + 0.5 * g0 * g0 * (after[i] - read[i]);
    const double velocity = 0.9 * (0.9 * g1 + corrected) + g1;
    EXPECT_NEAR(last[i], now[i] - 0.05 * velocity, 1e-6) << i;
  }
  // w [40, 16] and b [5], one copy per trainer.
  EXPECT_EQ((*params)->read_values_bytes(), 2 * (40 * 16 + 5) * 4);
}

TEST(DelayCompensationTest, OneTrainerHasNothingToCorrect) {
  InProcessCluster::Digest digests[2];
  for (const double lambda : {-1.0, 0.3}) {
    const HandMadeJob job{.servers = 2, .sync = false, .lambda = lambda};
    auto cluster = MakeCluster(QuickOptionsFor(job));
    ASSERT_TRUE(Steps(*cluster, job, 0, 0, 6).ok());
    const auto digest = cluster->GetDigest();
    ASSERT_TRUE(digest.ok()) << digest.status();
    digests[lambda > 0] = *digest;
  }
  EXPECT_EQ(digests[0], digests[1]);
}

// ------------------------------------------------------------------------------------------------------- async tables

TEST(AsyncTablesTest, RowsAreUpdatedAndReadWhileDenseBlocksWait) {
  const HandMadeJob job{.trainers = 2, .async_tables = true};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).Join().ok());
  const std::vector<int64_t> ids = {-7, int64_t{1} << 62};
  const auto rows_of = [&](int trainer) {
    std::vector<float> rows(8);
    const ParamChannel::TableRows pull{.table = "t", .width = 4, .ids = &ids, .rows = rows.data()};
    EXPECT_TRUE(cluster->client(trainer).steps().PullRows(absl::MakeConstSpan(&pull, 1)).ok());
    return rows;
  };
  for (int t = 0; t < 2; ++t) ASSERT_TRUE(cluster->client(t).steps().BeginStep(0, /*read_only=*/false).ok());
  const std::vector<float> before = rows_of(1);
  // Trainer 0 pushes a row and a dense gradient; trainer 1 has pushed nothing.
  SelectedRows gradient;
  gradient.ids = {ids[1]};
  gradient.values = Tensor::Of<float>({1, 4}, {4.0f, 4.0f, 4.0f, 4.0f});
  gradient.merged = gradient.present = true;
  const ParamChannel::LaneRows row{.lane = 0, .value = &gradient};
  const Tensor dense = Tensor::Of<float>({5}, {1.0f, 2.0f, 3.0f, 4.0f, 5.0f});
  const ParamChannel::LaneTensor lane{.lane = 0, .value = &dense};
  Client& client = cluster->client(0);
  ASSERT_TRUE(client.steps().SendRows({.name = "t", .server = -1}, 4, absl::MakeConstSpan(&row, 1)).ok());
  ASSERT_TRUE(client.steps().SendDense({.name = "b", .server = 0, .count = 5}, absl::MakeConstSpan(&lane, 1)).ok());
  ASSERT_TRUE(client.steps().FinishSends(4, v1::APPLY).ok());
  const absl::Time end = absl::Now() + absl::Seconds(20);
  std::vector<float> after = rows_of(1);
  while (after == before && absl::Now() < end) after = rows_of(1);
  EXPECT_EQ(std::vector<float>(after.begin(), after.begin() + 4),
            std::vector<float>(before.begin(), before.begin() + 4));
  // Adagrad's first step is lr * g / (|g| + epsilon), with the pusher's own samples.
  for (int j = 4; j < 8; ++j) EXPECT_NEAR(after[j], before[j] - 0.05, 1e-5) << j;
  EXPECT_EQ(cluster->servers().server(0).Version(), 0);
  // When trainer 1 has pushed too, the dense block changes; the row does not change again.
  ASSERT_TRUE(cluster->client(1).steps().FinishSends(4, v1::APPLY).ok());
  Tensor b;
  b.Resize(v1::FLOAT32, {5});
  ASSERT_TRUE(client.steps().Receive({.name = "b", .server = 0, .count = 5}, &b).ok());
  StepOutcome outcome;
  ASSERT_TRUE(client.steps().FinishReceives(&outcome).ok());
  EXPECT_EQ(outcome.version, 1);
  EXPECT_EQ(outcome.samples, 8);
  EXPECT_EQ(rows_of(1), after);
}

TEST(AsyncTablesTest, RowsAreDividedByTheirTrainersSamplesAndNotByAll) {
  const HandMadeJob job{.trainers = 2};
  auto cluster = MakeCluster(QuickOptionsFor(job));
  const absl::Status end = cluster->RunTrainers([&](int trainer) { return Steps(*cluster, job, trainer, 0, 4); });
  ASSERT_TRUE(end.ok()) << end;
  const auto in_step = cluster->GetDigest();
  const HandMadeJob loose{.trainers = 2, .async_tables = true};
  auto other = MakeCluster(QuickOptionsFor(loose));
  ASSERT_TRUE(other->RunTrainers([&](int trainer) { return Steps(*other, loose, trainer, 0, 4); }).ok());
  const auto out_of_step = other->GetDigest();
  ASSERT_TRUE(in_step.ok() && out_of_step.ok());
  EXPECT_FALSE(*in_step == *out_of_step);
}

}  // namespace
}  // namespace weir
