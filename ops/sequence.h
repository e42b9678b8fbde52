// Sequences of a batch: elements [B, T, W], of which example b has the first Length[b], a whole number in [0, T]; what
// stands behind them is not read.
#ifndef WEIR_OPS_SEQUENCE_H_
#define WEIR_OPS_SEQUENCE_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/tensor.h"

namespace weir {

// For shape rules. The input `slot` is [B, T, W] with T and W known, the input Length [B, 1].
absl::Status ExpectSequence(const InferContext& ctx, std::string_view slot);

// For kernels, of X and Length. InvalidArgument: the tensors are no sequences, or the length of an example (named) is
// none.
absl::Status CheckSequence(std::string_view slot, const Tensor& x, const Tensor& length);
// The same of Length alone, X having these three dims.
absl::Status CheckLengths(std::string_view slot, absl::Span<const int64_t> x, const Tensor& length);

inline int64_t LengthOf(const Tensor& length, int64_t example) {
  return static_cast<int64_t>(length.data<float>()[example]);
}

}  // namespace weir

#endif  // WEIR_OPS_SEQUENCE_H_
