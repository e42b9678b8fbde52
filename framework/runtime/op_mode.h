// How an executor runs an op, and what its errors say: one rule for the CPU's and a device's.
#ifndef WEIR_FRAMEWORK_RUNTIME_OP_MODE_H_
#define WEIR_FRAMEWORK_RUNTIME_OP_MODE_H_

#include <functional>
#include <string_view>

#include "absl/status/status.h"
#include "framework/graph/op_registry.h"
#include "proto/program.pb.h"

namespace weir {

enum class OpMode {
  kLane,
  kGate,
  kStep,
  // A lane op with an output that all lanes share (a running count): once per lane, in order of lanes, lanes waiting.
  kLanesInOrder,
};

// The scope of the op's definition, but for ops that work on variables of the whole step. `is_shared`: one variable for
// all lanes, as far as the ops before this one say.
OpMode OpModeOf(const v1::OpDesc& op, const OpDef& def, const std::function<bool(std::string_view)>& is_shared);

// "op 12 (fc) making deep.0: ..."
absl::Status AnnotateOp(const absl::Status& status, int index, const v1::OpDesc& op);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_OP_MODE_H_
