// Functors of dot_interaction.
#ifndef WEIR_OPS_DEVICE_DOT_INTERACTION_FUNCTORS_H_
#define WEIR_OPS_DEVICE_DOT_INTERACTION_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/device/quotient.h"
#include "ops/dot_interaction_math.h"

namespace weir {
namespace device {

// The pair at place p of an example's row: `first` is the largest i with PairCount(i) <= p.
WEIR_HOST_DEVICE inline int64_t FirstOfPair(int64_t p, bool self) {
  int64_t i = static_cast<int64_t>(SquareRoot(2.0f * static_cast<float>(p)));
  while (PairCount(i, self) > p) --i;
  while (PairCount(i + 1, self) <= p) ++i;
  return i;
}

// Out [rows, pairs] from the products of all vectors of an example with all, [rows, vectors, vectors].
struct PairsAt {
  const float* products;
  int64_t vectors, pairs;
  bool self;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, pairs), p = i - row * pairs;
    const int64_t first = FirstOfPair(p, self);
    out[i] = products[(row * vectors + first) * vectors + (p - PairCount(first, self))];
  }
};
// The other way: the symmetric matrix of each example by which its vectors are multiplied for their gradients.
struct PairGradientsAt {
  const float* dout;
  int64_t vectors, pairs;
  bool self;
  float* matrices;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, vectors * vectors), at = i - row * vectors * vectors;
    const int64_t a = Quotient(at, vectors), b = at - a * vectors;
    const int64_t first = a > b ? a : b, second = a > b ? b : a;
    if (a == b && !self) {
      matrices[i] = 0;
      return;
    }
    const float d = dout[row * pairs + PairCount(first, self) + second];
    matrices[i] = a == b ? 2 * d : d;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_DOT_INTERACTION_FUNCTORS_H_
