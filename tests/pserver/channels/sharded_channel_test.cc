// Channels of trainers that share the updates out, without trainers: the bits of trainers that all update everything,
// the bytes that they send, and what they do not exchange.

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
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
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/make_replica.h"
#include "tests/pserver/replica/replica_job.h"

namespace weir {
namespace {

constexpr int64_t kSteps = 4;
// A step that the servers skip, and one in which half of the lanes have no examples.
constexpr int64_t kSkipped = 1, kHalf = 2;

// Servers that skip one step and let the others take effect.
class Servers : public ParamChannel {
 public:
  absl::Status BeginStep(int64_t step, bool) override {
    step_ = step;
    return absl::OkStatus();
  }
  absl::Status PullRows(absl::Span<const TableRows>) override { return absl::InternalError("rows of a table"); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor>) override {
    return absl::InternalError(absl::StrCat("a gradient of ", block.name));
  }
  absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows>) override {
    return absl::InternalError("gradient rows of a table");
  }
  absl::Status FinishSends(int64_t, v1::Verdict) override { return absl::OkStatus(); }
  absl::Status Receive(const BlockRef&, Tensor*) override { return absl::InternalError("a block of a server"); }
  absl::Status FinishReceives(StepOutcome* outcome) override {
    outcome->samples = 64;
    outcome->skipped = step_ == kSkipped;
    return absl::OkStatus();
  }

 private:
  int64_t step_ = 0;
};

// `key`: StableHash of the parameter.
float Value(int64_t step, int lane, uint64_t key, int64_t element) {
  const auto draw =
      Philox(key, static_cast<uint64_t>(step) * 64 + static_cast<uint64_t>(lane), static_cast<uint64_t>(element)).v[0];
  return static_cast<float>(draw) / 0x1p32F - 0.5F;
}

bool Has(int64_t step, int lane, const std::string& parameter) {
  return step != kHalf || (lane % 4 < 2 && parameter != "deep.1.w");
}

// What one trainer is left with.
struct End {
  absl::Status status;
  std::map<std::string, std::pair<uint64_t, uint64_t>> digests;  // values and state, of what it updates
  std::map<std::string, std::vector<float>> received;            // by parameter
  int64_t sent_in_skipped = 0, sent_in_reading = 0;              // bytes, between its steps
};

struct Run {
  ReplicaJob job = CutReplicas()[0];
  int trainers = 1;
  int lanes = 8;
  bool sharded = true;
  // Of each parameter. Empty: those of the job.
  std::vector<int64_t> buckets = {};
  // Rows are left out: a step is dense only.
  bool rows = true;
};

class Trainer {
 public:
  Trainer(const Run& run, int id, const ReplicaPrograms& programs, LocalMeshes* meshes)
      : run_(run),
        id_(id),
        main_(programs.main),
        meshes_(*meshes),
        pool_("test", 1),
        collective_(meshes->mesh(id), {.message_bytes = 4096}) {
    for (const v1::PlacedBlock& block : main_.plan().blocks()) placed_[block.name()] = &block;
    auto replica =
        MakeReplica({.main = &programs.main, .startup = &programs.startup, .pool = &pool_, .collective = &collective_});
    EXPECT_TRUE(replica.ok()) << replica.status();
    if (replica.ok()) replica_ = *std::move(replica);
  }

  End RunSteps() {
    End end;
    end.status = Steps(&end);
    if (!end.status.ok()) collective_.Abort(end.status);
    const auto reply = replica_->Digest();
    if (reply.ok()) {
      for (const v1::VariableDigest& v : reply->variables()) end.digests[v.name()] = {v.values(), v.state()};
    }
    return end;
  }

 private:
  absl::Status Steps(End* end) {
    auto made =
        MakeReplicaChannel({.main = &main_, .trainer_id = id_, .replica = replica_.get(), .servers = &servers_});
    if (!made.ok()) return made.status();
    ParamChannel& channel = **made;
    if (absl::Status status = replica_->Gather(); !status.ok()) return status;
    if (absl::Status status = replica_->CheckEqual("before the first step"); !status.ok()) return status;
    for (int64_t step = 0; step < kSteps; ++step) {
      if (absl::Status status = Step(step, &channel, end); !status.ok()) return status;
    }
    if (absl::Status status = replica_->CheckEqual("at the end"); !status.ok()) return status;
    // A trainer may read as often as it likes, whatever the others do.
    const int64_t before = meshes_.sent(id_);
    for (int i = 0; i < id_ + 1; ++i) {
      if (absl::Status status = Read(&channel, end); !status.ok()) return status;
    }
    end->sent_in_reading = meshes_.sent(id_) - before;
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, ParamChannel* channel, End* end) {
    if (absl::Status status = channel->BeginStep(step, /*read_only=*/false); !status.ok()) return status;
    const LaneRange own = LanesOfTrainer(run_.lanes, run_.trainers, id_);
    std::vector<std::vector<Tensor>> tensors;
    std::vector<std::vector<SelectedRows>> rows;
    for (const v1::OpDesc& op : main_.blocks(0).ops()) {
      if (op.type() != "all_reduce") continue;
      const v1::PlacedBlock& block = *placed_.at(FindAttr(op, "block")->s());
      const absl::Status sent = block.sparse_gradient() ? SendRows(step, own, block, channel, &rows.emplace_back())
                                                        : SendDense(step, own, block, channel, &tensors.emplace_back());
      if (!sent.ok()) return sent;
    }
    if (absl::Status status = channel->FinishSends(8 * own.count, v1::APPLY); !status.ok()) return status;
    const int64_t before = meshes_.sent(id_);
    const absl::Status status = channel->FinishReceives(nullptr);
    if (step == kSkipped) end->sent_in_skipped = meshes_.sent(id_) - before;
    return status;
  }

  absl::Status SendDense(int64_t step, LaneRange own, const v1::PlacedBlock& block, ParamChannel* channel,
                         std::vector<Tensor>* gradients) {
    gradients->resize(static_cast<size_t>(own.count));
    const uint64_t key = StableHash(block.parameter());
    std::vector<StepChannel::LaneTensor> lanes;
    for (int l = 0; l < own.count; ++l) {
      if (!Has(step, own.begin + l, block.parameter())) continue;
      Tensor& gradient = (*gradients)[static_cast<size_t>(l)];
      gradient.Resize(v1::FLOAT32, {block.element_count()});
      for (int64_t i = 0; i < gradient.size(); ++i) {
        gradient.data<float>()[i] = Value(step, own.begin + l, key, block.element_begin() + i);
      }
      lanes.push_back({.lane = own.begin + l, .value = &gradient});
    }
    if (lanes.empty()) return absl::OkStatus();
    return channel->SendDense({.name = block.name(), .server = -1, .count = block.element_count()}, lanes);
  }

  // Rows 13 l, 13 l + 7, ... of the parameter, as far as the block has them.
  absl::Status SendRows(int64_t step, LaneRange own, const v1::PlacedBlock& block, ParamChannel* channel,
                        std::vector<SelectedRows>* gradients) {
    if (!run_.rows) return absl::OkStatus();
    const int64_t width = block.dims(1), first = block.element_begin() / width;
    gradients->resize(static_cast<size_t>(own.count));
    const uint64_t key = StableHash(block.parameter());
    std::vector<StepChannel::LaneRows> lanes;
    for (int l = 0; l < own.count; ++l) {
      const int lane = own.begin + l;
      if (!Has(step, lane, block.parameter())) continue;
      SelectedRows& rows = (*gradients)[static_cast<size_t>(l)];
      std::vector<float> values;
      for (int64_t id = 13 * lane + step; id < 700; id += 7 + lane) {
        if (id < first || id >= first + block.dims(0)) continue;
        rows.ids.push_back(id - first);
        for (int64_t j = 0; j < width; ++j) values.push_back(Value(step, lane, key, id * width + j));
      }
      rows.values = Tensor::Of<float>({static_cast<int64_t>(rows.ids.size()), width}, values);
      rows.height = block.dims(0);
      rows.merged = rows.present = true;
      lanes.push_back({.lane = lane, .value = &rows});
    }
    if (lanes.empty()) return absl::OkStatus();
    return channel->SendRows({.name = block.name(), .server = -1, .count = block.element_count()},
                             static_cast<int>(width), lanes);
  }

  // Receives everything in a read-only step, and rows of "held" one by one.
  absl::Status Read(ParamChannel* channel, End* end) {
    if (absl::Status status = channel->BeginStep(kSteps, /*read_only=*/true); !status.ok()) return status;
    std::map<std::string, Tensor> blocks;
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      Tensor& out = blocks[block.name()];
      out.Resize(v1::FLOAT32, {block.element_count()});
      const absl::Status asked =
          channel->Receive({.name = block.name(), .server = -1, .count = block.element_count()}, &out);
      if (!asked.ok()) return asked;
    }
    std::vector<int64_t> ids;
    for (int64_t id = 699; id >= 0; --id) ids.push_back(id);
    std::vector<float> rows(ids.size() * 4);
    const RowSource::TableRows wanted{.table = "held", .width = 4, .ids = &ids, .rows = rows.data()};
    if (absl::Status status = channel->PullRows(absl::MakeConstSpan(&wanted, 1)); !status.ok()) return status;
    if (absl::Status status = channel->FinishReceives(nullptr); !status.ok()) return status;
    end->received.clear();
    for (const v1::PlacedBlock& block : main_.plan().blocks()) {
      std::vector<float>& whole = end->received[block.parameter()];
      const absl::Span<const float> values = blocks[block.name()].span<float>();
      whole.insert(whole.end(), values.begin(), values.end());
    }
    const std::vector<float>& held = end->received["held"];
    for (size_t i = 0; i < ids.size(); ++i) {
      const size_t at = static_cast<size_t>(ids[i]) * 4;
      EXPECT_TRUE(std::equal(rows.begin() + static_cast<long>(i * 4), rows.begin() + static_cast<long>(i * 4 + 4),
                             held.begin() + static_cast<long>(at)))
          << ids[i];
    }
    return absl::OkStatus();
  }

  const Run& run_;
  const int id_;
  const v1::ProgramDesc& main_;
  LocalMeshes& meshes_;
  ThreadPool pool_;
  Collective collective_;
  Servers servers_;
  std::map<std::string, const v1::PlacedBlock*> placed_;
  std::unique_ptr<DenseReplica> replica_;
};

struct Result {
  std::map<std::string, std::pair<uint64_t, uint64_t>> digests;  // of all trainers together
  std::map<std::string, std::vector<float>> received;            // equal on all
  std::vector<End> ends;
  std::vector<int64_t> sent;  // bytes, by trainer
  v1::Plan plan;
};

Result RunAll(const Run& run) {
  Result result;
  ReplicaJob job = run.job;
  job.trainers = run.trainers;
  job.lanes = run.lanes;
  job.sharded = run.sharded;
  for (size_t p = 0; p < run.buckets.size(); ++p) job.parameters[p].bucket = run.buckets[p];
  const ReplicaPrograms programs = job.Programs();
  result.plan = programs.main.plan();
  LocalMeshes meshes(run.trainers, /*shuffle=*/9);
  result.ends.resize(static_cast<size_t>(run.trainers));
  {
    std::vector<std::unique_ptr<Trainer>> trainers;
    for (int t = 0; t < run.trainers; ++t) trainers.push_back(std::make_unique<Trainer>(run, t, programs, &meshes));
    std::vector<std::thread> threads;
    for (size_t t = 0; t < trainers.size(); ++t) {
      threads.emplace_back([&, t] { result.ends[t] = trainers[t]->RunSteps(); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  for (size_t t = 0; t < result.ends.size(); ++t) {
    const End& end = result.ends[t];
    EXPECT_TRUE(end.status.ok()) << "trainer " << t << ": " << end.status;
    if (t == 0) result.received = end.received;
    EXPECT_EQ(end.received, result.received) << "trainer " << t;
    result.sent.push_back(meshes.sent(static_cast<int>(t)));
    if (!run.sharded && t > 0) continue;
    for (const auto& [name, digest] : end.digests) {
      result.digests[name].first += digest.first;
      result.digests[name].second += digest.second;
    }
  }
  return result;
}

TEST(ShardedChannelTest, TheBitsAreThoseOfTrainersThatUpdateEverything) {
  for (const ReplicaJob& job : CutReplicas()) {
    const int optimizer = static_cast<int>(job.optimizer);
    const Result expected = RunAll({.job = job, .sharded = false});
    EXPECT_EQ(expected.received.size(), 7u) << optimizer;
    for (const int trainers : {1, 2, 3, 5, 8}) {
      const Result result = RunAll({.job = job, .trainers = trainers});
      EXPECT_EQ(result.digests, expected.digests) << optimizer << ", " << trainers << " trainers";
      EXPECT_EQ(result.received, expected.received) << optimizer << ", " << trainers << " trainers";
    }
  }
}

TEST(ShardedChannelTest, SameBitsWithOtherBucketsAndLanes) {
  const Result expected = RunAll({.sharded = false});
  for (const std::vector<int64_t>& buckets :
       std::vector<std::vector<int64_t>>{{0, 0, 1, 2, 3, 4, 4}, {0, 1, 2, 3, 4, 5, 5}, {0, 0, 0, 0, 0, 0, 0}}) {
    EXPECT_EQ(RunAll({.trainers = 3, .buckets = buckets}).digests, expected.digests) << buckets.back();
  }
  const Result more_lanes = RunAll({.lanes = 32, .sharded = false});
  EXPECT_NE(more_lanes.digests, expected.digests);
  for (const int trainers : {2, 3, 7}) {
    EXPECT_EQ(RunAll({.trainers = trainers, .lanes = 32}).digests, more_lanes.digests) << trainers;
  }
}

TEST(ShardedChannelTest, NothingIsExchangedForASkippedStepOrForReading) {
  for (const int trainers : {2, 3}) {
    for (const End& end : RunAll({.trainers = trainers}).ends) {
      EXPECT_EQ(end.sent_in_skipped, 0);
      EXPECT_EQ(end.sent_in_reading, 0);
    }
  }
}

// Elements of blocks: of all trainers, or of one.
struct Elements {
  double all = 0, seldom = 0, rows = 0;  // with a dense gradient; of these the ones that step kHalf lacks; by rows
};
Elements ElementsOf(const v1::Plan& plan, int trainer) {
  Elements sum;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (trainer >= 0 && block.trainer() != trainer) continue;
    const auto count = static_cast<double>(block.element_count());
    (block.sparse_gradient() ? sum.rows : sum.all) += count;
    if (block.parameter() == "deep.1.w") sum.seldom += count;
  }
  return sum;
}

// For a share of S of V: k (V - S) for gradients, (p - 1) S for values.
TEST(ShardedChannelTest, ATrainerSendsNoMoreThanTheFormula) {
  const ReplicaJob job = WideReplica();
  for (const int lanes : {8, 64}) {
    for (int trainers = 2; trainers <= 8; ++trainers) {
      const Result result = RunAll({.job = job, .trainers = trainers, .lanes = lanes, .rows = false});
      const Elements whole = ElementsOf(result.plan, -1);
      for (int t = 0; t < trainers; ++t) {
        const auto k = static_cast<double>(AlignedNodes(LanesOfTrainer(lanes, trainers, t)).size());
        const Elements own = ElementsOf(result.plan, t);
        const double others = whole.all - own.all, less = whole.seldom - own.seldom;
        // Gradients of four steps, values of the three that take effect and of the beginning.
        const double expected = sizeof(float) * (k * (4 * others - less) + (trainers - 1) * (4 * own.all + own.rows));
        // A header of 1 KiB to each of the others: of 5 exchanges a step, 2 of new values in three, 4 before and
        // behind.
        const double headers = 1024.0 * (4 * 5 + 3 * 2 + 4) * (trainers - 1);
        EXPECT_LE(static_cast<double>(result.sent[static_cast<size_t>(t)]), 1.02 * (expected + headers))
            << lanes << " lanes, trainer " << t << " of " << trainers;
        // (k + 1) (p - 1) / p V, as far as the rows of these matrices allow even shares.
        EXPECT_LE(own.all * trainers, 1.2 * whole.all) << trainers;
      }
    }
  }
}

}  // namespace
}  // namespace weir
