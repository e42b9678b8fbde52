// Functors of dot and weighted_sum, whose gradients are each other's forms, and of known_label. width: of a vector;
// count: vectors of an example.
#ifndef WEIR_OPS_DEVICE_DOT_FUNCTORS_H_
#define WEIR_OPS_DEVICE_DOT_FUNCTORS_H_

#include <cstdint>

#include "ops/device/fixed_sum_order.h"

namespace weir {
namespace device {

// Computes a product.
struct DotAt {
  int64_t width, count;
  const float* x;
  const float* y;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const float* const a = x + i / count * width;
    const float* const b = y + i * width;
    out[i] = SumOf16Parts(width, [=](int64_t w) { return a[w] * b[w]; });
  }
};
// Computes an element of dx.
struct DotXGradAt {
  int64_t width, count;
  const float* y;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / width, w = i - row * width;
    float sum = dout[row * count] * y[row * count * width + w];
    for (int64_t t = 1; t < count; ++t) sum += dout[row * count + t] * y[(row * count + t) * width + w];
    dx[i] = sum;
  }
};
// Computes an element of dy.
struct DotYGradAt {
  int64_t width, count;
  const float* x;
  const float* dout;
  float* dy;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t product = i / width;
    dy[i] = dout[product] * x[product / count * width + i - product * width];
  }
};

struct KnownLabelAt {
  const float* x;
  const float* weight;  // may be null
  float* out;
  float* mask;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const bool known = x[i] == x[i];  // false for NaN
    out[i] = known ? x[i] : 0.0f;
    mask[i] = !known ? 0.0f : weight == nullptr ? 1.0f : weight[i];
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_DOT_FUNCTORS_H_
