#include "framework/runtime/cpu_op.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/status_macros.h"
#include "framework/runtime/op_mode.h"

namespace weir {

absl::StatusOr<CpuOp> CpuOp::Create(const PreparedBlock& block, const BlockOp& op, BlockVariables* vars,
                                    const StepContext* step, const int64_t* batch) {
  CpuOp made(op);
  ASSIGN_OR_RETURN(std::vector<KernelContext> contexts, vars->ContextsOf(op, step, batch));
  for (KernelContext& context : contexts) made.whole_.runs.push_back({.context = std::move(context)});
  for (const v1::OpSlot& slot : op.desc->outputs()) {
    made.whole_.writes.insert(made.whole_.writes.end(), slot.vars().begin(), slot.vars().end());
  }
  if (op.mode == OpMode::kGate) made.lanes_to_come_ = std::make_unique<std::atomic<int>>(0);
  const KernelFactory* factory = KernelRegistry::Global().Find(op.desc->type());
  if (factory == nullptr) return absl::NotFoundError("no kernel for CPU");
  ASSIGN_OR_RETURN(made.kernel_, (*factory)(block.InitOf(op)));
  return made;
}

void CpuOp::CutApart(const PreparedBlock& block) {
  const int slot = op_.mode != OpMode::kLane || op_.def->apart.empty() ? -1 : op_.def->OutputIndex(op_.def->apart);
  if (slot < 0) return;
  std::set<std::string_view> used;
  for (const v1::OpSlot& inputs : op_.desc->inputs()) {
    for (const std::string& name : inputs.vars()) used.insert(block.Storage(name));
  }
  OpPart rest, apart;
  for (const v1::OpSlot& outputs : op_.desc->outputs()) {
    OpPart& part = outputs.name() == op_.def->apart ? apart : rest;
    for (const std::string& name : outputs.vars()) {
      if (!used.insert(block.Storage(name)).second) return;
      part.writes.push_back(name);
    }
  }
  if (rest.writes.empty() || apart.writes.empty()) return;
  rest.runs = apart.runs = whole_.runs;
  for (KernelRun& run : rest.runs) run.context.outputs[0][static_cast<size_t>(slot)].vars.clear();
  for (KernelRun& run : apart.runs) {
    std::vector<KernelContext::Slot>& outputs = run.context.outputs[0];
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i != static_cast<size_t>(slot)) outputs[i].vars.clear();
    }
  }
  rest_ = std::move(rest);
  apart_ = std::move(apart);
}

void CpuOp::WatchMemory(const PreparedBlock& block, BlockVariables* vars, MemoryUse* memory) {
  for (OpPart* const part : parts()) {
    for (size_t r = 0; r < part->runs.size(); ++r) {
      std::vector<MemoryUse::Held*>& writes = part->runs[r].writes;
      const int first = op_.per_lane() ? static_cast<int>(r) : 0;
      const int end = op_.per_lane() ? first + 1 : vars->lanes();
      for (int lane = first; lane < end; ++lane) {
        for (const std::string_view name : part->writes) {
          MemoryUse::Held* const held = memory->AddWritten(vars->Find(lane, name), block.OwnerOf(name));
          if (std::find(writes.begin(), writes.end(), held) == writes.end()) writes.push_back(held);
        }
        for (const v1::OpSlot& slot : op_.desc->inputs()) {
          for (const std::string& name : slot.vars()) memory->AddRead(vars->Find(lane, name), block.OwnerOf(name));
        }
      }
    }
  }
}

void CpuOp::MakeNames() {
  if (type_.id() != 0) return;
  type_ = ProfileName(op_.desc->type());
  // Ops of one type are told apart by what they make, or by what they send.
  for (OpPart* const part : parts()) {
    if (!part->writes.empty()) part->made = ProfileName(part->writes[0]);
  }
  for (const v1::OpSlot& slot : op_.desc->inputs()) {
    if (whole_.made.id() == 0 && !slot.vars().empty()) whole_.made = ProfileName(slot.vars(0));
  }
}

void CpuOp::SetFirstLane(int first_lane) {
  for (OpPart* const part : parts()) {
    for (size_t run = 0; run < part->runs.size(); ++run)
      part->runs[run].context.lane = first_lane + static_cast<int>(run);
  }
}

absl::Status CpuOp::RunKernel(const OpPart& part, KernelContext& context, int64_t profiled_step) {
  if (profiled_step < 0) return kernel_->Run(context);
  const bool moves = op_.desc->role() == v1::RPC || op_.desc->role() == v1::DIST;
  // Gates run on any free thread, which may have another profiled step.
  const ProfiledStep step(profiled_step);
  ProfileSpan span(profiled_step, moves ? ProfileKind::kExchange : ProfileKind::kOperator, type_);
  if (ProfileEvent* const event = span.event()) {
    event->detail = part.made;
    if (op_.per_lane()) event->lane = context.lane;
  }
  return kernel_->Run(context);
}

absl::Status CpuOp::Run(OpPart& part, int run, int64_t profiled_step) {
  KernelRun& of = part.runs[static_cast<size_t>(run)];
  absl::Status status = RunKernel(part, of.context, profiled_step);
  MemoryUse::Measure(of.writes, of.context);
  return status.ok() ? status : AnnotateOp(status, op_.index, *op_.desc);
}

void CpuOp::MeasureOutputs() const {
  for (const KernelRun& run : whole_.runs) MemoryUse::Measure(run.writes, run.context);
}

}  // namespace weir
