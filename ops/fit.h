// Checks that the inputs of an operator fit each other: in its shape rule by their descriptions, and again in its
// kernel by the tensors. Users edit programs with gradient ops, so no op may assume inputs made by autodiff.
//
// In descriptions -1 is a number known only when the op runs; it equals only -1.
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

// Returns OK if the inputs of these slots are dense float32 and have the dims of the first, which must be there. Skips
// later slots without a variable.
absl::Status ExpectAlike(const InferContext& ctx, const std::vector<std::string>& slots);

// Returns OK if the input is dense float32 of these dims. "relu_grad: Out@GRAD must be [-1, 4], got [-1, 5] (variable
// h@GRAD)"
absl::Status ExpectDims(const InferContext& ctx, std::string_view slot, absl::Span<const int64_t> want);

// Returns a shape rule that applies ExpectAlike and gives the output the description of the first input.
ShapeRule AlikeRule(std::vector<std::string> inputs, std::string output);

// Checks a kernel's input; errors name the slot. InvalidArgument if the tensor has no value, another type or other
// dims.
absl::Status CheckTensor(std::string_view slot, const Tensor& tensor, absl::Span<const int64_t> want,
                         DType dtype = v1::FLOAT32);
// Checks type and number of dims, but not the dims.
absl::Status CheckRank(std::string_view slot, const Tensor& tensor, int rank, DType dtype = v1::FLOAT32);

}  // namespace weir

#endif  // WEIR_OPS_FIT_H_
