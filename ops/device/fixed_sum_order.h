// Computes the sums of ops/fixed_sum.h in one thread of a device: 16 partial sums, added in a binary tree.
#ifndef WEIR_OPS_DEVICE_FIXED_SUM_ORDER_H_
#define WEIR_OPS_DEVICE_FIXED_SUM_ORDER_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {
namespace device {

// Sum of term(i), i in [0, n). Partial sums are named by constants, so that they are registers.
template <typename Term>
WEIR_HOST_DEVICE inline float SumOf16Parts(int64_t n, const Term& term) {
  float part[16] = {};
  for (int64_t i = 0; i < n; i += 16) {
#ifdef __CUDA_ARCH__
#pragma unroll
#endif
    for (int j = 0; j < 16; ++j) {
      if (i + j < n) part[j] += term(i + j);
    }
  }
  for (int width = 8; width > 0; width /= 2) {
    for (int j = 0; j < width; ++j) part[j] += part[j + width];
  }
  return part[0];
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_FIXED_SUM_ORDER_H_
