// Computes one row of softmax; also used by its cross entropy.
#ifndef WEIR_OPS_SOFTMAX_H_
#define WEIR_OPS_SOFTMAX_H_

#include <cstdint>

namespace weir {

// Computes y [n] = exp(x - m) / sum of these, where m is the largest of x [n], n >= 1; y may be x. Returns m; *log_sum
// is the logarithm of the sum, so that -log y[i] = *log_sum - (x[i] - m) without loss of precision.
float SoftmaxRow(int64_t n, const float* x, float* y, float* log_sum);

}  // namespace weir

#endif  // WEIR_OPS_SOFTMAX_H_
