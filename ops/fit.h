// Whether the inputs of an operator belong together: in its shape rule by their descriptions, and once more in its
// kernel by what is there. Gradient ops stand in files that people edit, so none may take for granted what autodiff
// would have made.
//
// In descriptions -1 is a number that is known only when the op runs; it equals -1 and nothing else.
#ifndef WEIR_OPS_FIT_H_
#define WEIR_OPS_FIT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/tensor.h"

namespace weir {

// The inputs given for these slots are dense float32 and have the dims of the first. Slots without a variable are
// passed over.
absl::Status ExpectAlike(const InferContext& ctx, const std::vector<std::string>& slots);

// The input is dense float32 of these dims. "relu_grad: Out@GRAD must be [-1, 4], got [-1, 5] (variable h@GRAD)"
absl::Status ExpectDims(const InferContext& ctx, std::string_view slot, absl::Span<const int64_t> want);

// ExpectAlike; the output is like the first of them.
ShapeRule AlikeRule(std::vector<std::string> inputs, std::string output);

// For kernels, by the slot's name. InvalidArgument when the tensor has no value, another type or other dims.
absl::Status CheckTensor(std::string_view slot, const Tensor& tensor, absl::Span<const int64_t> want,
                         DType dtype = v1::FLOAT32);
// The same for a number of dims.
absl::Status CheckRank(std::string_view slot, const Tensor& tensor, int rank, DType dtype = v1::FLOAT32);

}  // namespace weir

#endif  // WEIR_OPS_FIT_H_
