// Pairs i < j of F vectors, in the order (0,1), (0,2), ..., (1,2), ... Host and device.
#ifndef WEIR_OPS_PAIRS_OF_VECTORS_H_
#define WEIR_OPS_PAIRS_OF_VECTORS_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {

WEIR_HOST_DEVICE inline int64_t PairsOf(int64_t vectors) { return vectors * (vectors - 1) / 2; }
// Place of the pair (i, i + 1).
WEIR_HOST_DEVICE inline int64_t FirstPairOf(int64_t i, int64_t vectors) { return i * vectors - i * (i + 1) / 2; }
WEIR_HOST_DEVICE inline int64_t PlaceOfPair(int64_t i, int64_t j, int64_t vectors) {
  return FirstPairOf(i, vectors) + j - i - 1;
}

}  // namespace weir

#endif  // WEIR_OPS_PAIRS_OF_VECTORS_H_
