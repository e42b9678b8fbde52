// Places of pairs in the output of dot_interaction, for CPU and CUDA: (1,0), (2,0), (2,1), ..., or with `self`
// (0,0), (1,0), (1,1), ...
#ifndef WEIR_OPS_DOT_INTERACTION_MATH_H_
#define WEIR_OPS_DOT_INTERACTION_MATH_H_

#include <cstdint>

#include "ops/inline.h"

namespace weir {

// Returns the number of pairs of n vectors, which is also the index of the pair (n, 0).
WEIR_MATH int64_t PairCount(int64_t n, bool self) { return self ? n * (n + 1) / 2 : n * (n - 1) / 2; }

// Pairs (i, j) have j in [0, PairEnd(i)).
WEIR_MATH int64_t PairEnd(int64_t i, bool self) { return self ? i + 1 : i; }

}  // namespace weir

#endif  // WEIR_OPS_DOT_INTERACTION_MATH_H_
