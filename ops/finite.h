// Whether all numbers are finite: one pass at memory speed.
#ifndef WEIR_OPS_FINITE_H_
#define WEIR_OPS_FINITE_H_

#include <cstdint>

namespace weir {

bool AllFinite(const float* x, int64_t n);

}  // namespace weir

#endif  // WEIR_OPS_FINITE_H_
