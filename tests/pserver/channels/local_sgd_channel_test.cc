// Trainers' channels of local_sgd without trainers: what moves between averages and at them, weights by samples, and
// that all trainers hold the same bits after each.
#include "pserver/channels/local_sgd_channel.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/channels/make_replica_channel.h"
#include "pserver/params/server_params.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int kLanes = 8;
constexpr int64_t kLaneSamples = 4;

struct Dense {
  const char* name;
  int64_t count;
};
const std::vector<Dense> kDense = {{"out.b", 1}, {"out.w", 16}, {"deep.b", 16}, {"deep.w", 192}};

Tensor Gradient(int64_t step, int lane, size_t p, float factor) {
  Tensor tensor(v1::FLOAT32, {kDense[p].count});
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint32_t draw =
        Philox(static_cast<uint64_t>(step) * 4 + p, static_cast<uint64_t>(lane), static_cast<uint64_t>(i)).v[0];
    tensor.data<float>()[i] = factor * (static_cast<float>(draw) / 0x1p32F - 0.5F);
  }
  return tensor;
}

using Optimizer = ReplicaJob::Optimizer;

ReplicaJob UpdatedBy(Optimizer optimizer, double learning_rate) {
  ReplicaJob job = SlotReplica();
  job.optimizer = optimizer;
  job.learning_rate = learning_rate;
  return job;
}

struct Scenario {
  int trainers = 2;
  int64_t steps = 6;
  // local_sgd.every_steps; nullopt: gradients are added in every step.
  std::optional<int64_t> every = 3;
  ReplicaJob job = UpdatedBy(Optimizer::kSgd, 0.1);
  std::vector<int64_t> equal_every = {};
  // Whether a lane has examples in a step. Empty: all have.
  std::function<bool(int64_t step, int lane)> has = {};
  // What the servers say of a step, beside its samples. May be empty.
  std::function<void(int64_t step, StepOutcome* outcome)> outcome = {};
  // Factor of a trainer's gradients. Empty: 1.
  std::function<float(int64_t step, int trainer)> factor = {};
};

bool Has(const Scenario& run, int64_t step, int lane) { return !run.has || run.has(step, lane); }

// Servers that count samples of all lanes.
class Servers : public ParamChannel {
 public:
  explicit Servers(const Scenario* run) : run_(*run) {}
  absl::Status BeginStep(int64_t step, bool) override {
    step_ = step;
    return absl::OkStatus();
  }
  absl::Status PullRows(absl::Span<const TableRows>) override { return absl::OkStatus(); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor>) override {
    return absl::InternalError(absl::StrCat("a gradient of ", block.name));
  }
  absl::Status SendRows(const BlockRef& block, int, absl::Span<const LaneRows>) override {
    sent_rows_.push_back(block.name);
    return absl::OkStatus();
  }
  absl::Status FinishSends(int64_t, v1::Verdict) override { return absl::OkStatus(); }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::OkStatus(); }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    for (int lane = 0; lane < kLanes; ++lane) outcome->samples += Has(run_, step_, lane) ? kLaneSamples : 0;
    if (run_.outcome) run_.outcome(step_, outcome);
    return absl::OkStatus();
  }
  const std::vector<std::string>& sent_rows() const { return sent_rows_; }

 private:
  const Scenario& run_;
  int64_t step_ = 0;
  std::vector<std::string> sent_rows_;
};

// What a trainer holds after each step.
struct Trainer {
  absl::Status end;
  std::vector<std::string> digests;
  std::vector<float> weights;   // of deep.w, at the end
  std::vector<float> received;  // of deep.w, in the last step
};

absl::Status RunSteps(const Scenario& run, int trainer, ParamChannel* channel, DenseReplica* replica, Trainer* result) {
  const LaneRange own = LanesOfTrainer(kLanes, run.trainers, trainer);
  Tensor received(v1::FLOAT32, {kDense.back().count});
  for (int64_t step = 0; step < run.steps; ++step) {
    if (absl::Status status = channel->BeginStep(step, /*read_only=*/false); !status.ok()) return status;
    int64_t samples = 0;
    std::vector<std::vector<Tensor>> gradients(kDense.size());
    for (size_t p = 0; p < kDense.size(); ++p) {
      gradients[p].resize(static_cast<size_t>(own.count));
      std::vector<StepChannel::LaneTensor> lanes;
      for (int l = 0; l < own.count; ++l) {
        if (!Has(run, step, own.begin + l)) continue;
        samples += p == 0 ? kLaneSamples : 0;
        Tensor& gradient = gradients[p][static_cast<size_t>(l)];
        gradient = Gradient(step, own.begin + l, p, run.factor ? run.factor(step, trainer) : 1);
        lanes.push_back({.lane = own.begin + l, .value = &gradient});
      }
      if (lanes.empty()) continue;
      const BlockRef block{.name = kDense[p].name, .server = -1, .count = kDense[p].count};
      if (absl::Status status = channel->SendDense(block, lanes); !status.ok()) return status;
    }
    if (absl::Status status = channel->FinishSends(samples, v1::APPLY); !status.ok()) return status;
    // The program may use its memory again.
    gradients.clear();
    const BlockRef block{.name = kDense.back().name, .server = -1, .count = kDense.back().count};
    if (absl::Status status = channel->Receive(block, &received); !status.ok()) return status;
    if (absl::Status status = channel->FinishReceives(nullptr); !status.ok()) return status;
    const absl::StatusOr<v1::ControlReply> reply = replica->Digest();
    if (!reply.ok()) return reply.status();
    result->digests.push_back(reply->ShortDebugString());
  }
  result->received.assign(received.data<float>(), received.data<float>() + received.size());
  result->weights.resize(static_cast<size_t>(kDense.back().count));
  replica->params().CopyBlock(replica->params().FindBlock(kDense.back().name), 0, kDense.back().count,
                              result->weights.data(), /*reader=*/0);
  return absl::OkStatus();
}

ReplicaPrograms ProgramsOf(const Scenario& run) {
  ReplicaJob job = run.job;
  job.lanes = kLanes;
  job.trainers = run.trainers;
  job.any_order = run.every.has_value();
  job.local_steps = run.every.value_or(0);
  return job.Programs();
}

std::vector<Trainer> After(const Scenario& run) {
  const ReplicaPrograms programs = ProgramsOf(run);
  LocalMeshes meshes(run.trainers, /*shuffle=*/9);
  std::vector<Trainer> trainers(static_cast<size_t>(run.trainers));
  std::vector<std::thread> threads;
  for (int t = 0; t < run.trainers; ++t) {
    threads.emplace_back([&, t] {
      ThreadPool pool("test", 0);
      Collective collective(meshes.mesh(t), {.waits = {.deadline = absl::Seconds(60)}});
      const auto replica =
          MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = &collective});
      ASSERT_TRUE(replica.ok()) << replica.status();
      Servers servers(&run);
      const auto channel = MakeReplicaChannel({.main = &programs.main,
                                               .trainer_id = t,
                                               .replica = replica->get(),
                                               .servers = &servers,
                                               .equal_every = run.equal_every});
      ASSERT_TRUE(channel.ok()) << channel.status();
      Trainer& trainer = trainers[static_cast<size_t>(t)];
      trainer.end = RunSteps(run, t, channel->get(), replica->get(), &trainer);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return trainers;
}

// Returns for each step whether all trainers hold the same bits after it: "..=..=".
std::string EqualAfter(const std::vector<Trainer>& trainers) {
  std::string text;
  for (size_t step = 0; step < trainers[0].digests.size(); ++step) {
    bool equal = true;
    for (const Trainer& trainer : trainers) {
      EXPECT_TRUE(trainer.end.ok()) << trainer.end;
      equal &= trainer.digests.size() > step && trainer.digests[step] == trainers[0].digests[step];
    }
    text += equal ? '=' : '.';
  }
  return text;
}

double FarthestApart(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(static_cast<double>(a[i]) - b[i]));
  return most;
}

TEST(LocalSgdChannelTest, ReplicasAreEqualAfterEachAverageAndDifferBetween) {
  for (const ReplicaJob& job : {UpdatedBy(Optimizer::kSgd, 0.1), UpdatedBy(Optimizer::kMomentum, 0.1),
                                UpdatedBy(Optimizer::kAdam, 0.01), UpdatedBy(Optimizer::kAdagrad, 0.1)}) {
    for (const int trainers : {2, 3, 5, 8}) {
      const std::vector<Trainer> all = After({.trainers = trainers, .steps = 7, .job = job});
      EXPECT_EQ(EqualAfter(all), "..=..=.") << static_cast<int>(job.optimizer) << ", " << trainers;
      // The program gets what the replica holds.
      for (const Trainer& trainer : all) EXPECT_EQ(trainer.received, trainer.weights);
    }
  }
}

TEST(LocalSgdChannelTest, AnAverageAfterEachStepOfSgdIsNearAllReduce) {
  for (const int trainers : {2, 3, 5}) {
    const Scenario plain{.trainers = trainers, .steps = 20, .every = std::nullopt};
    const Scenario local{.trainers = trainers, .steps = 20, .every = 1};
    const std::vector<Trainer> a = After(plain), b = After(local);
    EXPECT_EQ(EqualAfter(b), std::string(20, '='));
    EXPECT_LT(FarthestApart(a[0].weights, b[0].weights), 2e-6) << trainers;
    // They move: the comparison means something.
    EXPECT_GT(FarthestApart(a[0].weights, After({.trainers = trainers, .steps = 1, .every = 1})[0].weights), 1e-3);
  }
}

TEST(LocalSgdChannelTest, OneTrainerHasTheBitsOfPlainTraining) {
  for (const ReplicaJob& job : {UpdatedBy(Optimizer::kSgd, 0.1), UpdatedBy(Optimizer::kAdam, 0.01)}) {
    const std::vector<Trainer> plain = After({.trainers = 1, .every = std::nullopt, .job = job});
    const std::vector<Trainer> local = After({.trainers = 1, .every = 2, .job = job});
    EXPECT_EQ(plain[0].digests, local[0].digests) << static_cast<int>(job.optimizer);
  }
}

TEST(LocalSgdChannelTest, TrainersCountByTheirSamples) {
  // 8 lanes over 3 trainers, of which trainer 1 has one lane with examples and trainer 2 none.
  const auto has = [](int64_t, int lane) { return lane <= 3; };
  const std::vector<Trainer> plain = After({.trainers = 3, .steps = 10, .every = std::nullopt, .has = has});
  const std::vector<Trainer> local = After({.trainers = 3, .steps = 10, .every = 1, .has = has});
  EXPECT_EQ(EqualAfter(local), std::string(10, '='));
  EXPECT_LT(FarthestApart(plain[0].weights, local[0].weights), 2e-6);
  // With equal weights the step would be other than it is with all lanes' gradients.
  const std::vector<Trainer> every = After({.trainers = 3, .steps = 10, .every = 1});
  EXPECT_GT(FarthestApart(every[0].weights, local[0].weights), 1e-3);
}

TEST(LocalSgdChannelTest, StepsWithoutExamplesAnywhereChangeNothing) {
  const std::vector<Trainer> all =
      After({.trainers = 3, .steps = 6, .has = [](int64_t step, int) { return step >= 3; }});
  EXPECT_EQ(EqualAfter(all), "===..=");
  EXPECT_EQ(all[1].digests[0], all[1].digests[2]);
}

TEST(LocalSgdChannelTest, ATrainerWithoutExamplesFollowsTheSchedule) {
  // The rate of a step is the same on all trainers, so replicas with their counters are equal at an average.
  ReplicaJob job = UpdatedBy(Optimizer::kAdam, 0.01);
  job.schedule = ExponentialRate(0.01, 2, 0.5);
  const auto has = [](int64_t step, int lane) { return step % 2 == 0 || lane < 3; };
  const Scenario run{.trainers = 3, .steps = 6, .job = job, .has = has};
  EXPECT_EQ(EqualAfter(After(run)), "..=..=");
}

TEST(LocalSgdChannelTest, ASkippedStepChangesNoReplica) {
  const auto skip = [](int64_t step, StepOutcome* outcome) { outcome->skipped = step == 1; };
  const std::vector<Trainer> all = After({.trainers = 2, .steps = 3, .outcome = skip});
  EXPECT_EQ(EqualAfter(all), "..=");
  for (const Trainer& trainer : all) EXPECT_EQ(trainer.digests[0], trainer.digests[1]);
  // The average comes even if the step that it follows is skipped.
  const auto last = [](int64_t step, StepOutcome* outcome) { outcome->skipped = step == 2; };
  EXPECT_EQ(EqualAfter(After({.trainers = 2, .steps = 3, .outcome = last})), "..=");
}

TEST(LocalSgdChannelTest, WhoeverLooksSeesEqualReplicas) {
  EXPECT_EQ(EqualAfter(After({.steps = 12, .every = 5, .equal_every = {0, 4, 6}})), "...===.=.=.=");
  const auto stop = [](int64_t step, StepOutcome* outcome) { outcome->stop = step == 3; };
  EXPECT_EQ(EqualAfter(After({.steps = 4, .every = 100, .outcome = stop})), "...=");
  const auto end = [](int64_t step, StepOutcome* outcome) { outcome->ended = step == 3; };
  const std::vector<Trainer> ended = After({.steps = 4, .every = 100, .outcome = end});
  EXPECT_EQ(EqualAfter(ended), "...=");
}

TEST(LocalSgdChannelTest, AStopChangesLaterStepsUnlessTheyBeginAtAnAverage) {
  Scenario run{.trainers = 3, .steps = 8, .every = 4, .job = UpdatedBy(Optimizer::kAdam, 0.01)};
  const std::vector<Trainer> calm = After(run);
  run.outcome = [](int64_t step, StepOutcome* outcome) { outcome->stop = step == 3; };
  EXPECT_EQ(After(run)[0].digests, calm[0].digests);
  run.outcome = [](int64_t step, StepOutcome* outcome) { outcome->stop = step == 4; };
  const std::vector<Trainer> between = After(run), again = After(run);
  EXPECT_EQ(EqualAfter(between), "...==..=");
  EXPECT_NE(between[0].digests[7], calm[0].digests[7]);
  EXPECT_EQ(between[0].digests, again[0].digests);
}

TEST(LocalSgdChannelTest, TwoRunsHaveTheSameBits) {
  const Scenario run{.trainers = 5, .steps = 6, .job = UpdatedBy(Optimizer::kAdam, 0.01)};
  EXPECT_EQ(After(run)[4].digests, After(run)[4].digests);
}

TEST(LocalSgdChannelTest, ATrainerThatFailsEndsTheAverageOfAll) {
  ReplicaJob job = UpdatedBy(Optimizer::kSgd, 0.1);
  job.clip = ReplicaJob::Clip::kByGlobalNorm;
  job.max_norm = 1;
  const Scenario run{.trainers = 3, .job = job, .factor = [](int64_t step, int trainer) {
                       return step == 2 && trainer == 1 ? INFINITY : 1.0F;
                     }};
  const std::vector<Trainer> all = After(run);
  for (const Trainer& trainer : all) {
    EXPECT_EQ(trainer.digests.size(), 2u);
    EXPECT_THAT(std::string(trainer.end.message()), HasSubstr("norm")) << trainer.end;
  }
}

// ------------------------------------------------------------------------------------------------------- wrong
// programs

// Returns the error of a channel for the programs after an edit of the main one.
absl::Status ErrorOf(const std::function<void(v1::ProgramDesc*)>& edit) {
  const ReplicaPrograms programs = ProgramsOf({.job = UpdatedBy(Optimizer::kAdam, 0.001)});
  LocalMeshes meshes(1);
  ThreadPool pool("test", 0);
  Collective collective(meshes.mesh(0), {});
  const auto replica =
      MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = &collective});
  EXPECT_TRUE(replica.ok()) << replica.status();
  v1::ProgramDesc main = programs.main;
  edit(&main);
  Scenario run;
  Servers servers(&run);
  return MakeReplicaChannel({.main = &main, .replica = replica->get(), .servers = &servers}).status();
}

TEST(LocalSgdChannelTest, StateThatCannotBeAveragedIsRefused) {
  EXPECT_TRUE(ErrorOf([](v1::ProgramDesc*) {}).ok());
  const absl::Status status = ErrorOf([](v1::ProgramDesc* main) {
    for (v1::VarDesc& var : *main->mutable_blocks(0)->mutable_vars()) {
      if (var.name() == "deep.w.moment1") var.set_dtype(v1::INT64);
    }
  });
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("'deep.w.moment1' of adam is INT64"), HasSubstr("averages FLOAT32 alone")));
}

TEST(LocalSgdChannelTest, GradientsOfUnknownParametersAreRefused) {
  const auto rename = [](const std::string& to) {
    return [to](v1::ProgramDesc* main) {
      for (v1::OpDesc& op : *main->mutable_blocks(0)->mutable_ops()) {
        for (v1::OpAttr& attr : *op.mutable_attrs()) {
          if (op.type() == "local_gradient" && attr.name() == "block" && attr.s() == "deep.w") attr.set_s(to);
        }
      }
    };
  };
  EXPECT_THAT(std::string(ErrorOf(rename("deeper")).message()),
              HasSubstr("local_gradient of 'deeper', which the plan does not have"));
  EXPECT_THAT(std::string(ErrorOf(rename("deep.b")).message()), HasSubstr("two local_gradient ops of 'deep.b'"));
}

}  // namespace
}  // namespace weir
