// Elementwise reductions of a collective operation, and the order in which they are applied.
//
// Values of 16 bits are added and multiplied as float32 and rounded once, at the end. MIN and MAX are NaN where any
// value is NaN, and -0 is less than +0, so that their result depends on no order.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_REDUCTION_H_
#define WEIR_FRAMEWORK_COLLECTIVE_REDUCTION_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/tensor/dtype.h"

namespace weir {

enum class Reduction {
  kSum,
  // The sum, divided by the number of samples that all ranks give. Floating-point types only.
  kAverage,
  kMin,
  kMax,
  kProduct,
  // Adasum: in each node of the tree, the sum of the halves, each less half of its projection on the other
  // (framework/collective/adasum.h). Floating-point types only.
  kAdasum,
};

// Returns "sum", "average", "min", "max", "product", "adasum".
std::string_view ReductionName(Reduction reduction);
// Returns true if the values can be reduced so. BOOL and UINT8 cannot be reduced.
bool CanReduce(Reduction reduction, DType dtype);

// Most segments of the values: their presence in an addend is one number.
inline constexpr size_t kMostSegments = 64;

// One addend: the values of the lanes of a node of the lane tree.
struct LaneAddend {
  LaneRange lanes;
  const void* values = nullptr;
  // Bit s: the node has segment s of the values (Collective::Values); the memory of others is not read.
  uint64_t present = ~uint64_t{0};
};

// Reduces `count` values of each addend to out, in the order of the tree of `lanes` leaves (TreeAdds). Addends are
// disjoint, aligned and ascending; at least one; their `present` is not looked at. `out` may be the values of one of
// them, but must not overlap them otherwise. Keeps its memory from call to call; not thread-safe.
class TreeReducer {
 public:
  // CanReduce(reduction, dtype) must be true; not for kAdasum, which is not elementwise.
  TreeReducer(Reduction reduction, DType dtype, int lanes) : reduction_(reduction), dtype_(dtype), lanes_(lanes) {}

  // samples: divisor of kAverage, at least 1. `lost`, [count]: for values of 16 bits, what rounding takes from each
  // result is added to it, unless that is not finite.
  void Reduce(absl::Span<const LaneAddend> addends, int64_t samples, int64_t count, void* out, float* lost = nullptr);

 private:
  template <typename Stored, typename Sum>
  void ReduceAs(absl::Span<const LaneAddend> addends, int64_t samples, int64_t count, void* out, float* lost);

  const Reduction reduction_;
  const DType dtype_;
  const int lanes_;
  std::vector<char> scratch_;
};

// Adds `count` values of b to those of a, elementwise, into out, which may be either. float32, float64, int32 or int64.
void AddValues(DType dtype, const void* a, const void* b, int64_t count, void* out);
// Divides `count` floating-point values of these types in place.
void DivideValues(DType dtype, int64_t divisor, int64_t count, void* values);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_REDUCTION_H_
