// Shared code of uniform_random, gaussian_random and xavier, which compute a piece of a variable from its initializer.
#ifndef WEIR_OPS_RANDOM_INIT_H_
#define WEIR_OPS_RANDOM_INIT_H_

#include <functional>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "proto/program.pb.h"

namespace weir {

// Shape rule: the output's dims are the attribute `shape`.
absl::Status InferFromShapeAttr(InferContext& ctx, DType dtype);

// Allocates `out` with that shape. ResourceExhausted names the variable and its bytes if this machine does not have
// that much memory: shapes come from jobs, and a typing error must not end a process without a message.
absl::Status MakeRoom(const std::string& variable, DType dtype, absl::Span<const int64_t> shape, Tensor* out);

// Defines an op with `attrs` and the attributes shape, variable, seed, element_begin.
OpDef MakeRandomInitOp(std::string type, std::string summary, std::vector<AttrDef> attrs);

// Returns a kernel that fills Out with elements [element_begin, ...) of `variable` (framework/runtime/initial_value.h).
absl::StatusOr<std::unique_ptr<OpKernel>> MakeRandomInitKernel(const AttrReader& attrs, v1::Initializer initializer);

}  // namespace weir

#endif  // WEIR_OPS_RANDOM_INIT_H_
