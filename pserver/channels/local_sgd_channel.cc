#include "pserver/channels/local_sgd_channel.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
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
#include "pserver/params/gradient.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/replica/node_rows.h"

namespace weir {

namespace {

const ProfileName kAverage("average of all trainers");

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

class LocalSgdChannel : public ReplicaChannel {
 public:
  explicit LocalSgdChannel(const Options& options) : ReplicaChannel(options), average_every_(options.equal_every) {
    average_every_.push_back(ModeOf(*options.main).all_reduce().local_steps());
  }
  absl::Status Init(const v1::ProgramDesc& main) {
    RETURN_IF_ERROR(ReadParts(main, "local_gradient"));
    own_.resize(parts().size());
    return CheckState(main);
  }

  // A step begins nothing before its last part has been sent; what fails then fails here.
  void EndExchanges(const absl::Status& /*error*/) override {}
  NormParty* norm_party() override { return nullptr; }

 protected:
  void Clear() override {
    for (Own& own : own_) {
      own.present = false;
      own.rows.clear();
    }
  }
  absl::Status GiveDense(size_t part, absl::Span<const LaneTensor> lanes) override;
  void GiveRows(size_t part, std::string rows) override { own_[part].rows = std::move(rows); }
  absl::Status Finish(int64_t samples, v1::Verdict verdict) override {
    samples_ = samples;
    return servers().FinishSends(samples, verdict);
  }
  absl::Status End(const StepOutcome& outcome, bool effective) override {
    if (effective) RETURN_IF_ERROR(Update(outcome.samples));
    return MayAverage(outcome);
  }

 private:
  // Gradient of a part in the step, written by the thread that has it.
  struct Own {
    bool present = false;    // dense: some lane has it
    std::vector<float> sum;  // over the lanes of this trainer
    std::string rows;
  };

  // Updates the replica with the gradients of the step, which takes effect.
  absl::Status Update(int64_t all_samples);
  // Averages the replicas if it is time.
  absl::Status MayAverage(const StepOutcome& outcome);

  std::vector<int64_t> average_every_;  // constant after construction
  std::vector<Own> own_;                // by part

  // Used by the thread that runs the program.
  int64_t samples_ = 0;  // of this trainer, in this step
  // Samples of the steps that have taken effect since the last average.
  int64_t own_samples_ = 0, all_samples_ = 0;
};

absl::Status LocalSgdChannel::GiveDense(size_t part, absl::Span<const LaneTensor> lanes) {
  Own& own = own_[part];
  std::vector<DenseRun> runs;
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
    runs.push_back({{lane.lane, 1}, 0, lane.value->span<float>()});
  }
  own.present = !runs.empty();
  if (runs.empty()) return absl::OkStatus();
  // The program may change its gradients before the update.
  own.sum.resize(static_cast<size_t>(parts()[part].count));
  return SumDense(std::move(runs), this->lanes(), absl::MakeSpan(own.sum));
}

absl::Status LocalSgdChannel::Update(int64_t all_samples) {
  all_samples_ += all_samples;
  own_samples_ += samples_;
  if (samples_ == 0) return replica().Update(step(), {});
  TrainerGradients all{.trainer = 0, .samples = samples_};
  for (size_t p = 0; p < parts().size(); ++p) {
    const GradientPart& part = parts()[p];
    if (part.width > 0) {
      const absl::Status read =
          ReadNodeRows(own_[p].rows, own_nodes(), part.target, part.width, part.count / part.width, &all.gradients);
      if (!read.ok()) return absl::Status(read.code(), absl::StrCat("'", part.name, "': ", read.message()));
    } else if (own_[p].present) {
      Gradient& gradient = all.gradients.emplace_back();
      gradient.target = part.target;
      gradient.node = {0, lanes()};
      gradient.count = part.count;
      gradient.values = own_[p].sum.data();
    }
  }
  return replica().Update(step(), absl::MakeConstSpan(&all, 1));
}

absl::Status LocalSgdChannel::MayAverage(const StepOutcome& outcome) {
  const int64_t done = step() + 1;
  const bool due = outcome.stop || outcome.ended ||
                   std::any_of(average_every_.begin(), average_every_.end(),
                               [done](int64_t every) { return every > 0 && done % every == 0; });
  // Without samples anywhere the replicas are equal.
  if (!due || all_samples_ == 0) return absl::OkStatus();
  const ProfileSpan span(step(), ProfileKind::kBorder, kAverage);
  RETURN_IF_ERROR(replica().Average(own_samples_, all_samples_));
  own_samples_ = all_samples_ = 0;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<ReplicaChannel>> MakeLocalSgdChannel(const ReplicaChannel::Options& options) {
  auto channel = std::make_unique<LocalSgdChannel>(options);
  RETURN_IF_ERROR(channel->Init(*options.main));
  return channel;
}

}  // namespace weir
