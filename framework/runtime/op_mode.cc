#include "framework/runtime/op_mode.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace weir {

OpMode OpModeOf(const v1::OpDesc& op, const OpDef& def, const std::function<bool(std::string_view)>& is_shared) {
  if (def.scope == OpScope::kStep) return OpMode::kStep;
  if (def.scope == OpScope::kGate) return OpMode::kGate;
  const auto any_shared = [&](const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots) {
    for (const v1::OpSlot& slot : slots) {
      for (const std::string& var : slot.vars()) {
        if (is_shared(var)) return true;
      }
    }
    return false;
  };
  switch (op.role()) {
    case v1::OPTIMIZE:
    case v1::INIT:
    case v1::LR_SCHEDULE:
      return OpMode::kStep;
    case v1::DIST:
      // Joining the blocks of a parameter is once per step; cutting a lane's gradient is not.
      return any_shared(op.inputs()) || any_shared(op.outputs()) ? OpMode::kStep : OpMode::kLane;
    default:
      return any_shared(op.outputs()) ? OpMode::kLanesInOrder : OpMode::kLane;
  }
}

absl::Status AnnotateOp(const absl::Status& status, int index, const v1::OpDesc& op) {
  std::string out;
  for (const v1::OpSlot& slot : op.outputs()) {
    if (!out.empty() || slot.vars().empty()) continue;
    out = absl::StrCat(" making ", slot.vars(0));
  }
  return absl::Status(status.code(),
                      absl::StrCat("op ", index, " (", op.type(), ")", out, ": ", std::string(status.message())));
}

}  // namespace weir
