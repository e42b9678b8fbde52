// Sum of the parts of one dense block's gradient. The order of the additions decides the bits of every value trained.
#ifndef WEIR_PSERVER_PARAMS_DENSE_SUM_H_
#define WEIR_PSERVER_PARAMS_DENSE_SUM_H_

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "pserver/params/gradient.h"

namespace weir {

// Thread-safe.
class DenseSum {
 public:
  virtual ~DenseSum() = default;
  // Sets out, the elements of a block, to the sum of `parts` of its gradient, of which there is at least one. `lanes`:
  // number of leaves of the lane tree. InvalidArgument: the parts of a node do not tile the block.
  virtual absl::Status Sum(absl::Span<const Gradient* const> parts, int lanes, absl::Span<float> out) const = 0;
};

// Adds in the order of the lane tree, which is a function of the job alone (pserver/protocol/merge_gradients.h).
class LaneTreeSum : public DenseSum {
 public:
  absl::Status Sum(absl::Span<const Gradient* const> parts, int lanes, absl::Span<float> out) const override;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_DENSE_SUM_H_
