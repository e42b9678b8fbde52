// Sums adjacent elements in one order at every vector width: 16 partial sums (element i is added to sum i mod 16),
// added in a binary tree. Inline, for use inside WEIR_VECTORIZED functions.
#ifndef WEIR_OPS_FIXED_SUM_H_
#define WEIR_OPS_FIXED_SUM_H_

#include <cstdint>

namespace weir {

constexpr int kPartialSums = 16;

inline float AddPartialSums(float* part) {
  for (int width = kPartialSums / 2; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) part[i] += part[i + width];
  }
  return part[0];
}

// Returns the sum of term(i), i in [0, n).
template <typename Term>
inline __attribute__((always_inline)) float FixedSum(int64_t n, Term term) {
  float part[kPartialSums] = {};
  int64_t i = 0;
  for (; i + kPartialSums <= n; i += kPartialSums) {
    for (int j = 0; j < kPartialSums; ++j) part[j] += term(i + j);
  }
  for (int j = 0; i + j < n; ++j) part[j] += term(i + j);
  return AddPartialSums(part);
}

}  // namespace weir

#endif  // WEIR_OPS_FIXED_SUM_H_
