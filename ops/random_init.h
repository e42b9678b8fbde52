// What uniform_random, gaussian_random and xavier share: a piece of a variable from its initializer.
#ifndef WEIR_OPS_RANDOM_INIT_H_
#define WEIR_OPS_RANDOM_INIT_H_

#include <functional>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "proto/program.pb.h"

namespace weir {

// Attribute shape; the output's dims are it.
absl::Status InferFromShapeAttr(InferContext& ctx, DType dtype);

// Makes `out` a tensor of that shape. ResourceExhausted names the variable and its bytes when this machine has not that
// much memory: shapes come from jobs, and a typing error must not end a process without a word.
absl::Status MakeRoom(const std::string& variable, DType dtype, absl::Span<const int64_t> shape, Tensor* out);

// An op with `attrs` and shape, variable, seed, element_begin.
OpDef MakeRandomInitOp(std::string type, std::string summary, std::vector<AttrDef> attrs);

// A kernel that fills Out with elements [element_begin, ...) of `variable` (framework/runtime/initial_value.h).
absl::StatusOr<std::unique_ptr<OpKernel>> MakeRandomInitKernel(const AttrReader& attrs, v1::Initializer initializer);

}  // namespace weir

#endif  // WEIR_OPS_RANDOM_INIT_H_
