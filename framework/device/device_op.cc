#include "framework/device/device_op.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_places.h"
#include "framework/graph/shared_buffers.h"

namespace weir {
namespace {

void Append(const std::vector<DeviceVariable*>& vars, std::vector<DeviceVariable*>* to) {
  to->insert(to->end(), vars.begin(), vars.end());
}

bool Contains(const std::vector<DeviceVariable*>& vars, const DeviceVariable* var) {
  return std::find(vars.begin(), vars.end(), var) != vars.end();
}

absl::Status PlaceOnHost(const PreparedBlock& block, BlockVariables* host_vars, DeviceOp* op) {
  const KernelFactory* factory = KernelRegistry::Global().Find(op->desc->type());
  if (factory == nullptr) return absl::NotFoundError("no kernel for CPU");
  ASSIGN_OR_RETURN(op->host, (*factory)(block.InitOf(*op)));
  for (const DeviceKernelContext::Slot& slot : op->context.inputs) Append(slot.vars, &op->reads_on_host);
  ASSIGN_OR_RETURN(op->host_contexts, host_vars->ContextsOf(*op, op->context.step, op->context.lane_batch));
  return absl::OkStatus();
}

absl::Status PlaceOnDevice(const PreparedBlock& block, DeviceOp* op) {
  const DeviceKernelRegistry::Entry& entry = *DeviceKernelRegistry::Global().Find(op->desc->type());
  if (op->mode == OpMode::kLanesInOrder) {
    return absl::InvalidArgumentError(absl::StrCat(
        "it writes a value that all lanes share, lane after lane, which a device does not do; train.cpu_ops: \"",
        op->desc->type(), "\" runs it on the CPU"));
  }
  ASSIGN_OR_RETURN(op->device, entry.factory(block.InitOf(*op)));
  const auto on_host = [&entry](const SlotDef& slot) {
    return std::find(entry.host_slots.begin(), entry.host_slots.end(), slot.name) != entry.host_slots.end();
  };
  for (size_t s = 0; s < op->context.inputs.size(); ++s) {
    Append(op->context.inputs[s].vars, on_host(op->def->inputs[s]) ? &op->reads_on_host : &op->reads);
  }
  for (size_t s = 0; s < op->context.outputs.size(); ++s) {
    if (on_host(op->def->outputs[s])) Append(op->context.outputs[s].vars, &op->writes_on_host);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeviceOp> MakeDeviceOp(const PreparedBlock& block, const BlockOp& op,
                                      const std::vector<std::string>& cpu_ops, const DeviceKernelContext& like,
                                      DeviceVariables* vars, BlockVariables* host_vars) {
  DeviceOp made = {op};
  made.context = like;
  const auto locate = [vars](const std::string& name) { return vars->Locate(name); };
  ASSIGN_OR_RETURN(made.context.inputs,
                   FillSlots<DeviceKernelContext::Slot>(op.def->inputs, op.desc->inputs(), locate));
  ASSIGN_OR_RETURN(made.context.outputs,
                   FillSlots<DeviceKernelContext::Slot>(op.def->outputs, op.desc->outputs(), locate));
  for (const DeviceKernelContext::Slot& slot : made.context.outputs) Append(slot.vars, &made.writes);
  if (RunsOnHost(op.desc->type(), cpu_ops)) {
    RETURN_IF_ERROR(PlaceOnHost(block, host_vars, &made));
  } else {
    RETURN_IF_ERROR(PlaceOnDevice(block, &made));
  }
  return made;
}

void MarkOneWriter(const std::vector<DeviceOp>& ops) {
  std::map<DeviceVariable*, int> writers;
  for (const DeviceOp& op : ops) {
    for (DeviceVariable* var : op.writes) ++writers[var];
  }
  for (const DeviceOp& op : ops) {
    for (DeviceVariable* var : op.writes) {
      var->one_writer = op.on_host() && !var->lasts && !Contains(op.reads_on_host, var) && writers[var] == 1;
    }
  }
}

void AllowSharing(std::vector<DeviceOp>* ops) {
  std::set<const DeviceVariable*> in_place;
  for (const DeviceOp& op : *ops) {
    for (const DeviceVariable* var : op.writes) {
      if (Contains(op.reads, var)) in_place.insert(var);
    }
  }
  const auto alone = [&](const DeviceVariable* var) { return in_place.contains(var); };
  for (DeviceOp& op : *ops) {
    op.context.may_share = CanGiveViews(*op.def) && !op.on_host() &&
                           std::none_of(op.reads.begin(), op.reads.end(), alone) &&
                           std::none_of(op.writes.begin(), op.writes.end(), alone);
  }
}

std::vector<DeviceVariable*> FedVariables(const std::vector<DeviceOp>& ops) {
  std::vector<DeviceVariable*> fed;
  std::set<const DeviceVariable*> known;
  for (const DeviceOp& op : ops) {
    for (const std::vector<DeviceVariable*>* reads : {&op.reads, &op.reads_on_host}) {
      for (DeviceVariable* var : *reads) {
        if (known.insert(var).second && !var->lasts) fed.push_back(var);
      }
    }
    known.insert(op.writes.begin(), op.writes.end());
  }
  return fed;
}

}  // namespace weir
