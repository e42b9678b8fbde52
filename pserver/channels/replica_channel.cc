#include "pserver/channels/replica_channel.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "glog/logging.h"
#include "pserver/replica/node_rows.h"
#include "pserver/replica/replica_reads.h"

namespace weir {

ReplicaChannel::ReplicaChannel(const Options& options)
    : replica_(*options.replica),
      servers_(*options.servers),
      lanes_(options.main->plan().lanes() == 0 ? options.main->plan().trainers() : options.main->plan().lanes()),
      own_nodes_(AlignedNodes(
          LanesOfTrainer(options.main->plan().lanes(), options.main->plan().trainers(), options.trainer_id))) {}

absl::Status ReplicaChannel::ReadParts(const v1::ProgramDesc& main, const char* type) {
  const OpDef* const def = OpRegistry::Global().Find(type);
  CHECK(def != nullptr) << type;
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.type() != type) continue;
    const AttrReader attrs(op, *def);
    const std::string& name = attrs.String("block");
    const int index = replica_.FindBlock(name);
    if (index < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("program ", main.name(), ": ", type, " of '", name, "', which the plan does not have"));
    }
    if (!part_of_.emplace(name, parts_.size()).second) {
      return absl::InvalidArgumentError(absl::StrCat("program ", main.name(), ": two ", type, " ops of '", name, "'"));
    }
    const DenseReplica::Block& block = replica_.block(index);
    parts_.push_back({.name = name,
                      .parameter = block.placed.parameter(),
                      .owner = block.owner,
                      .target = block.target,
                      .count = block.placed.element_count(),
                      .width = static_cast<int>(attrs.Int("width")),
                      .measured = attrs.Bool("measured")});
  }
  return absl::OkStatus();
}

absl::Status ReplicaChannel::BeginStep(int64_t step, bool read_only) {
  step_ = step;
  read_only_ = read_only;
  sent_ = false;
  wanted_.clear();
  if (!read_only) Clear();
  return servers_.BeginStep(step, read_only);
}

absl::Status ReplicaChannel::PullRows(absl::Span<const TableRows> tables) {
  return PullRowsOfReplica(tables, &replica_, &servers_);
}

absl::StatusOr<size_t> ReplicaChannel::FindPart(const BlockRef& block) const {
  if (read_only_) {
    return absl::FailedPreconditionError(absl::StrCat("gradient of ", block.name, ": a read-only step sends nothing"));
  }
  const auto found = part_of_.find(block.name);
  if (found != part_of_.end()) return found->second;
  return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, ", which the trainers do not hold"));
}

absl::Status ReplicaChannel::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  ASSIGN_OR_RETURN(const size_t part, FindPart(block));
  for (const LaneTensor& lane : lanes) {
    if (lane.value == nullptr || !lane.value->initialized() || lane.value->size() == parts_[part].count) continue;
    return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                   " elements, the parameter has ", parts_[part].count));
  }
  return GiveDense(part, lanes);
}

absl::Status ReplicaChannel::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (!read_only_ && !part_of_.contains(block.name)) return servers_.SendRows(block, width, lanes);
  ASSIGN_OR_RETURN(const size_t part, FindPart(block));
  absl::StatusOr<std::string> rows = PackNodeRows(own_nodes_, width, lanes);
  if (!rows.ok()) {
    return absl::Status(rows.status().code(), absl::StrCat("gradient of ", block.name, ": ", rows.status().message()));
  }
  GiveRows(part, *std::move(rows));
  return absl::OkStatus();
}

absl::Status ReplicaChannel::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
  const absl::Status status = Finish(samples, verdict);
  sent_ = status.ok();
  return status;
}

absl::Status ReplicaChannel::Receive(const BlockRef& block, Tensor* out) {
  const int index = replica_.FindBlock(block.name);
  if (index < 0) return servers_.Receive(block, out);
  RETURN_IF_ERROR(CheckReceives(replica_, index, *out));
  wanted_.emplace_back(index, out);
  return absl::OkStatus();
}

absl::Status ReplicaChannel::FinishReceives(StepOutcome* outcome) {
  StepOutcome result;
  RETURN_IF_ERROR(servers_.FinishReceives(&result));
  if (sent_) {
    const absl::Status ended = End(result, !result.skipped && !result.ended && result.samples > 0);
    // The others may wait for this trainer's part of the update.
    if (!ended.ok()) replica_.collective().Abort(ended);
    RETURN_IF_ERROR(ended);
  }
  sent_ = false;
  for (const auto& [block, out] : wanted_) replica_.CopyBlock(block, out->data<float>());
  wanted_.clear();
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace weir
