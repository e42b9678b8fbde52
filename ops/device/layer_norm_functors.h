// Functors of layer_norm, X [rows, width]. Arithmetic and order equal those of ops/layer_norm.cc.
#ifndef WEIR_OPS_DEVICE_LAYER_NORM_FUNCTORS_H_
#define WEIR_OPS_DEVICE_LAYER_NORM_FUNCTORS_H_

#include <cstdint>

#include "ops/device/fixed_sum_order.h"
#include "ops/device/quotient.h"
#include "ops/layer_norm_math.h"

namespace weir {
namespace device {

// Measures a row.
struct LayerNormMeasureAt {
  int64_t width;
  float epsilon;
  const float* x;
  float* mean;
  float* inverse;
  WEIR_HOST_DEVICE void operator()(int64_t r) const {
    const float* const row = x + r * width;
    const float count = static_cast<float>(width);
    const float middle = SumOf16Parts(width, [row](int64_t i) { return row[i]; }) / count;
    const float variance =
        SumOf16Parts(width, [row, middle](int64_t i) { return (row[i] - middle) * (row[i] - middle); }) / count;
    mean[r] = middle;
    inverse[r] = InverseOfDeviation(variance, epsilon);
  }
};
struct LayerNormAt {
  int64_t width;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* scale;
  const float* shift;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = Quotient(i, width), w = i - r * width;
    out[i] = Normalised(x[i], mean[r], inverse[r]) * scale[w] + shift[w];
  }
};
// Computes what a row adds to the gradient of the scale.
struct LayerNormScaleTermAt {
  int64_t width;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* dout;
  float* term;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = Quotient(i, width);
    term[i] = dout[i] * Normalised(x[i], mean[r], inverse[r]);
  }
};
// Means over a row of dnorm and of dnorm * norm.
struct LayerNormRowGradAt {
  int64_t width;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* scale;
  const float* dout;
  float* sum;
  float* products;
  WEIR_HOST_DEVICE void operator()(int64_t r) const {
    const float *const row = x + r * width, *const d = dout + r * width, *const by = scale;
    const float middle = mean[r], factor = inverse[r], count = static_cast<float>(width);
    sum[r] = SumOf16Parts(width, [d, by](int64_t i) { return d[i] * by[i]; }) / count;
    products[r] =
        SumOf16Parts(width, [=](int64_t i) { return d[i] * by[i] * Normalised(row[i], middle, factor); }) / count;
  }
};
// dx may be dout.
struct LayerNormInputAt {
  int64_t width;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* scale;
  const float* sum;
  const float* products;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = Quotient(i, width);
    dx[i] = NormalisedInputGradient(dout[i] * scale[i - r * width], Normalised(x[i], mean[r], inverse[r]), inverse[r],
                                    sum[r], products[r]);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LAYER_NORM_FUNCTORS_H_
