// Trainers' channels without trainers: gradients that single lanes, trainers or all of them lack, in buckets of any
// size.
#include "pserver/channels/all_reduce_channel.h"

#include <cstdint>
#include <memory>
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
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int kLanes = 8;
constexpr int64_t kSteps = 3;

// Servers that let every step take effect.
class Servers : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t, bool) override { return absl::OkStatus(); }
  absl::Status PullRows(absl::Span<const TableRows>) override { return absl::OkStatus(); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor>) override {
    return absl::InternalError(absl::StrCat("a gradient of ", block.name));
  }
  absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows>) override { return absl::OkStatus(); }
  absl::Status FinishSends(int64_t, v1::Verdict) override { return absl::OkStatus(); }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::OkStatus(); }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    outcome->samples = 32;
    return absl::OkStatus();
  }
};

// The dense parameters, in the order of the program, and their elements.
struct Dense {
  const char* name;
  int64_t count;
};
const std::vector<Dense> kDense = {{"out.b", 1}, {"out.w", 16}, {"deep.b", 16}, {"deep.w", 192}};

// Whether a lane has the gradient of parameter p. In step 0 all have all; later some lanes lack some; in step 1 no lane
// has the third parameter; in step 2 the first four lanes, so whole trainers, lack the second.
bool Has(int64_t step, int lane, size_t p) {
  if (step == 0) return true;
  if ((step == 1 && p == 2) || (step == 2 && p == 1 && lane < 4)) return false;
  return Philox(1, static_cast<uint64_t>(step), static_cast<uint64_t>(lane) * 4 + p).v[0] % 3 != 0;
}

Tensor Gradient(int64_t step, int lane, size_t p, bool zero) {
  Tensor tensor(v1::FLOAT32, {kDense[p].count});
  for (int64_t i = 0; i < tensor.size(); ++i) {
    const uint32_t draw =
        Philox(static_cast<uint64_t>(step) * 4 + p, static_cast<uint64_t>(lane), static_cast<uint64_t>(i)).v[0];
    tensor.data<float>()[i] = zero ? 0.0F : static_cast<float>(draw) / 0x1p32F - 0.5F;
  }
  return tensor;
}

struct Run {
  int trainers = 1;
  // Bucket of each parameter.
  std::vector<int64_t> buckets = {0, 1, 2, 3};
  // A fault: zeros for what is absent.
  bool zeros = false;
};

absl::Status RunSteps(const Run& run, int trainer, ReplicaChannel::Options options) {
  Servers servers;
  options.trainer_id = trainer;
  options.servers = &servers;
  const auto made = MakeReplicaChannel(options);
  if (!made.ok()) return made.status();
  ParamChannel& channel = **made;
  const LaneRange own = LanesOfTrainer(kLanes, run.trainers, trainer);
  for (int64_t step = 0; step < kSteps; ++step) {
    if (absl::Status status = channel.BeginStep(step, /*read_only=*/false); !status.ok()) return status;
    std::vector<std::vector<Tensor>> gradients(kDense.size());
    // Each trainer has them in another order.
    for (size_t i = 0; i < kDense.size(); ++i) {
      const size_t p = (i * (trainer % 2 == 0 ? 1 : 3) + static_cast<size_t>(trainer)) % kDense.size();
      std::vector<StepChannel::LaneTensor> lanes;
      gradients[p].resize(static_cast<size_t>(own.count));
      for (int l = 0; l < own.count; ++l) {
        const bool has = Has(step, own.begin + l, p);
        if (!has && !run.zeros) continue;
        Tensor& gradient = gradients[p][static_cast<size_t>(l)];
        gradient = Gradient(step, own.begin + l, p, /*zero=*/!has);
        lanes.push_back({.lane = own.begin + l, .value = &gradient});
      }
      // As the operator does it: nothing is sent if no lane has any.
      if (lanes.empty()) continue;
      const BlockRef block{.name = kDense[p].name, .server = -1, .count = kDense[p].count};
      if (absl::Status status = channel.SendDense(block, lanes); !status.ok()) return status;
    }
    if (absl::Status status = channel.FinishSends(4 * own.count, v1::APPLY); !status.ok()) return status;
    if (absl::Status status = channel.FinishReceives(nullptr); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// Returns the digests of the dense parameters of trainer 0; all trainers have the same.
std::string DigestsAfter(const Run& run) {
  ReplicaJob job = SlotReplica();
  job.lanes = kLanes;
  job.trainers = run.trainers;
  for (size_t p = 0; p < kDense.size(); ++p) {
    EXPECT_EQ(job.parameters[p].name, kDense[p].name);
    job.parameters[p].bucket = run.buckets[p];
  }
  const ReplicaPrograms programs = job.Programs();
  LocalMeshes meshes(run.trainers, /*shuffle=*/9);
  std::vector<std::string> digests(static_cast<size_t>(run.trainers));
  std::vector<std::thread> threads;
  for (int t = 0; t < run.trainers; ++t) {
    threads.emplace_back([&, t] {
      ThreadPool pool("test", 0);
      Collective collective(meshes.mesh(t), {.message_bytes = 128});
      const auto replica =
          MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool, .collective = &collective});
      ASSERT_TRUE(replica.ok()) << replica.status();
      const absl::Status status = RunSteps(run, t, {.main = &programs.main, .replica = replica->get()});
      EXPECT_TRUE(status.ok()) << status;
      if (!status.ok()) collective.Abort(status);
      const auto reply = (*replica)->Digest();
      if (reply.ok()) digests[static_cast<size_t>(t)] = reply->ShortDebugString();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& each : digests) EXPECT_EQ(each, digests[0]);
  return digests[0];
}

TEST(AllReduceChannelTest, AbsentGradientsAreSkippedInBucketsOfAnySize) {
  const std::string expected = DigestsAfter({});
  EXPECT_THAT(expected, HasSubstr("deep.w"));
  for (const int trainers : {1, 2, 3, 5, 8}) {
    for (const std::vector<int64_t>& buckets : std::vector<std::vector<int64_t>>{
             {0, 1, 2, 3}, {0, 0, 0, 0}, {0, 0, 1, 1}, {0, 1, 1, 1}, {0, 0, 0, 5}, {2, 4, 4, 9}}) {
      EXPECT_EQ(DigestsAfter({.trainers = trainers, .buckets = buckets}), expected)
          << trainers << " trainers, bucket of the second: " << buckets[1] << ", of the third: " << buckets[2];
    }
  }
}

TEST(AllReduceChannelTest, ZerosInThePlaceOfAbsentGradientsAreSeen) {
  // Adam's moments decay by a gradient of zeros, and not without one.
  const std::string expected = DigestsAfter({});
  EXPECT_NE(DigestsAfter({.trainers = 2, .buckets = {0, 0, 0, 0}, .zeros = true}), expected);
}

}  // namespace
}  // namespace weir
