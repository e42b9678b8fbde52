#include "pserver/channels/local_sgd_channel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/training_mode.h"
#include "framework/graph/var_index.h"
#include "framework/profile/profiler.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "pserver/params/gradient.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/node_rows.h"
#include "pserver/replica/replica_reads.h"

namespace weir {

namespace {

const ProfileName kAverage("average of all trainers");

// Gradient of one parameter.
struct Part {
  // Constant.
  std::string name;
  int block = 0;      // of the replica
  int64_t count = 0;  // elements
  int width = 0;      // > 0: rows

  // Fields of the step, written by the thread that has the gradient.
  bool present = false;    // dense: some lane has it
  std::vector<float> sum;  // over the lanes of this trainer
  std::string rows;        // by node (pserver/replica/node_rows.h)
};

// Checks that an average of the optimizer state in the update blocks means something.
absl::Status CheckState(const v1::ProgramDesc& main) {
  const VarIndex vars(main.blocks(0));
  const v1::TrainingMode mode = ModeOf(main);
  for (const int32_t index : mode.all_reduce().blocks()) {
    for (const v1::OpDesc& op : main.blocks(index).ops()) {
      const OpDef* const def = OpRegistry::Global().Find(op.type());
      if (def == nullptr || !def->is_optimizer) continue;
      for (const StateDef& state : def->state) {
        const v1::VarDesc* const var = vars.Find(OnlyVar(op.inputs(), state.slot));
        if (var == nullptr || var->dtype() == v1::FLOAT32) continue;
        return absl::InvalidArgumentError(absl::StrCat("program ", main.name(), ": state '", var->name(), "' of ",
                                                       op.type(), " is ", v1::DType_Name(var->dtype()),
                                                       ", and local_sgd averages FLOAT32 alone"));
      }
    }
  }
  return absl::OkStatus();
}

class LocalSgdChannel : public AllReduceChannel {
 public:
  explicit LocalSgdChannel(const AllReduceOptions& options)
      : replica_(*options.replica),
        servers_(*options.servers),
        lanes_(options.main->plan().lanes() == 0 ? options.main->plan().trainers() : options.main->plan().lanes()),
        nodes_(AlignedNodes(
            LanesOfTrainer(options.main->plan().lanes(), options.main->plan().trainers(), options.trainer_id))),
        average_every_(options.equal_every) {
    average_every_.push_back(ModeOf(*options.main).all_reduce().local_steps());
  }
  absl::Status Init(const v1::ProgramDesc& main);

  // A step begins nothing before its last part has been sent; what fails then fails here.
  void EndExchanges(const absl::Status& /*error*/) override {}
  NormParty* norm_party() override { return nullptr; }
  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    return PullRowsOfReplica(tables, &replica_, &servers_);
  }
  void UseRowsAhead() override { servers_.UseRowsAhead(); }
  void SetStepSamples(int64_t samples) override { servers_.SetStepSamples(samples); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  // Returns the part of a parameter; FailedPrecondition in a step that sends nothing.
  absl::StatusOr<Part*> FindPart(const BlockRef& block);
  // Updates the replica with the gradients of the step, which takes effect.
  absl::Status Update(int64_t all_samples);
  // Averages the replicas if it is time.
  absl::Status MayAverage(const StepOutcome& outcome);

  DenseReplica& replica_;
  ParamChannel& servers_;
  const int lanes_;                                 // leaves of the lane tree
  const std::vector<LaneRange> nodes_;              // of this trainer
  std::vector<int64_t> average_every_;              // constant after construction
  std::map<std::string, Part, std::less<>> parts_;  // by parameter; keys are constant after Init

  // Used by the thread that runs the program.
  int64_t step_ = 0;
  bool read_only_ = false;
  bool sent_ = false;    // FinishSends has been called in this step
  int64_t samples_ = 0;  // of this trainer, in this step
  // Samples of the steps that have taken effect since the last average.
  int64_t own_samples_ = 0, all_samples_ = 0;
  std::vector<std::pair<int, Tensor*>> wanted_;
};

absl::Status LocalSgdChannel::Init(const v1::ProgramDesc& main) {
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != "local_gradient") continue;
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    CHECK(def != nullptr);
    const AttrReader attrs(op, *def);
    Part part{.name = attrs.String("block")};
    part.block = replica_.params().FindBlock(part.name);
    if (part.block < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": local_gradient of '", part.name, "', which the plan does not have"));
    }
    part.count = replica_.params().block(part.block).count;
    part.width = static_cast<int>(attrs.Int("width"));
    const std::string name = part.name;
    if (!parts_.emplace(name, std::move(part)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": two local_gradient ops of '", name, "'"));
    }
  }
  return CheckState(main);
}

absl::Status LocalSgdChannel::BeginStep(int64_t step, bool read_only) {
  step_ = step;
  read_only_ = read_only;
  sent_ = false;
  wanted_.clear();
  for (auto& [name, part] : parts_) {
    part.present = false;
    part.rows.clear();
  }
  return servers_.BeginStep(step, read_only);
}

absl::StatusOr<Part*> LocalSgdChannel::FindPart(const BlockRef& block) {
  if (read_only_) {
    return absl::FailedPreconditionError(absl::StrCat("gradient of ", block.name, ": a read-only step sends nothing"));
  }
  const auto found = parts_.find(block.name);
  if (found != parts_.end()) return &found->second;
  return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ", which the trainers do not hold"));
}

absl::Status LocalSgdChannel::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  ASSIGN_OR_RETURN(Part* const part, FindPart(block));
  std::vector<DenseRun> runs;
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
    if (lane.value->size() != part->count) {
      return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                     " elements, the parameter has ", part->count));
    }
    runs.push_back({{lane.lane, 1}, 0, lane.value->span<float>()});
  }
  part->present = !runs.empty();
  if (runs.empty()) return absl::OkStatus();
  // The program may change its gradients before the update.
  part->sum.resize(static_cast<size_t>(part->count));
  return SumDense(std::move(runs), lanes_, absl::MakeSpan(part->sum));
}

absl::Status LocalSgdChannel::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (!read_only_ && !parts_.contains(block.name)) return servers_.SendRows(block, width, lanes);
  ASSIGN_OR_RETURN(Part* const part, FindPart(block));
  absl::StatusOr<std::string> rows = PackNodeRows(nodes_, lanes_, width, lanes);
  if (!rows.ok()) {
    return absl::Status(rows.status().code(), absl::StrCat("gradient of ", block.name, ": ", rows.status().message()));
  }
  part->rows = *std::move(rows);
  return absl::OkStatus();
}

absl::Status LocalSgdChannel::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
  samples_ = samples;
  RETURN_IF_ERROR(servers_.FinishSends(samples, verdict));
  sent_ = true;
  return absl::OkStatus();
}

absl::Status LocalSgdChannel::Receive(const BlockRef& block, Tensor* out) {
  const int index = replica_.params().FindBlock(block.name);
  if (index < 0) return servers_.Receive(block, out);
  RETURN_IF_ERROR(CheckReceives(replica_, index, *out));
  wanted_.emplace_back(index, out);
  return absl::OkStatus();
}

absl::Status LocalSgdChannel::Update(int64_t all_samples) {
  all_samples_ += all_samples;
  own_samples_ += samples_;
  if (samples_ == 0) return replica_.Update(step_, {});
  TrainerGradients own{.trainer = 0, .samples = samples_};
  for (const auto& [name, part] : parts_) {
    if (part.width > 0) {
      const absl::Status read =
          ReadNodeRows(part.rows, nodes_, part.block, part.width, part.count / part.width, &own.gradients);
      if (!read.ok()) return absl::Status(read.code(), absl::StrCat("'", name, "': ", read.message()));
    } else if (part.present) {
      Gradient& gradient = own.gradients.emplace_back();
      gradient.target = part.block;
      gradient.node = {0, lanes_};
      gradient.count = part.count;
      gradient.values = part.sum.data();
    }
  }
  return replica_.Update(step_, absl::MakeConstSpan(&own, 1));
}

absl::Status LocalSgdChannel::MayAverage(const StepOutcome& outcome) {
  const int64_t done = step_ + 1;
  const bool due = outcome.stop || outcome.ended ||
                   std::any_of(average_every_.begin(), average_every_.end(),
                               [done](int64_t every) { return every > 0 && done % every == 0; });
  // Without samples anywhere the replicas are equal.
  if (!due || all_samples_ == 0) return absl::OkStatus();
  const ProfileSpan span(step_, ProfileKind::kBorder, kAverage);
  RETURN_IF_ERROR(replica_.Average(own_samples_, all_samples_));
  own_samples_ = all_samples_ = 0;
  return absl::OkStatus();
}

absl::Status LocalSgdChannel::FinishReceives(StepOutcome* outcome) {
  StepOutcome result;
  RETURN_IF_ERROR(servers_.FinishReceives(&result));
  if (sent_) {
    const bool effective = !result.skipped && !result.ended && result.samples > 0;
    absl::Status status = effective ? Update(result.samples) : absl::OkStatus();
    if (status.ok()) status = MayAverage(result);
    if (!status.ok()) {
      // The others may be waiting for this trainer's part of an average.
      replica_.collective().Abort(status);
      return status;
    }
  }
  sent_ = false;
  for (const auto& [block, out] : wanted_) {
    replica_.params().CopyBlock(block, 0, out->size(), out->data<float>(), /*reader=*/0);
  }
  wanted_.clear();
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AllReduceChannel>> MakeLocalSgdChannel(const AllReduceOptions& options) {
  CHECK(options.replica != nullptr && options.servers != nullptr);
  auto channel = std::make_unique<LocalSgdChannel>(options);
  RETURN_IF_ERROR(channel->Init(*options.main));
  return std::unique_ptr<AllReduceChannel>(std::move(channel));
}

}  // namespace weir
