// Determines how an executor runs an op, and the text of its errors, for executors of the CPU and of a device.
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
  // A lane op with an output that all lanes share (a running count): runs once per lane, in order of lanes; each lane
  // waits for the one before.
  kLanesInOrder,
};

// Returns the mode: the scope of the op's definition, except for ops on variables of the whole step. `is_shared`
// returns true for a variable that all lanes share, as determined by the ops before this one.
OpMode OpModeOf(const v1::OpDesc& op, const OpDef& def, const std::function<bool(std::string_view)>& is_shared);

// Prefixes an error: "op 12 (fc) making deep.0: ...".
absl::Status AnnotateOp(const absl::Status& status, int index, const v1::OpDesc& op);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_OP_MODE_H_
