#include "framework/graph/shared_buffers.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/reported_loss.h"
#include "framework/graph/var_index.h"

namespace weir {
namespace {

struct Declaration {
  std::vector<std::string> vars;
  std::vector<int64_t> buffers;
};

absl::StatusOr<Declaration> Declared(const v1::OpDesc& op) {
  Declaration declared;
  const auto& vars = StringsOf(op, "vars");
  const auto& buffers = IntsOf(op, "buffers");
  declared.vars.assign(vars.begin(), vars.end());
  declared.buffers.assign(buffers.begin(), buffers.end());
  if (declared.vars.size() != declared.buffers.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(declared.vars.size(), " vars need as many buffers, got ", declared.buffers.size()));
  }
  return declared;
}

// Follows the block op by op and knows which variable each buffer holds.
class Walk {
 public:
  explicit Walk(const SharedBuffers& buffer_of) : buffer_of_(buffer_of) {}

  absl::Status Pass(const v1::OpDesc& op, const OpDef& def) {
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& var : slot.vars()) {
        RETURN_IF_ERROR(Read(var, def.scope == OpScope::kGate));
        const auto whole = view_of_.find(var);
        if (whole != view_of_.end()) RETURN_IF_ERROR(Read(whole->second, def.scope == OpScope::kGate));
      }
    }
    NoteViews(op);
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& var : slot.vars()) RETURN_IF_ERROR(Write(op, def, slot.name(), var));
    }
    return absl::OkStatus();
  }

 private:
  // A view shares the memory of the whole variable, so no later op may overwrite that buffer.
  void NoteViews(const v1::OpDesc& op) {
    if (op.type() != "split_byref" || op.inputs_size() != 1 || op.inputs(0).vars_size() != 1) return;
    const std::string& whole = op.inputs(0).vars(0);
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& view : slot.vars()) view_of_[view] = whole;
    }
    const auto buffer = buffer_of_.find(whole);
    if (buffer != buffer_of_.end()) held_.insert(buffer->second);
  }

  absl::Status Read(const std::string& var, bool by_gate) {
    const auto buffer = buffer_of_.find(var);
    if (buffer == buffer_of_.end()) return absl::OkStatus();
    const std::string& owner = owner_[buffer->second];
    if (owner.empty()) return absl::InvalidArgumentError(absl::StrCat("reads '", var, "', which nothing has written"));
    if (owner != var) {
      return absl::InvalidArgumentError(
          absl::StrCat("reads '", var, "', but '", owner, "' has taken its buffer ", buffer->second));
    }
    if (by_gate) held_.insert(buffer->second);
    return absl::OkStatus();
  }

  absl::Status Write(const v1::OpDesc& op, const OpDef& def, const std::string& slot, const std::string& var) {
    const auto buffer = buffer_of_.find(var);
    if (buffer == buffer_of_.end()) return absl::OkStatus();
    if (def.scope != OpScope::kLane) {
      return absl::InvalidArgumentError(
          absl::StrCat("writes '", var, "' for the whole step; only variables of a lane share"));
    }
    std::string& owner = owner_[buffer->second];
    if (held_.contains(buffer->second) && owner != var) {
      return absl::InvalidArgumentError(
          absl::StrCat("writes '", var, "' into buffer ", buffer->second, ", from which '", owner, "' is being sent"));
    }
    for (const v1::OpSlot& input : op.inputs()) {
      for (const std::string& read : input.vars()) {
        const auto other = buffer_of_.find(read);
        if (read == var || other == buffer_of_.end() || other->second != buffer->second) continue;
        if (InPlace(def, input, slot, read)) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("reads '", read, "' and writes '", var, "' in one buffer, ", buffer->second));
      }
    }
    owner = var;
    return absl::OkStatus();
  }

  // In-place rules apply to the first variable of each slot.
  static bool InPlace(const OpDef& def, const v1::OpSlot& input, const std::string& output, const std::string& read) {
    for (const InPlaceRule& rule : def.in_place) {
      if (rule.input != input.name() || rule.output != output) continue;
      return input.vars(0) == read && std::count(input.vars().begin(), input.vars().end(), read) == 1;
    }
    return false;
  }

  const SharedBuffers& buffer_of_;
  std::map<int64_t, std::string> owner_;
  std::set<int64_t> held_;
  std::map<std::string, std::string> view_of_;
};

absl::Status CheckVariable(const v1::ProgramDesc& program, const v1::VarDesc& var) {
  if (var.persistable() || var.kind() != v1::DENSE) {
    return absl::InvalidArgumentError(absl::StrCat("'", var.name(), "' is ",
                                                   var.persistable() ? "persistable" : DescribeVar(var),
                                                   "; dense variables of one step share"));
  }
  for (const v1::LossDesc& loss : program.losses()) {
    if (var.name() != loss.var() && var.name() != ReportedLoss(program, loss) && var.name() != loss.prediction() &&
        var.name() != loss.label() && var.name() != loss.sample_weight()) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("'", var.name(), "' belongs to a loss and is read after the step"));
  }
  if (std::find(program.kept().begin(), program.kept().end(), var.name()) != program.kept().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", var.name(), "' is kept for evaluations and is read after the step"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<SharedBuffers> ReadSharedBuffers(const v1::ProgramDesc& program, int block) {
  const v1::BlockDesc& desc = program.blocks(block);
  const v1::OpDesc* op = nullptr;
  for (const v1::OpDesc& each : desc.ops()) {
    if (each.type() != kShareBuffersOp) continue;
    if (op != nullptr) return absl::InvalidArgumentError("share_buffers stands twice in one block");
    op = &each;
  }
  SharedBuffers buffer_of;
  if (op == nullptr) return buffer_of;
  ASSIGN_OR_RETURN(const Declaration declared, Declared(*op));
  const VarIndex vars(desc);
  for (size_t i = 0; i < declared.vars.size(); ++i) {
    const v1::VarDesc* const var = vars.Find(declared.vars[i]);
    if (var == nullptr) continue;
    RETURN_IF_ERROR(CheckVariable(program, *var));
    if (!buffer_of.emplace(declared.vars[i], declared.buffers[i]).second) {
      return absl::InvalidArgumentError(absl::StrCat("share_buffers names '", declared.vars[i], "' twice"));
    }
  }
  Walk walk(buffer_of);
  for (int i = 0; i < desc.ops_size(); ++i) {
    ASSIGN_OR_RETURN(const OpDef* def, OpRegistry::Global().Get(desc.ops(i).type()));
    const absl::Status status = walk.Pass(desc.ops(i), *def);
    if (!status.ok())
      return absl::InvalidArgumentError(absl::StrCat(OpPlace(block, i, desc.ops(i)), ": ", status.message()));
  }
  return buffer_of;
}

bool CanGiveViews(const OpDef& def) {
  return def.scope == OpScope::kLane && def.in_place.size() == 1 &&
         std::any_of(def.attrs.begin(), def.attrs.end(), [](const AttrDef& attr) { return attr.name == kByReference; });
}

}  // namespace weir
