// One row of softmax, shared with its cross entropy.
#ifndef WEIR_OPS_SOFTMAX_H_
#define WEIR_OPS_SOFTMAX_H_

#include <cstdint>

namespace weir {

// y [n] = exp(x - m) / sum of those, m being the largest of x [n], n >= 1; y may be x. Returns m; *log_sum is the
// logarithm of the sum, so that -log y[i] = *log_sum - (x[i] - m) without loss.
float SoftmaxRow(int64_t n, const float* x, float* y, float* log_sum);

}  // namespace weir

#endif  // WEIR_OPS_SOFTMAX_H_
