// Adaptive sums of gradients (Maleki et al., "Scaling Distributed Training with Adaptive Summation"):
//
//     adasum(a, b) = (1 - a.b / (2 a.a)) a + (1 - a.b / (2 b.b)) b
//
// Gradients at right angles are added, equal ones averaged. Several are combined pairwise, in the lane tree; one that
// is absent is left out. a.a is 0 for a gradient of zeros, which takes nothing from the other one.
//
// The products are over all values. They are added in double: in a block of kAdasumBlock values those at places that
// are equal modulo 8, then these sums, then the blocks, each in order. Each result is rounded to the type of the
// values. So the bits of a result depend on the leaves alone, not on who adds which blocks. Products of float64 must
// stay below 1e308.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_ADASUM_H_
#define WEIR_FRAMEWORK_COLLECTIVE_ADASUM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "framework/collective/reduction.h"
#include "framework/tensor/dtype.h"

namespace weir {

// 16 KiB of float32: the products of a block are 24 bytes, so ranks that share the blocks of a gradient exchange little
// beside the gradient.
inline constexpr int64_t kAdasumBlock = 4096;

struct AdasumProducts {
  double aa = 0, bb = 0, ab = 0;

  AdasumProducts& operator+=(const AdasumProducts& other) {
    aa += other.aa;
    bb += other.bb;
    ab += other.ab;
    return *this;
  }
};

// Returns the products of one block; count <= kAdasumBlock. Types that have an adasum (CanReduce).
AdasumProducts ProductsOfBlock(DType dtype, const void* a, const void* b, int64_t count);

// Sets out to the adasum of `count` values of a and b, whose products over all values are `whole`. out may be a or b.
void AdasumValues(DType dtype, const AdasumProducts& whole, const void* a, const void* b, int64_t count, void* out);

// Sets out to the adasum of the addends, `count` values each. Addends are disjoint nodes of the tree, ascending; at
// least one; their `present` is not looked at. `out` may be the values of the first one, but must not overlap them
// otherwise.
void Adasum(DType dtype, absl::Span<const LaneAddend> addends, int lanes, int64_t count, void* out);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_ADASUM_H_
