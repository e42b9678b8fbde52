// Trainers' channels whose mode adds gradients otherwise than by the lane tree: in any order, in 16 bits, by adasum.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "framework/base/philox.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/channels/all_reduce_channel.h"
#include "pserver/channels/make_replica_channel.h"
#include "pserver/params/server_params.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

constexpr int kLanes = 8;

// Servers that do what the trainer's own verdict says.
class Servers : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows>) override { return absl::OkStatus(); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor>) override {
    return absl::InternalError(absl::StrCat("a gradient of ", block.name));
  }
  absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows>) override { return absl::OkStatus(); }
  absl::Status FinishSends(int64_t, v1::Verdict verdict) override {
    verdicts.push_back(verdict);
    return absl::OkStatus();
  }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::OkStatus(); }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    outcome->samples = 32;
    outcome->skipped = verdicts.back() == v1::SKIP;
    return absl::OkStatus();
  }

  std::vector<v1::Verdict> verdicts;
};

// The dense parameters, in the order of the program, and their elements.
struct Dense {
  const char* name;
  int64_t count;
};
const std::vector<Dense> kDense = {{"out.b", 1}, {"out.w", 16}, {"deep.b", 16}, {"deep.w", 192}};

using GradientOf = std::function<Tensor(int64_t step, int lane, size_t p)>;

Tensor RandomGradient(int64_t step, int lane, size_t p) {
  Tensor tensor;
  // Absent in some lanes, and in step 1 the third one in all.
  if (step == 1 && p == 2) return tensor;
  if (step > 0 && Philox(1, static_cast<uint64_t>(step), static_cast<uint64_t>(lane) * 4 + p).v[0] % 3 == 0) {
    return tensor;
  }
  tensor.Resize(v1::FLOAT32, {kDense[p].count});
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint32_t draw =
        Philox(static_cast<uint64_t>(step) * 4 + p, static_cast<uint64_t>(lane), static_cast<uint64_t>(i)).v[0];
    tensor.data<float>()[i] = static_cast<float>(draw) / 0x1p32F - 0.5F;
  }
  return tensor;
}

struct Mode {
  bool any_order = false;
  bool adasum = false;
  v1::DType compression = v1::DTYPE_UNSET;
};

struct Scene {
  int trainers = 1;
  Mode mode;
  std::vector<int64_t> buckets = {0, 0, 1, 1};
  // Steps to make, in their order.
  std::vector<int64_t> steps = {0, 1, 2};
  GradientOf gradient = RandomGradient;
  // This parameter's gradients are measurements.
  std::string measured;
};

struct Result {
  std::string digests;
  std::map<std::string, std::vector<float>> values;  // of parameters
  std::vector<v1::Verdict> verdicts;
};

absl::Status MakeSteps(const Scene& run, int trainer, ReplicaChannel::Options options, Result* result) {
  Servers servers;
  options.trainer_id = trainer;
  options.servers = &servers;
  const auto made = MakeReplicaChannel(options);
  if (!made.ok()) return made.status();
  ParamChannel& channel = **made;
  const LaneRange own = LanesOfTrainer(kLanes, run.trainers, trainer);
  for (size_t n = 0; n < run.steps.size(); ++n) {
    if (absl::Status status = channel.BeginStep(static_cast<int64_t>(n), /*read_only=*/false); !status.ok())
      return status;
    std::vector<std::vector<Tensor>> gradients(kDense.size());
    for (size_t p = 0; p < kDense.size(); ++p) {
      std::vector<StepChannel::LaneTensor> lanes;
      gradients[p].resize(static_cast<size_t>(own.count));
      for (int l = 0; l < own.count; ++l) {
        Tensor& gradient = gradients[p][static_cast<size_t>(l)];
        gradient = run.gradient(run.steps[n], own.begin + l, p);
        if (gradient.initialized()) lanes.push_back({.lane = own.begin + l, .value = &gradient});
      }
      if (lanes.empty()) continue;
      const BlockRef block{.name = kDense[p].name, .server = -1, .count = kDense[p].count};
      if (absl::Status status = channel.SendDense(block, lanes); !status.ok()) return status;
    }
    if (absl::Status status = channel.FinishSends(4 * own.count, v1::APPLY); !status.ok()) return status;
    if (absl::Status status = channel.FinishReceives(nullptr); !status.ok()) return status;
  }
  result->verdicts = servers.verdicts;
  ServerParams& params = options.replica->params();
  for (const Dense& dense : kDense) {
    std::vector<float>& values = result->values[dense.name];
    values.resize(static_cast<size_t>(dense.count));
    params.CopyBlock(params.FindBlock(dense.name), 0, dense.count, values.data(), /*reader=*/0);
  }
  const auto reply = options.replica->Digest();
  if (reply.ok()) result->digests = reply->ShortDebugString();
  return reply.status();
}

ReplicaPrograms ProgramsOf(const Scene& run) {
  ReplicaJob job = SlotReplica();
  job.lanes = kLanes;
  job.trainers = run.trainers;
  job.any_order = run.mode.any_order;
  job.adasum = run.mode.adasum;
  job.compression = run.mode.compression;
  for (size_t p = 0; p < kDense.size(); ++p) {
    EXPECT_EQ(job.parameters[p].name, kDense[p].name);
    job.parameters[p].bucket = run.buckets[p];
  }
  return job.Programs();
}

// Returns what trainer 0 has; all trainers have the same.
Result ResultOf(const Scene& run) {
  ReplicaPrograms programs = ProgramsOf(run);
  if (!run.measured.empty()) {
    for (v1::OpDesc& op : *programs.main.mutable_blocks(0)->mutable_ops()) {
      if (FindAttr(op, "block")->s() == run.measured) *op.add_attrs() = AttrB("measured", true);
    }
  }
  LocalMeshes meshes(run.trainers, /*shuffle=*/9);
  std::vector<Result> results(static_cast<size_t>(run.trainers));
  std::vector<std::thread> threads;
  for (int t = 0; t < run.trainers; ++t) {
    threads.emplace_back([&, t] {
      ThreadPool pool("test", 0);
      Collective collective(meshes.mesh(t), {.message_bytes = 128});
      const auto replica =
          MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = &collective});
      ASSERT_TRUE(replica.ok()) << replica.status();
      const absl::Status status =
          MakeSteps(run, t, {.main = &programs.main, .replica = replica->get()}, &results[static_cast<size_t>(t)]);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) collective.Abort(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Result& each : results) {
    EXPECT_EQ(each.digests, results[0].digests);
    EXPECT_EQ(each.verdicts, results[0].verdicts);
  }
  return results[0];
}

double MostDifferent(const Result& a, const Result& b) {
  double most = 0;
  for (const auto& [name, values] : a.values) {
    for (size_t i = 0; i < values.size(); ++i) {
      most = std::max(most, std::abs(double{values[i]} - double{b.values.at(name)[i]}));
    }
  }
  return most;
}

constexpr Mode kAnyOrder = {.any_order = true};
constexpr Mode kAdasum = {.adasum = true};

TEST(AllReduceSumsTest, SumsInAnyOrderAreEqualOnAllTrainersAndNearTheTree) {
  const Result tree = ResultOf({});
  for (const int trainers : {1, 2, 3, 5, 8}) {
    for (const std::vector<int64_t>& buckets : std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {0, 0, 0, 0}}) {
      const Result any = ResultOf({.trainers = trainers, .mode = kAnyOrder, .buckets = buckets});
      EXPECT_LT(MostDifferent(any, tree), 1e-5) << trainers;
    }
  }
}

TEST(AllReduceSumsTest, AdasumDependsOnNoNumberOfTrainers) {
  const Result expected = ResultOf({.mode = kAdasum});
  EXPECT_NE(expected.digests, ResultOf({}).digests);
  for (const int trainers : {2, 3, 5, 8}) {
    for (const std::vector<int64_t>& buckets :
         std::vector<std::vector<int64_t>>{{0, 1, 2, 3}, {0, 0, 0, 0}, {0, 1, 1, 1}}) {
      // Sums in any order are no matter to it.
      const Mode mode = {.any_order = trainers == 3, .adasum = true};
      EXPECT_EQ(ResultOf({.trainers = trainers, .mode = mode, .buckets = buckets}).digests, expected.digests)
          << trainers << " trainers, bucket of the second: " << buckets[1];
    }
  }
}

TEST(AllReduceSumsTest, AdasumOfEqualMeansIsThatMean) {
  // The same gradient in every lane: the update is that of one lane with one sample, as with the average.
  const auto same = [](int64_t step, int /*lane*/, size_t p) { return RandomGradient(step == 0 ? 0 : 3, 0, p); };
  const auto four = [same](int64_t step, int lane, size_t p) {
    Tensor tensor = same(step, lane, p);
    // Of the four samples of a lane.
    if (tensor.initialized()) {
      for (float& value : tensor.span<float>()) value *= 4;
    }
    return tensor;
  };
  const Result means = ResultOf({.trainers = 2, .mode = kAdasum, .gradient = same});
  const Result average = ResultOf({.trainers = 2, .gradient = four});
  EXPECT_EQ(means.digests, average.digests);
}

TEST(AllReduceSumsTest, MeasurementsAreAveragedByAdasumJobsToo) {
  for (const int trainers : {1, 3, 4}) {
    const Result adasum = ResultOf({.trainers = trainers, .mode = kAdasum, .measured = "deep.b"});
    const Result other = ResultOf({.trainers = 1, .mode = kAdasum, .buckets = {0, 1, 2, 3}, .measured = "deep.b"});
    EXPECT_EQ(adasum.digests, other.digests) << trainers;
    EXPECT_NE(adasum.digests, ResultOf({.trainers = 1, .mode = kAdasum}).digests);
  }
}

Mode Compressed(v1::DType format) { return {.any_order = true, .compression = format}; }

TEST(AllReduceSumsTest, CompressedSumsAreEqualOnAllTrainersAndNearTheTree) {
  const Result tree = ResultOf({});
  for (const v1::DType format : {v1::FLOAT16, v1::BFLOAT16}) {
    for (const int trainers : {2, 3, 5, 8}) {
      const Result result = ResultOf({.trainers = trainers, .mode = Compressed(format)});
      EXPECT_LT(MostDifferent(result, tree), 2e-3) << v1::DType_Name(format) << ", " << trainers;
      EXPECT_GT(MostDifferent(result, tree), 0) << "nothing was rounded";
      EXPECT_THAT(result.verdicts, Each(v1::APPLY));
    }
    // Nothing is on the way.
    EXPECT_EQ(ResultOf({.mode = Compressed(format)}).digests, ResultOf({.mode = kAnyOrder}).digests);
  }
}

TEST(AllReduceSumsTest, MeasurementsAreNotCompressed) {
  for (const int trainers : {2, 3}) {
    const Result plain = ResultOf({.trainers = trainers, .mode = kAnyOrder});
    const Result all = ResultOf({.trainers = trainers, .mode = Compressed(v1::BFLOAT16)});
    const Result measured = ResultOf({.trainers = trainers, .mode = Compressed(v1::BFLOAT16), .measured = "deep.w"});
    EXPECT_NE(all.values.at("deep.w"), plain.values.at("deep.w"));
    EXPECT_EQ(measured.values.at("deep.w"), plain.values.at("deep.w"));
    EXPECT_EQ(measured.values.at("out.w"), all.values.at("out.w"));
  }
}

TEST(AllReduceSumsTest, AnOverflowOnTheWayIsSkippedByAllAndLeavesNothing) {
  const Result without = ResultOf({.trainers = 3, .mode = Compressed(v1::FLOAT16), .steps = {0, 2}});
  EXPECT_THAT(without.verdicts, ElementsAre(v1::APPLY, v1::APPLY));
  // Step 7: a sum of one trainer does not fit; step 8: the sum of all does not.
  for (const int64_t bad : {7, 8}) {
    const auto gradient = [](int64_t step, int lane, size_t p) {
      if (step < 7) return RandomGradient(step, lane, p);
      Tensor tensor = RandomGradient(0, lane, p);
      if (p == 1) tensor.data<float>()[3] = step == 8 ? 12000.0F : lane == 7 ? 70000.0F : 0.0F;
      return tensor;
    };
    const Result with =
        ResultOf({.trainers = 3, .mode = Compressed(v1::FLOAT16), .steps = {0, bad, 2}, .gradient = gradient});
    EXPECT_THAT(with.verdicts, ElementsAre(v1::APPLY, v1::SKIP, v1::APPLY));
    EXPECT_EQ(with.digests, without.digests) << bad;
    // The range of float32 is enough.
    EXPECT_THAT(
        ResultOf({.trainers = 3, .mode = Compressed(v1::BFLOAT16), .steps = {bad}, .gradient = gradient}).verdicts,
        ElementsAre(v1::APPLY));
  }
}

TEST(AllReduceSumsTest, AnInfiniteSumOfFiniteLanesIsSkipped) {
  const auto gradient = [](int64_t step, int lane, size_t p) {
    Tensor tensor = RandomGradient(step, lane, p);
    if (p == 1) tensor.data<float>()[3] = 3e38F;
    return tensor;
  };
  EXPECT_THAT(ResultOf({.trainers = 2, .mode = Compressed(v1::BFLOAT16), .steps = {0}, .gradient = gradient}).verdicts,
              ElementsAre(v1::SKIP));
}

TEST(AllReduceSumsTest, ResidualsAreWhereTheCallerKeepsThem) {
  const ReplicaPrograms programs =
      ProgramsOf({.trainers = 2, .mode = Compressed(v1::BFLOAT16), .buckets = {0, 1, 2, 3}});
  LocalMeshes meshes(2);
  std::vector<std::map<std::string, std::vector<float>>> memory(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      ThreadPool pool("test", 0);
      Collective collective(meshes.mesh(t), {});
      const auto replica =
          MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = &collective});
      ASSERT_TRUE(replica.ok()) << replica.status();
      Result result;
      const Scene run = {.trainers = 2, .steps = {0}};
      const absl::Status status = MakeSteps(run, t,
                                            {.main = &programs.main,
                                             .replica = replica->get(),
                                             .residuals =
                                                 [&, t](const std::string& name, int64_t count) {
                                                   std::vector<float>& own = memory[static_cast<size_t>(t)][name];
                                                   own.resize(static_cast<size_t>(count));
                                                   return absl::MakeSpan(own);
                                                 }},
                                            &result);
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) collective.Abort(status);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& of_trainer : memory) {
    EXPECT_EQ(of_trainer.size(), kDense.size());
    for (const Dense& dense : kDense) {
      const std::vector<float>& own = of_trainer.at(dense.name);
      ASSERT_EQ(static_cast<int64_t>(own.size()), dense.count);
      const auto lost = std::count_if(own.begin(), own.end(), [](float value) { return value != 0; });
      EXPECT_GE(2 * lost, dense.count) << dense.name;
    }
  }
}

}  // namespace
}  // namespace weir
