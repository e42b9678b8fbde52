// Functors of batch_norm, X [examples, channels, size]; measured values are [lanes, channels]. Arithmetic and order for
// each element equal those of ops/batch_norm.cc, except for sums that say otherwise.
#ifndef WEIR_OPS_DEVICE_BATCH_NORM_FUNCTORS_H_
#define WEIR_OPS_DEVICE_BATCH_NORM_FUNCTORS_H_

#include <cstdint>

#include "ops/device/lane_rows.h"
#include "ops/device/picture_functors.h"
#include "ops/device/quotient.h"

namespace weir {
namespace device {

struct NormDims {
  LaneRows examples;
  int64_t channels, size;

  WEIR_HOST_DEVICE int64_t elements(int64_t lane) const { return examples.count(static_cast<int>(lane)) * size; }
  // Place in [lanes, channels] of a channel of an example.
  WEIR_HOST_DEVICE int64_t Measured(int64_t example, int64_t channel) const {
    return examples.LaneOf(example) * channels + channel;
  }
};

// Sums over one channel of one example: Term(o, k) of its element k, o in [examples, channels].
struct NormSum {
  using Sum = float;
  NormDims d;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return d.size; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const { return x[o * d.size + k]; }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { out[o] = sum; }
};
struct NormSquares {
  using Sum = float;
  NormDims d;
  const float* x;
  const float* mean;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return d.size; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    const int64_t example = Quotient(o, d.channels);
    const float distance = x[o * d.size + k] - mean[d.Measured(example, o - example * d.channels)];
    return distance * distance;
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { out[o] = sum; }
};
// Also the bias gradient of a convolution, whose channels are filters.
struct NormBackSum {
  using Sum = float;
  NormDims d;
  PictureActivation f;
  const float* out;
  const float* dout;
  float* sums;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return d.size; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    return BackThrough(f, out[o * d.size + k], dout[o * d.size + k]);
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { sums[o] = sum; }
};
struct NormBackProducts {
  using Sum = float;
  NormDims d;
  PictureActivation f;
  const float* out;
  const float* dout;
  const float* x;
  const float* mean;
  float* sums;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return d.size; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    const int64_t example = Quotient(o, d.channels), i = o * d.size + k;
    return BackThrough(f, out[i], dout[i]) * (x[i] - mean[d.Measured(example, o - example * d.channels)]);
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { sums[o] = sum; }
};
// Sums of one term each, computed by a thread instead of a warp.
template <typename F>
struct OnlyTermAt {
  F f;
  WEIR_HOST_DEVICE void operator()(int64_t o) const { f.Store(o, f.Term(o, 0)); }
};

// Divides sums [lanes, channels] to means. A lane without examples has mean and variance 0.
struct NormMeanAt {
  NormDims d;
  float* sum;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t n = d.elements(Quotient(i, d.channels));
    sum[i] = n == 0 ? 0.0f : sum[i] / static_cast<float>(n);
  }
};
struct NormRunningAt {
  int64_t channels;
  const float* mean;
  const float* variance;
  float* to_mean;
  float* to_variance;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    to_mean[i] = mean[i % channels];
    to_variance[i] = variance[i % channels];
  }
};
struct NormFactorAt {
  int64_t channels;
  float epsilon;
  const float* scale;
  const float* variance;
  float* factor;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    factor[i] = scale[i % channels] * (1.0f / SquareRoot(variance[i] + epsilon));
  }
};
struct NormAt {
  NormDims d;
  PictureActivation f;
  const float* x;
  const float* mean;
  const float* factor;
  const float* shift;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t o = Quotient(i, d.size), example = Quotient(o, d.channels), channel = o - example * d.channels;
    const int64_t measured = d.Measured(example, channel);
    out[i] = Activate(f, (x[i] - mean[measured]) * factor[measured] + shift[channel]);
  }
};

// Sums of dpre and of dpre * (x - mean) become dShift and dScale, and what dX takes from them.
struct NormSlopeAt {
  NormDims d;
  float epsilon;
  const float* scale;
  const float* variance;
  const float* dshift;
  float* dscale;
  float* factor;
  float* shift;
  float* slope;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t lane = Quotient(i, d.channels), elements = d.elements(lane);
    const float n = static_cast<float>(elements == 0 ? 1 : elements);
    const float inverse = 1.0f / SquareRoot(variance[i] + epsilon);
    dscale[i] *= inverse;
    factor[i] = scale[i - lane * d.channels] * inverse;
    shift[i] = dshift[i] / n;
    slope[i] = inverse * dscale[i] / n;
  }
};
// dx may be dout.
struct NormInputAt {
  NormDims d;
  PictureActivation f;
  const float* x;
  const float* mean;
  const float* factor;
  const float* shift;
  const float* slope;
  const float* out;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t o = Quotient(i, d.size), example = Quotient(o, d.channels);
    const int64_t m = d.Measured(example, o - example * d.channels);
    dx[i] = factor[m] * (BackThrough(f, out[i], dout[i]) - shift[m] - (x[i] - mean[m]) * slope[m]);
  }
};
// Multiplies measured values by the examples of the lane.
struct NormTimesExamplesAt {
  NormDims d;
  const float* measured;
  float* to;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    to[i] = static_cast<float>(d.examples.count(static_cast<int>(Quotient(i, d.channels)))) * measured[i];
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_BATCH_NORM_FUNCTORS_H_
