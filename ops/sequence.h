// Checks sequences of a batch: elements [B, T, W], of which example b has the first Length[b], an integer in [0, T];
// the elements after them are not read.
#ifndef WEIR_OPS_SEQUENCE_H_
#define WEIR_OPS_SEQUENCE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/tensor.h"

namespace weir {

// Shape rule: the input `slot` is [B, T, W] with T and W known, the input Length is [B, 1].
absl::Status ExpectSequence(const InferContext& ctx, std::string_view slot);

// Checks X and Length in a kernel. InvalidArgument if the tensors are not sequences, or if the length of an example
// (named) is invalid.
absl::Status CheckSequence(std::string_view slot, const Tensor& x, const Tensor& length);
// Checks only Length, for an X of these three dims.
absl::Status CheckLengths(std::string_view slot, absl::Span<const int64_t> x, const Tensor& length);

inline int64_t LengthOf(const Tensor& length, int64_t example) {
  return static_cast<int64_t>(length.data<float>()[example]);
}

}  // namespace weir

#endif  // WEIR_OPS_SEQUENCE_H_
