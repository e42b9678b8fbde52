// Maps the elements of X to those of a smaller tensor Y, for loops over X. Adjacent dimensions with equal behaviour are
// merged, which leaves a few outer loops and one inner run in which Y either advances with X or stays at one element.
#ifndef WEIR_OPS_BROADCAST_H_
#define WEIR_OPS_BROADCAST_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"

namespace weir {

class Broadcast {
 public:
  // `y` must have the rank of `x`, with each dim equal to X's or 1. Sizes may be 0.
  Broadcast(absl::Span<const int64_t> x, absl::Span<const int64_t> y);

  // Length of the inner run, and true if Y advances in it (else one element of Y is used for the whole run).
  int64_t inner() const { return inner_; }
  bool inner_moves() const { return inner_moves_; }

  // Calls run(x_offset, y_offset) for each run, in the order of X's elements.
  template <typename Run>
  void ForEach(Run run) const {
    if (inner_ == 0) return;
    Shape at(outer_.size(), 0);
    int64_t x = 0, y = 0;
    for (int64_t i = 0; i < runs_; ++i) {
      run(x, y);
      x += inner_;
      for (int d = static_cast<int>(outer_.size()) - 1; d >= 0; --d) {
        y += stride_[d];
        if (++at[d] < outer_[d]) break;
        y -= stride_[d] * outer_[d];
        at[d] = 0;
      }
    }
  }

 private:
  Shape outer_;
  Shape stride_;  // of Y, in elements; 0 where it stands still
  int64_t runs_ = 1;
  int64_t inner_ = 1;
  bool inner_moves_ = true;
};

// Returns the dims of Y extended to the rank of X: Y's dims from `axis` of X on (-1: at the end), and 1 elsewhere.
// InvalidArgument if they do not fit; -1 (the batch) fits only -1 or 1.
absl::StatusOr<Shape> AlignDims(absl::Span<const int64_t> x, absl::Span<const int64_t> y, int64_t axis);

}  // namespace weir

#endif  // WEIR_OPS_BROADCAST_H_
