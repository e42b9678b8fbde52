// Tests that all numbers are finite, in one pass at memory speed.
#ifndef WEIR_OPS_FINITE_H_
#define WEIR_OPS_FINITE_H_

#include <cstdint>

namespace weir {

bool AllFinite(const float* x, int64_t n);
// Also computes out = factor * x in that pass.
bool AllFiniteScaled(const float* x, int64_t n, float factor, float* out);

}  // namespace weir

#endif  // WEIR_OPS_FINITE_H_
