// Order of additions of a sum on a device: 32 partial sums, where term k is added to sum k mod 32 in ascending order;
// the partial sums are added in a binary tree, 16 and 16 first. A warp computes one partial sum per thread.
#ifndef WEIR_OPS_DEVICE_REDUCE_ORDER_H_
#define WEIR_OPS_DEVICE_REDUCE_ORDER_H_

#include <cstdint>

namespace weir {
namespace device {

inline constexpr int kWarp = 32;

template <typename F>
typename F::Sum SumInOrder(const F& f, int64_t output) {
  typename F::Sum part[kWarp] = {};
  const int64_t terms = f.Terms(output);
  for (int64_t k = 0; k < terms; ++k) part[k % kWarp] += f.Term(output, k);
  for (int width = kWarp / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  }
  return part[0];
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_REDUCE_ORDER_H_
