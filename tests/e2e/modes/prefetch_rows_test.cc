// distribute.prefetch_rows on the real train loop: what is on the wire when, which pushes a row may miss, and that
// nothing else changes: not the bits where no row is missed, not what tables count, not evaluations, checkpoints and
// ends.

#include <algorithm>
#include <atomic>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/checkpoint/directory.h"
#include "framework/checkpoint/load.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/testing/jobs/saved_run.h"
#include "tests/testing/jobs/slot_job.h"
#include "tests/testing/jobs/slot_job_test.h"
#include "tests/testing/tapped_transport.h"
#include "tests/testing/train_in_process.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

const std::string kAhead = "distribute.prefetch_rows=true";
const std::string kAsync = "distribute.sync=false";

// Observes the calls of a trainer to one server, by step; in these jobs rows are requested once per step.
class Watch {
 public:
  virtual ~Watch() = default;
  // Before the pull of the rows of step `pull`; an error is its answer.
  virtual absl::Status OnPull(int64_t pull) = 0;
  // They are there.
  virtual void OnPulled(int64_t pull) = 0;
  // Before the last part of a step's pushes goes out, and when the server has acknowledged it.
  virtual void OnLastPart(int64_t step) = 0;
  virtual void OnAcknowledged(int64_t step) = 0;
};

std::unique_ptr<Transport> Watched(Transport* servers, Watch* watch) {
  return Tapped(servers, [watch, pulls = std::make_shared<std::atomic<int64_t>>(0)](TappedCall call) {
    if (const auto pull = call.As<v1::PullRequest>(); pull && pull->items_size() > 0 && pull->items(0).width() > 0) {
      const int64_t number = (*pulls)++;
      const absl::Status status = watch->OnPull(number);
      if (!status.ok()) return call.done(status);
      call.OnAnswer([watch, number](absl::StatusOr<Slices>&) { watch->OnPulled(number); });
    }
    if (const auto push = call.As<v1::PushRequest>(); push && push->has_part_count()) {
      watch->OnLastPart(push->step());
      call.OnAnswer([watch, step = push->step()](absl::StatusOr<Slices>&) { watch->OnAcknowledged(step); });
    }
    call.GoOn();
  });
}

class PrefetchRowsTest : public SlotJobTest {
 protected:
  static void SetUpTestSuite() {
    SlotJobTest::SetUpTestSuite();
    WriteApart("apart32.txt", 32);
    WriteApart("apart64.txt", 64);
  }

  // 2048 examples; of any two neighbouring runs of `examples` no id is in both.
  static void WriteApart(const std::string& name, int64_t examples) {
    std::ofstream out(absl::StrCat(dir_, "/", name));
    for (int64_t i = 0; i < 2048; ++i) {
      std::vector<std::string> words = absl::StrSplit(SlotLine(i), ' ');
      // "1 <label> 4 <x> <x> <x> <x> 1 <a> 1 <b>"
      const int64_t other = 1000 * (i / examples % 2);
      words[8] = absl::StrCat(std::stoll(words[8]) + other);
      words[10] = absl::StrCat(std::stoll(words[10]) + other);
      for (size_t w = 0; w < words.size(); ++w) out << (w > 0 ? " " : "") << words[w];
      out << "\n";
    }
  }

  // One trainer on one stream in the order of the file: neighbouring runs of `examples` have no id in common.
  static std::vector<std::string> Apart(int examples) {
    return {kAsync, absl::StrCat("data.train.files=[\"apart", examples, ".txt\"]"), "data.shuffle=NO_SHUFFLE",
            "train.lanes=1", "train.epochs=2"};
  }

  struct Trained : SavedRun {
    std::vector<std::string> evaluations;
  };
  static Trained Train(InProcessRun run, std::string checkpoints = "") {
    static int runs = 0;
    if (checkpoints.empty()) checkpoints = absl::StrCat(dir_, "/checkpoints", runs++);
    run.overrides.push_back(absl::StrCat("checkpoint.dir=\"", checkpoints, "\""));
    Trained trained{OpenSaved(Run(std::move(run)), checkpoints), {}};
    trained.evaluations = EvalLines(trained.result);
    return trained;
  }

  static std::vector<std::string> With(std::vector<std::string> overrides, const std::vector<std::string>& more) {
    overrides.insert(overrides.end(), more.begin(), more.end());
    return overrides;
  }
};

// ------------------------------------------------------------------------------------------------------------- overlap

// The last part of a step does not leave before the rows of the next step have come; those are not asked for before the
// step before it has been acknowledged.
class OrderWatch : public Watch {
 public:
  explicit OrderWatch(int64_t steps) : steps_(steps) {}
  absl::Status OnPull(int64_t pull) override {
    MutexLock lock(&mu_);
    // Pull k is for step k; it may miss the push of step k - 1 and no other.
    early_ += acknowledged_ < pull - 1 ? 1 : 0;
    return absl::OkStatus();
  }
  void OnPulled(int64_t pull) override {
    MutexLock lock(&mu_);
    pulls_ = pull + 1;
    changed_.SignalAll();
  }
  void OnLastPart(int64_t step) override {
    const absl::Time end = absl::Now() + absl::Seconds(20);
    MutexLock lock(&mu_);
    if (step + 1 >= steps_) return;  // nothing comes behind it
    while (pulls_ < step + 2 && absl::Now() < end) changed_.WaitWithTimeout(&mu_, absl::Milliseconds(100));
    late_ += pulls_ < step + 2 ? 1 : 0;
  }
  void OnAcknowledged(int64_t step) override {
    MutexLock lock(&mu_);
    acknowledged_ = std::max(acknowledged_, step + 1);
  }
  int64_t pulls() {
    MutexLock lock(&mu_);
    return pulls_;
  }
  int early() {
    MutexLock lock(&mu_);
    return early_;
  }
  int late() {
    MutexLock lock(&mu_);
    return late_;
  }

 private:
  const int64_t steps_;
  Mutex mu_;
  CondVar changed_;
  int64_t pulls_ ABSL_GUARDED_BY(mu_) = 0, acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  int early_ ABSL_GUARDED_BY(mu_) = 0, late_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST_F(PrefetchRowsTest, RowsOfTheNextBatchComeBeforeThePushOfThisOneAndBehindTheOneBefore) {
  for (const char* mode : {"distribute.async_apply=TRANSACTION", "distribute.async_apply=EAGER",
                           "distribute.bounded_staleness={steps: 1}"}) {
    constexpr int64_t kSteps = 12;
    std::string job = kSlotJob;
    const std::string eval = "  eval { files: \"eval.txt\" }\n";
    job.erase(job.find(eval), eval.size());
    OrderWatch watch(kSteps);
    const InProcessResult result =
        Run({.job_text = job,
             .overrides = {kAsync, kAhead, mode, absl::StrCat("train.max_steps=", kSteps)},
             .between = [&watch](int, Transport* servers) { return Watched(servers, &watch); }});
    EXPECT_EQ(result.summary.steps, kSteps) << mode;
    EXPECT_EQ(watch.late(), 0) << mode;
    EXPECT_EQ(watch.early(), 0) << mode;
    // Nothing is asked for that no step uses.
    EXPECT_EQ(watch.pulls(), kSteps) << mode;
  }
}

// ---------------------------------------------------------------------------------------------------------------- bits

struct Bits {
  const char* name;
  std::vector<std::string> overrides;
  int examples = 32;
};
void PrintTo(const Bits& bits, std::ostream* out) { *out << bits.name; }

class PrefetchBitsTest : public PrefetchRowsTest, public ::testing::WithParamInterface<Bits> {};

TEST_P(PrefetchBitsTest, WhereNoRowIsMissedTheyAreThoseWithout) {
  const std::vector<std::string> overrides = With(With(Apart(GetParam().examples), GetParam().overrides),
                                                  {"train.eval_every_steps=20", "checkpoint.every_steps=15"});
  const Trained without = Train({.overrides = overrides, .servers = 2, .threads = 2});
  const Trained with = Train({.overrides = With(overrides, {kAhead}), .servers = 2, .threads = 2});
  ASSERT_TRUE(!without.result.counters.empty() && !with.result.counters.empty());
  EXPECT_NE(without.values, 0u);
  EXPECT_EQ(with.values, without.values);
  EXPECT_EQ(with.state, without.state);
  EXPECT_GE(without.evaluations.size(), 3u);
  EXPECT_EQ(with.evaluations, without.evaluations);
  EXPECT_EQ(with.result.summary.examples, without.result.summary.examples);
  EXPECT_EQ(with.result.summary.train_loss, without.result.summary.train_loss);
  EXPECT_EQ(with.result.counters[0].rows_pushed, without.result.counters[0].rows_pushed);
  EXPECT_EQ(with.result.counters[0].rows_pulled, without.result.counters[0].rows_pulled);
}

INSTANTIATE_TEST_SUITE_P(Modes, PrefetchBitsTest,
                         ::testing::Values(Bits{"Async", {}}, Bits{"Eager", {"distribute.async_apply=EAGER"}},
                                           Bits{"BoundedStaleness", {"distribute.bounded_staleness={steps: 1}"}},
                                           Bits{"Accumulated", {"train.accumulate_steps=2"}, 64},
                                           Bits{"HalfAsync", {"distribute.half_async={}", "train.workers=2"}, 64},
                                           Bits{"SharedBuffers", {"distribute.memory_optimize=true"}},
                                           Bits{"FetchedRows",
                                                {"table[1].is_distributed=false", "table[1].dict_size=2000",
                                                 "table[1].fetch=ROWS"}},
                                           Bits{"Norms", {"optimizer.clip.by_global_norm.max_norm=0.5"}},
                                           Bits{"MaxSteps", {"train.max_steps=70"}}),
                         [](const ::testing::TestParamInfo<Bits>& info) { return info.param.name; });

// The other way round: where neighbouring batches have ids in common, a row misses the step between. Else the bits
// above would say nothing.
TEST_F(PrefetchRowsTest, ARowOfTwoNeighbouringBatchesMissesTheStepBetween) {
  const std::vector<std::string> overrides = {kAsync, "train.max_steps=40"};
  const Trained without = Train({.overrides = overrides});
  const auto held = [&] {
    OrderWatch watch(40);
    return Train({.overrides = With(overrides, {kAhead}),
                  .between = [&watch](int, Transport* servers) { return Watched(servers, &watch); }})
        .values;
  };
  const uint64_t with = held();
  EXPECT_NE(with, without.values);
  // That very step and no other, when its push is held until they are there.
  EXPECT_EQ(held(), with);
}

TEST_F(PrefetchRowsTest, AResumedRunGoesOnAsTheUndisturbedOne) {
  const std::vector<std::string> overrides = With(Apart(32), {kAhead});
  const Trained whole = Train({.overrides = With(overrides, {"train.max_steps=80"})});
  const std::string checkpoints = dir_ + "/resumed";
  Train({.overrides = With(overrides, {"train.max_steps=33"})}, checkpoints);
  const Trained rest =
      Train({.overrides = With(overrides, {"train.max_steps=80"}), .servers = 2, .resume = true}, checkpoints);
  EXPECT_EQ(rest.values, whole.values);
  EXPECT_EQ(rest.state, whole.state);
}

// -------------------------------------------------------------------------------------------------------------- tables

TEST_F(PrefetchRowsTest, TablesCountAnIdOncePerPushAsWithout) {
  // Rows come with an id's third step; shows and clicks are counted beside them. One trainer: which ids a step has does
  // not depend on what it has read.
  const std::vector<std::string> overrides = {kAsync,
                                              "table[0].lifecycle={admit_after: 3 ttl_steps: 12 click: \"label\"}",
                                              "train.max_steps=60", "train.lanes=2", "data.batch_size=8"};
  const InProcessResult without = Run({.overrides = overrides});
  const InProcessResult with = Run({.overrides = With(overrides, {kAhead})});
  for (const char* counter : {"made", "dropped", "rows", "candidates", "expired"}) {
    const std::string name = absl::StrCat("table.vectors.", counter);
    ASSERT_TRUE(without.server_counters[0].contains(name)) << name;
    EXPECT_EQ(with.server_counters[0].at(name), without.server_counters[0].at(name)) << name;
  }
  EXPECT_GT(without.server_counters[0].at("table.vectors.dropped"), 0);
  EXPECT_GT(without.server_counters[0].at("table.vectors.made"), 0);
}

TEST_F(PrefetchRowsTest, CachedRowsAreAskedForLessOften) {
  std::vector<std::string> cached = {kAsync, kAhead};
  const InProcessResult plain = Run({.overrides = cached, .servers = 2, .trainers = 2});
  for (const char* table : {"0", "1"})
    cached.push_back(absl::StrCat("table[", table, "].cache={rows: 80 max_steps: 6}"));
  const InProcessResult result = Run({.overrides = cached, .servers = 2, .trainers = 2});
  ASSERT_TRUE(result.summary.eval.has_value());
  EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc);
  for (size_t t = 0; t < 2; ++t) EXPECT_LT(result.counters[t].rows_pulled, plain.counters[t].rows_pulled * 2 / 3) << t;
}

// ------------------------------------------------------------------------------------------------------------ clusters

TEST_F(PrefetchRowsTest, EveryModeLearnsTheJobAndAppliesEveryStepOnce) {
  const std::vector<std::vector<std::string>> modes = {
      {},
      {"distribute.async_apply=EAGER"},
      {"distribute.bounded_staleness={steps: 1}"},
      {"distribute.bounded_staleness={steps: 3}", "train.accumulate_steps=2"},
      {"distribute.delay_compensation={}"},
      {"distribute.half_async={}", "train.workers=2"},
      {"distribute.wire={pull: WIRE_FLOAT16 push: WIRE_BFLOAT16}"}};
  for (const std::vector<std::string>& mode : modes) {
    const std::string name = mode.empty() ? "async" : mode[0];
    const InProcessResult result = Run({.overrides = With({kAsync, kAhead, "train.eval_every_steps=25"}, mode),
                                        .servers = 2,
                                        .trainers = 3,
                                        .threads = 2});
    ASSERT_TRUE(result.summary.eval.has_value()) << name;
    EXPECT_GE(result.summary.eval->Measure("auc"), kSlotJobAuc) << name;
    int64_t steps = 0, examples = 0;
    for (const TrainSummary& summary : result.summaries) {
      steps += summary.steps;
      examples += summary.examples;
    }
    EXPECT_EQ(examples, 8 * 2000) << name;
    for (const auto& counters : result.server_counters) {
      EXPECT_EQ(counters.at("push.applied"), steps) << name;
      if (!counters.contains("staleness.most_steps")) continue;
      EXPECT_LE(counters.at("staleness.most_steps"), name.find("steps: 1") != std::string::npos ? 1 : 3) << name;
    }
  }
}

// -------------------------------------------------------------------------------------------------------------- errors

class BrokenPulls : public Watch {
 public:
  BrokenPulls(int64_t from, absl::Status status) : from_(from), status_(std::move(status)) {}
  absl::Status OnPull(int64_t pull) override { return pull < from_ ? absl::OkStatus() : status_; }
  void OnPulled(int64_t) override {}
  void OnLastPart(int64_t step) override { pushed_ = step; }
  void OnAcknowledged(int64_t) override {}
  int64_t pushed() const { return pushed_; }

 private:
  const int64_t from_;
  const absl::Status status_;
  std::atomic<int64_t> pushed_{-1};
};

TEST_F(PrefetchRowsTest, APullThatFailsEndsTheStepThatNeedsItWithItsReason) {
  const auto run = [](BrokenPulls* pulls) {
    return TryRun({.overrides = {kAsync, kAhead, "deadlines.progress_deadline_s=4", "deadlines.lease_s=1",
                                 "deadlines.heartbeat_s=0.1", "deadlines.slow_warning_s=0.5"},
                   .between = [pulls](int, Transport* servers) { return Watched(servers, pulls); }})
        .status();
  };
  // The pull of the rows of step 5 goes out in step 4, which ends as if nothing were the matter.
  BrokenPulls refused(5, absl::InvalidArgumentError("no such rows"));
  absl::Status status = run(&refused);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("(prefetch) making vectors@ROWS: server 0 in this process: no such rows"));
  EXPECT_EQ(refused.pushed(), 4);

  BrokenPulls unheard(5, absl::UnavailableError("no way"));
  status = run(&unheard);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 0 (test:0) has waited"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("for server 0 in this process: rows of step 5, ahead of it; the last try: no way"));
  EXPECT_EQ(unheard.pushed(), 4);
}

// A value that is not finite ends the job in a step while the rows of the next one are on their way, here for ever.
TEST_F(PrefetchRowsTest, AnErrorOfTheStepInHandDoesNotWaitForTheNextOnesRows) {
  BrokenPulls unheard(1, absl::UnavailableError("no way"));
  const absl::Time start = absl::Now();
  const absl::Status status = TryRun({.overrides = {kAsync, kAhead, "table[1].initializer={constant {value: 3e38}}"},
                                      .between = [&](int, Transport* servers) { return Watched(servers, &unheard); }})
                                  .status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite"));
  EXPECT_LT(absl::Now() - start, absl::Seconds(60));  // deadlines.progress_deadline_s is half an hour
}

}  // namespace
}  // namespace weir
