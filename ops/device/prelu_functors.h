// Functors of prelu and dice, X [rows, width]. `slopes` is width, or 1 for one slope for all.
#ifndef WEIR_OPS_DEVICE_PRELU_FUNCTORS_H_
#define WEIR_OPS_DEVICE_PRELU_FUNCTORS_H_

#include <cstdint>

#include "ops/activation_math.h"
#include "ops/device/fixed_sum_order.h"
#include "ops/device/lane_rows.h"
#include "ops/device/quotient.h"
#include "ops/inline.h"

namespace weir {
namespace device {

struct PreluAt {
  int64_t slopes;
  const float* x;
  const float* slope;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = Prelu(x[i], slope[i - Quotient(i, slopes) * slopes]); }
};
// dx may be dout.
struct PreluInputAt {
  int64_t slopes;
  const float* x;
  const float* slope;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    dx[i] = PreluGrad(x[i], slope[i - Quotient(i, slopes) * slopes], dout[i]);
  }
};
// Computes what a value adds to the gradient of its slope.
struct PreluSlopeTermAt {
  const float* x;
  const float* dout;
  float* term;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { term[i] = PreluSlopeGrad(x[i], dout[i]); }
};
// Computes what a row adds to the gradient of the one slope.
struct PreluRowTermAt {
  int64_t width;
  const float* x;
  const float* dout;
  float* term;
  WEIR_HOST_DEVICE void operator()(int64_t r) const {
    const float *const row = x + r * width, *const d = dout + r * width;
    term[r] = SumOf16Parts(width, [row, d](int64_t i) { return PreluSlopeGrad(row[i], d[i]); });
  }
};

// Place of a value's column in what is measured of each lane, [lanes, width]. `rows`: of each lane.
struct DiceDims {
  LaneRows rows;
  int64_t width;
  WEIR_HOST_DEVICE int64_t Column(int64_t i) const { return i - Quotient(i, width) * width; }
  WEIR_HOST_DEVICE int64_t Measured(int64_t i) const {
    const int64_t row = Quotient(i, width);
    return rows.LaneOf(row) * width + (i - row * width);
  }
};
struct DiceInverseAt {
  float epsilon;
  const float* variance;
  float* inverse;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { inverse[i] = 1.0f / SquareRoot(variance[i] + epsilon); }
};
struct DiceAt {
  DiceDims d;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* slope;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t m = d.Measured(i);
    out[i] = Dice(x[i], (x[i] - mean[m]) * inverse[m], slope[d.Column(i)]);
  }
};
// Computes what a value adds to the sums over a lane's rows: of dnorm, of dnorm * norm, and of the slope's gradient.
struct DiceTermAt {
  DiceDims d;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* slope;
  const float* dout;
  float* sum;
  float* products;
  float* dslope;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t m = d.Measured(i);
    const float norm = (x[i] - mean[m]) * inverse[m];
    const float dnorm = DiceNormGrad(x[i], norm, slope[d.Column(i)], dout[i]);
    sum[i] = dnorm;
    products[i] = dnorm * norm;
    dslope[i] = DiceSlopeGrad(x[i], norm, dout[i]);
  }
};
// dx may be dout; sum and products are means.
struct DiceInputAt {
  DiceDims d;
  const float* x;
  const float* mean;
  const float* inverse;
  const float* slope;
  const float* sum;
  const float* products;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t m = d.Measured(i);
    const float norm = (x[i] - mean[m]) * inverse[m], own = slope[d.Column(i)];
    dx[i] = DiceDirectGrad(norm, own, dout[i]) +
            inverse[m] * (DiceNormGrad(x[i], norm, own, dout[i]) - sum[m] - norm * products[m]);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PRELU_FUNCTORS_H_
