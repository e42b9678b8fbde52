// Consistency modes by themselves, without parameters, lock and wire: which updates they hand out, and which pulls they
// let through.

#include "pserver/consistency/consistency.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/consistency/async_steps.h"
#include "pserver/consistency/make_consistency.h"
#include "pserver/consistency/sync_steps.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ConsistencyTest : public ::testing::Test {
 protected:
  Consistency::Options Options() { return {.self = "server 0", .counters = &counters_}; }

  void Push(int trainer, int64_t step, int64_t samples = 8, v1::Verdict verdict = v1::APPLY,
            std::vector<Gradient> gradients = {}) {
    v1::PushRequest request;
    request.mutable_caller()->set_trainer(trainer);
    request.set_step(step);
    request.set_part(0);
    request.set_part_count(1);
    request.set_samples(samples);
    request.set_verdict(verdict);
    book_.Book(trainer, request, std::move(gradients), 0);
  }
  static v1::PullRequest PullOf(int trainer, int64_t version, int width = 0) {
    v1::PullRequest request;
    request.mutable_caller()->set_trainer(trainer);
    request.set_version(version);
    request.add_items()->set_width(width);
    return request;
  }
  // Runs what has become possible, as ServerCore does. Returns the number of updates.
  static int RunAllUpdates(Consistency* mode) {
    int updates = 0;
    while (std::optional<Update> update = mode->Next()) {
      mode->Finish(*update, /*ok=*/true, /*stop=*/false, /*joined=*/true);
      ++updates;
    }
    return updates;
  }
  int64_t counter(const std::string& name) { return counters_.Get(name, "steps")->value(); }

  Counters counters_;
  StepBook book_{{SIZE_MAX, SIZE_MAX}, counters_.Get("push.repeated", "messages")};
};

TEST_F(ConsistencyTest, InSyncAStepTakesEffectWhenAllHavePushedIt) {
  SyncSteps mode(Options(), &book_);
  Push(0, 0);
  EXPECT_FALSE(mode.Next().has_value());
  EXPECT_FALSE(mode.PullReady(PullOf(0, 1)));
  EXPECT_THAT(mode.BlockersOf(PullOf(0, 1)), SizeIs(1));
  EXPECT_EQ(mode.BlockersOf(PullOf(0, 1))[0].trainer, 1);
  EXPECT_TRUE(mode.WaitsForOthers(0, {}));
  EXPECT_FALSE(mode.WaitsForOthers(1, {}));
  Push(1, 0);
  const std::optional<Update> update = mode.Next();
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->kind, Update::Kind::kStep);
  EXPECT_TRUE(update->effective);
  EXPECT_THAT(*update->gradients, SizeIs(2));
  EXPECT_FALSE(mode.PullReady(PullOf(0, 0))) << "nobody reads while a step takes effect";
  EXPECT_FALSE(mode.Next().has_value());
  mode.Finish(*update, /*ok=*/true, /*stop=*/true, /*joined=*/true);
  EXPECT_EQ(mode.version().version, 1);
  EXPECT_EQ(mode.version().samples, 16);
  EXPECT_TRUE(mode.version().stop);
  EXPECT_TRUE(mode.PullReady(PullOf(0, 1)));
  EXPECT_TRUE(mode.IsOver(0, 0));
  EXPECT_FALSE(mode.IsOver(0, 1));
  EXPECT_THAT(std::string(mode.CheckTurn(0, 2, "part").message()), HasSubstr("server 0 is at step 1"));
}

TEST_F(ConsistencyTest, OneVerdictSkipsTheStepOfAll) {
  SyncSteps mode(Options(), &book_);
  Push(0, 0);
  Push(1, 0, 8, v1::SKIP);
  const std::optional<Update> update = mode.Next();
  ASSERT_TRUE(update.has_value());
  EXPECT_FALSE(update->effective);
  mode.Finish(*update, true, false, true);
  EXPECT_TRUE(mode.version().skipped);
  EXPECT_EQ(counter("push.skipped"), 2);
  EXPECT_EQ(counter("push.applied"), 0);
}

TEST_F(ConsistencyTest, InSyncAStepWithoutSamplesEndsTheRunAndIsNoStep) {
  SyncSteps mode(Options(), &book_);
  Push(0, 0, 0);
  Push(1, 0, 0);
  EXPECT_EQ(RunAllUpdates(&mode), 1);
  EXPECT_TRUE(mode.version().ended);
  EXPECT_EQ(counter("push.applied"), 0);
  EXPECT_EQ(counter("push.skipped"), 0);
}

TEST_F(ConsistencyTest, AnUpdateThatWaitsForNormsGoesOnWithThem) {
  Consistency::Options options = Options();
  options.norm_rounds = 1;
  options.exchanges_norms = true;
  SyncSteps mode(options, &book_);
  Push(0, 0);
  Push(1, 0);
  std::optional<Update> update = mode.Next();
  ASSERT_TRUE(update.has_value());
  NormSums sums;
  const float value = 3;
  sums["clip"].AddSquares({&value, 1});
  update->norms.Offer(sums);
  mode.Hold(*std::move(update), /*gone=*/false);
  EXPECT_TRUE(mode.OwesNorms(0));
  EXPECT_FALSE(mode.OwesNorms(1));
  EXPECT_TRUE(mode.BlockersOf(PullOf(1, 1))[0].owes_norms);
  EXPECT_FALSE(mode.Next().has_value());
  google::protobuf::RepeatedPtrField<v1::WholeNorm> norms;
  norms.Add()->set_name("clip");
  norms.Mutable(0)->set_norm(2.0);
  ASSERT_TRUE(mode.norms(0).Book(0, norms).ok());
  update = mode.Next();
  ASSERT_TRUE(update.has_value());
  EXPECT_THAT(*update->gradients, SizeIs(2)) << "gathered before";
  EXPECT_TRUE(update->norms.Complete());
}

TEST_F(ConsistencyTest, WithAsyncTablesRowsOfOneTrainerGoFirstAndAreReadAtAnyTime) {
  AsyncTables mode(Options(), &book_);
  Gradient row, dense;
  row.of_table = true;
  Push(0, 0, 8, v1::APPLY, {dense, row});
  const std::optional<Update> rows = mode.Next();
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->kind, Update::Kind::kTables);
  EXPECT_EQ(rows->trainer, 0);
  EXPECT_THAT(rows->gradients->front().gradients, SizeIs(1));
  EXPECT_TRUE(mode.PullReady(PullOf(1, 5, /*width=*/4)));
  EXPECT_FALSE(mode.PullReady(PullOf(1, 1)));
  EXPECT_FALSE(mode.Next().has_value()) << "its tables are taken, and trainer 1 has pushed nothing";
  mode.Finish(*rows, true, false, true);
  EXPECT_EQ(mode.version().version, 0);
  Push(1, 0);
  EXPECT_EQ(RunAllUpdates(&mode), 2) << "the rows of trainer 1, then the step";
  EXPECT_EQ(mode.version().version, 1);
  // The next step's rows are taken again.
  Push(0, 1, 8, v1::APPLY, {row});
  EXPECT_EQ(mode.Next()->kind, Update::Kind::kTables);
}

TEST_F(ConsistencyTest, RowsOfATrainerThatLostItsPlaceAreTakenAnewFromTheNextOne) {
  AsyncTables mode(Options(), &book_);
  Push(0, 0);
  const std::optional<Update> rows = mode.Next();
  mode.OnDeath(0);
  mode.Finish(*rows, true, false, true);
  mode.OnJoin(0);
  Push(0, 0);
  const std::optional<Update> again = mode.Next();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->kind, Update::Kind::kTables);
}

TEST_F(ConsistencyTest, InAsyncEachTrainersStepIsATransaction) {
  AsyncSteps mode(Options(), &book_);
  Push(1, 0);
  EXPECT_TRUE(mode.AnswersAfterUpdate(1));
  const std::optional<Update> update = mode.Next();
  ASSERT_TRUE(update.has_value());
  EXPECT_EQ(update->kind, Update::Kind::kTransaction);
  EXPECT_EQ(update->trainer, 1);
  EXPECT_TRUE(mode.Applies(1));
  Push(0, 0);
  EXPECT_TRUE(mode.Next().has_value()) << "transactions of two trainers overlap";
  EXPECT_TRUE(mode.Finish(*update, true, false, true).transaction);
  EXPECT_EQ(mode.StepsOf(1), 1);
  EXPECT_EQ(mode.StepsOf(0), 0);
  EXPECT_EQ(mode.version().version, 1);
  EXPECT_TRUE(mode.IsOver(1, 0));
}

TEST_F(ConsistencyTest, TheStepOfADeadTrainerThatIsTakingEffectGoesThrough) {
  AsyncSteps mode(Options(), &book_);
  Push(0, 0);
  Push(1, 0);
  const std::optional<Update> update = mode.Next();
  ASSERT_EQ(update->trainer, 0);
  mode.OnDeath(0);
  mode.OnDeath(1);
  EXPECT_FALSE(mode.Next().has_value()) << "the unfinished step of trainer 1 is dropped";
  mode.Finish(*update, true, false, /*joined=*/false);
  EXPECT_EQ(mode.StepsOf(0), 1);
  EXPECT_EQ(mode.StepsOf(1), 0);
}

TEST_F(ConsistencyTest, WaitersOfAStepThatIsTakingEffectGetItsOutcome) {
  AsyncSteps mode(Options(), &book_);
  Actions actions;
  mode.AwaitUpdate(
      0, [](absl::StatusOr<Slices>) {}, &actions);
  Push(0, 0);
  const std::optional<Update> update = mode.Next();
  EXPECT_THAT(mode.TakeWaiters(0), IsEmpty());
  EXPECT_THAT(mode.Finish(*update, true, false, true).waiters, SizeIs(1));
  EXPECT_THAT(mode.TakeWaiters(0), IsEmpty());
}

TEST_F(ConsistencyTest, ABoundHoldsTheFasterTrainer) {
  Consistency::Options options = Options();
  options.staleness = 1;
  BoundedSteps mode(options, &book_);
  Push(0, 0);
  EXPECT_EQ(RunAllUpdates(&mode), 1);
  EXPECT_TRUE(mode.PullReady(PullOf(0, 1)));
  mode.PullBegins(PullOf(0, 1));
  EXPECT_EQ(counter("staleness.most_steps"), 1);
  EXPECT_FALSE(mode.PullReady(PullOf(0, 2)));
  ASSERT_THAT(mode.BlockersOf(PullOf(0, 2)), SizeIs(1));
  EXPECT_EQ(mode.BlockersOf(PullOf(0, 2))[0].detail, ", which has finished no step");
  EXPECT_TRUE(mode.WaitsForOthers(0, {1}));
  EXPECT_FALSE(mode.WaitsForOthers(0, {2})) << "a pull ahead says nothing of the step in hand";
  mode.OnDone(1);
  EXPECT_TRUE(mode.PullReady(PullOf(0, 2)));
}

TEST_F(ConsistencyTest, WithABoundAPushWithoutSamplesSaysThatNoMoreStepsCome) {
  Consistency::Options options = Options();
  options.staleness = 0;
  BoundedSteps mode(options, &book_);
  Push(1, 0, /*samples=*/0);
  EXPECT_EQ(RunAllUpdates(&mode), 1);
  EXPECT_EQ(mode.StepsOf(1), 0) << "the step is none that it has done";
  EXPECT_TRUE(mode.PullReady(PullOf(0, 5)));
}

TEST_F(ConsistencyTest, EagerPartsTakeEffectOnArrivalAndTheLastOneEndsTheStep) {
  EagerParts mode(Options(), &book_);
  v1::PushRequest part;
  part.mutable_caller()->set_trainer(0);
  part.set_step(0);
  part.set_samples(8);
  EXPECT_TRUE(mode.AppliesOnArrival(part));
  const Update first = mode.ApplyOnArrival(part, {});
  const Update second = mode.ApplyOnArrival(part, {});
  EXPECT_EQ(first.part, ServerParams::StepPart::kFirst);
  EXPECT_EQ(second.part, ServerParams::StepPart::kLater);
  EXPECT_EQ(mode.running(), 2);
  mode.Finish(first, true, false, true);
  mode.Finish(second, true, false, true);
  EXPECT_EQ(mode.running(), 0);
  EXPECT_EQ(mode.version().version, 0);
  Push(0, 0);
  const std::optional<Update> rest = mode.Next();
  ASSERT_TRUE(rest.has_value());
  EXPECT_EQ(rest->part, ServerParams::StepPart::kLater);
  mode.Finish(*rest, true, false, true);
  Push(0, 1);
  EXPECT_EQ(mode.Next()->part, ServerParams::StepPart::kWhole);
  EXPECT_FALSE(mode.CheckVerdict(v1::SKIP, "part").ok());
}

TEST_F(ConsistencyTest, ACheckpointOfOtherTrainersGoesOnWhereAllOfThemHadCome) {
  AsyncSteps mode(Options(), &book_);
  mode.Restore(12, {5, 7});
  EXPECT_EQ(mode.version().version, 12);
  EXPECT_EQ(mode.StepsOf(1), 7);
  mode.Restore(12, {5, 7, 4});
  EXPECT_EQ(mode.StepsOf(0), 4);
  EXPECT_EQ(mode.StepsOf(1), 4);
}

TEST_F(ConsistencyTest, TheModeIsThatOfTheJobAndItsPlan) {
  const auto mode = [&](bool sync, const v1::ProgramDesc& main) {
    auto made = MakeConsistency(sync, main, Options(), &book_);
    EXPECT_TRUE(made.ok()) << made.status();
    return made.ok() ? *std::move(made) : nullptr;
  };
  v1::ProgramDesc main;
  EXPECT_NE(dynamic_cast<SyncSteps*>(mode(true, main).get()), nullptr);
  EXPECT_NE(dynamic_cast<AsyncSteps*>(mode(false, main).get()), nullptr);
  main.mutable_plan()->set_async_eager(true);
  EXPECT_NE(dynamic_cast<EagerParts*>(mode(false, main).get()), nullptr);
  main.mutable_plan()->clear_async_eager();
  main.mutable_mode()->set_staleness(0);
  EXPECT_NE(dynamic_cast<BoundedSteps*>(mode(false, main).get()), nullptr);
  main.mutable_mode()->set_async_tables(true);
  EXPECT_NE(dynamic_cast<AsyncTables*>(mode(true, main).get()), nullptr);
}

TEST_F(ConsistencyTest, AProgramThatChoosesTwoModesIsRefused) {
  v1::ProgramDesc main;
  main.mutable_plan()->set_async_eager(true);
  main.mutable_mode()->set_staleness(2);
  const auto made = MakeConsistency(/*sync=*/false, main, Options(), &book_);
  EXPECT_EQ(made.status(),
            absl::InvalidArgumentError("the program chooses two consistency modes, async_apply EAGER and "
                                       "bounded_staleness; a job has one"));
}

}  // namespace
}  // namespace weir
