// Functors of conv2d, pool2d and batch_norm. Arithmetic and order for each element equal those of the CPU (files of
// these names in ops/), except for sums that say otherwise.
#ifndef WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_
#define WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_

#include <cstdint>

#include "ops/activation_math.h"
#include "ops/device/lane_rows.h"
#include "ops/device/quotient.h"
#include "ops/inline.h"

namespace weir {
namespace device {

// FusedActivation of ops/fused_activation.h. A number, not a type: all threads go the same way, and one kernel serves
// all.
enum class PictureActivation { kIdentity, kRelu, kSigmoid, kTanh };
WEIR_HOST_DEVICE inline float Activate(PictureActivation f, float x) {
  switch (f) {
    case PictureActivation::kIdentity:
      return x;
    case PictureActivation::kRelu:
      return Relu(x);
    case PictureActivation::kSigmoid:
      return Sigmoid(x);
    case PictureActivation::kTanh:
      return Tanh(x);
  }
  return x;
}
WEIR_HOST_DEVICE inline float BackThrough(PictureActivation f, float out, float dout) {
  switch (f) {
    case PictureActivation::kIdentity:
      return dout;
    case PictureActivation::kRelu:
      return ReluGrad(out, dout);
    case PictureActivation::kSigmoid:
      return SigmoidGrad(out, dout);
    case PictureActivation::kTanh:
      return TanhGrad(out, dout);
  }
  return dout;
}

// WindowAxis of ops/windows.h.
struct Axis {
  int64_t size, kernel, stride, padding, count;

  // Elements of window i that are there.
  WEIR_HOST_DEVICE int64_t Begin(int64_t i) const {
    const int64_t begin = i * stride - padding;
    return begin < 0 ? 0 : begin;
  }
  WEIR_HOST_DEVICE int64_t End(int64_t i) const {
    const int64_t end = i * stride - padding + kernel;
    return end > size ? size : end;
  }
  // Windows that have element `at`.
  WEIR_HOST_DEVICE int64_t FirstWindow(int64_t at) const {
    const int64_t before = at + padding - kernel;
    return before < 0 ? 0 : Quotient(before, stride) + 1;
  }
  WEIR_HOST_DEVICE int64_t LastWindow(int64_t at) const {
    const int64_t last = Quotient(at + padding, stride);
    return last < count ? last + 1 : count;
  }
};

// ------------------------------------------------------------------------------------------------------------------
// conv2d

// Examples, `size` in a group and none of two lanes; the last group of a lane may have places without an example.
// Places are counted from group `first` on.
struct Groups {
  LaneRows examples;
  LaneRows groups;
  int64_t size = 1;
  int64_t first = 0;

  // -1: there is none.
  WEIR_HOST_DEVICE int64_t Example(int64_t place) const {
    if (size == 1) return first + place;
    const int64_t group = first + Quotient(place, size);
    const int lane = groups.LaneOf(group);
    const int64_t example = examples.begin[lane] + (group - groups.begin[lane]) * size + place % size;
    return example < examples.begin[lane + 1] ? example : -1;
  }
};

struct Conv {
  int64_t channels, filters;
  Axis height, width;
  Groups groups;

  WEIR_HOST_DEVICE int64_t windows() const { return height.count * width.count; }
  WEIR_HOST_DEVICE int64_t kernel() const { return height.kernel * width.kernel; }
  // Length of a row of a matrix with a column for each window of a group.
  WEIR_HOST_DEVICE int64_t line() const { return groups.size * windows(); }
  // Index of row `row` of `rows` of the place's group, at the place's first window.
  WEIR_HOST_DEVICE int64_t At(int64_t place, int64_t rows, int64_t row) const {
    const int64_t group = Quotient(place, groups.size);
    return (group * rows + row) * line() + (place - group * groups.size) * windows();
  }
};

// cols [groups, taps, windows of a group]: the elements under each tap of each window. i: place, channel, window.
struct ColumnsAt {
  Conv c;
  const float* x;
  float* cols;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t picture = Quotient(i, c.windows()), window = i - picture * c.windows();
    const int64_t place = Quotient(picture, c.channels), channel = picture - place * c.channels;
    const int64_t row = Quotient(window, c.width.count), column = window - row * c.width.count;
    const int64_t example = c.groups.Example(place);
    const float* const from = x + (example * c.channels + channel) * c.height.size * c.width.size;
    float* to = cols + c.At(place, c.channels * c.kernel(), channel * c.kernel()) + window;
    for (int64_t k = 0; k < c.height.kernel; ++k) {
      const int64_t h = row * c.height.stride - c.height.padding + k;
      for (int64_t l = 0; l < c.width.kernel; ++l, to += c.line()) {
        const int64_t w = column * c.width.stride - c.width.padding + l;
        const bool there = example >= 0 && h >= 0 && h < c.height.size && w >= 0 && w < c.width.size;
        *to = there ? from[h * c.width.size + w] : 0.0f;
      }
    }
  }
};

// out = f(product + bias), from [groups, filters, windows of a group] to [examples, filters, windows]; `out` begins at
// the first example of the groups. With one example in a group they may be the same.
struct ConvOutAt {
  Conv c;
  PictureActivation f;
  const float* product;
  const float* bias;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t matrix = Quotient(i, c.windows()), window = i - matrix * c.windows();
    const int64_t place = Quotient(matrix, c.filters), filter = matrix - place * c.filters;
    const float sum = product[c.At(place, c.filters, filter) + window];
    out[i] = Activate(f, bias == nullptr ? sum : sum + bias[filter]);
  }
};

// Reverse copy, back through the activation; 0 where there is no example. i: place, filter, window.
struct ConvBackAt {
  Conv c;
  PictureActivation f;
  const float* out;
  const float* dout;
  float* dpre;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t matrix = Quotient(i, c.windows()), window = i - matrix * c.windows();
    const int64_t place = Quotient(matrix, c.filters), filter = matrix - place * c.filters;
    const int64_t example = c.groups.Example(place);
    const int64_t at = (example * c.filters + filter) * c.windows() + window;
    dpre[c.At(place, c.filters, filter) + window] = example < 0 ? 0.0f : BackThrough(f, out[at], dout[at]);
  }
};

// dx: sum over the windows that contain an element, in the order of taps. i: place, channel, element.
struct ConvInputAt {
  Conv c;
  const float* cols;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t size = c.height.size * c.width.size;
    const int64_t picture = Quotient(i, size), at = i - picture * size;
    const int64_t place = Quotient(picture, c.channels), channel = picture - place * c.channels;
    const int64_t example = c.groups.Example(place);
    if (example < 0) return;
    const int64_t h = Quotient(at, c.width.size) + c.height.padding, w = at % c.width.size + c.width.padding;
    const float* const from = cols + c.At(place, c.channels * c.kernel(), channel * c.kernel());
    float sum = 0;
    for (int64_t k = 0; k < c.height.kernel && k <= h; ++k) {
      const int64_t row = Quotient(h - k, c.height.stride);
      if (row * c.height.stride != h - k || row >= c.height.count) continue;
      for (int64_t l = 0; l < c.width.kernel && l <= w; ++l) {
        const int64_t column = Quotient(w - l, c.width.stride);
        if (column * c.width.stride != w - l || column >= c.width.count) continue;
        sum += from[(k * c.width.kernel + l) * c.line() + row * c.width.count + column];
      }
    }
    dx[(example * c.channels + channel) * size + at] = sum;
  }
};

// dw [lanes, filters * taps] from products of `count` groups, [groups, filters * taps]. dw holds the sums of earlier
// groups.
struct ConvFilterSum {
  using Sum = float;
  LaneRows groups;
  int64_t first, count;
  int64_t size;  // filters * taps
  const float* products;
  float* dw;
  WEIR_HOST_DEVICE int64_t Begin(int lane) const { return groups.begin[lane] > first ? groups.begin[lane] : first; }
  WEIR_HOST_DEVICE int64_t Terms(int64_t o) const {
    const int lane = static_cast<int>(Quotient(o, size));
    const int64_t end = groups.begin[lane + 1] < first + count ? groups.begin[lane + 1] : first + count;
    return end > Begin(lane) ? end - Begin(lane) : 0;
  }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    const int64_t lane = Quotient(o, size);
    return products[(Begin(static_cast<int>(lane)) - first + k) * size + (o - lane * size)];
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { dw[o] = first == 0 ? sum : dw[o] + sum; }
};

// ------------------------------------------------------------------------------------------------------------------
// pool2d: windows and elements of pictures that lie one after the other

struct Pool {
  Axis height, width;
  WEIR_HOST_DEVICE int64_t size() const { return height.size * width.size; }
  WEIR_HOST_DEVICE int64_t windows() const { return height.count * width.count; }
};

struct Window {
  int64_t picture, row, column;
  WEIR_HOST_DEVICE static Window Of(const Pool& p, int64_t i) {
    const int64_t picture = Quotient(i, p.windows()), at = i - picture * p.windows();
    const int64_t row = Quotient(at, p.width.count);
    return {picture, row, at - row * p.width.count};
  }
};

// Returns the index in its picture of the window's greatest element: the first of them, or the last NaN.
WEIR_HOST_DEVICE inline int64_t GreatestAt(const Pool& p, const Window& window, const float* x) {
  int64_t at = p.height.Begin(window.row) * p.width.size + p.width.Begin(window.column);
  for (int64_t h = p.height.Begin(window.row); h < p.height.End(window.row); ++h) {
    for (int64_t w = p.width.Begin(window.column); w < p.width.End(window.column); ++w) {
      const int64_t here = h * p.width.size + w;
      if ((x[here] > x[at]) | (x[here] != x[here])) at = here;
    }
  }
  return at;
}

struct PoolMaxAt {
  Pool p;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const Window window = Window::Of(p, i);
    const float* const picture = x + window.picture * p.size();
    out[i] = picture[GreatestAt(p, window, picture)];
  }
};
struct PoolGreatestAt {
  Pool p;
  const float* x;
  int64_t* greatest;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const Window window = Window::Of(p, i);
    greatest[i] = GreatestAt(p, window, x + window.picture * p.size());
  }
};

WEIR_HOST_DEVICE inline float ElementsOfWindow(const Pool& p, int64_t row, int64_t column) {
  return static_cast<float>((p.height.End(row) - p.height.Begin(row)) * (p.width.End(column) - p.width.Begin(column)));
}

struct PoolAverageAt {
  Pool p;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const Window window = Window::Of(p, i);
    const float* const picture = x + window.picture * p.size();
    float sum = 0;
    for (int64_t h = p.height.Begin(window.row); h < p.height.End(window.row); ++h) {
      for (int64_t w = p.width.Begin(window.column); w < p.width.End(window.column); ++w)
        sum += picture[h * p.width.size + w];
    }
    out[i] = sum / ElementsOfWindow(p, window.row, window.column);
  }
};

// dx of element i: from the windows over it, in their order. `greatest`: of max, by window.
struct PoolInputAt {
  Pool p;
  const int64_t* greatest;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t picture = Quotient(i, p.size()), at = i - picture * p.size();
    const int64_t h = Quotient(at, p.width.size), w = at - h * p.width.size;
    const int64_t last_row = p.height.LastWindow(h), last_column = p.width.LastWindow(w);
    float sum = 0;
    for (int64_t row = p.height.FirstWindow(h); row < last_row; ++row) {
      for (int64_t column = p.width.FirstWindow(w); column < last_column; ++column) {
        const int64_t window = picture * p.windows() + row * p.width.count + column;
        if (greatest == nullptr) {
          sum += dout[window] / ElementsOfWindow(p, row, column);
        } else if (greatest[window] == at) {
          sum += dout[window];
        }
      }
    }
    dx[i] = sum;
  }
};

// ------------------------------------------------------------------------------------------------------------------
// batch_norm: X [examples, channels, size]; what is measured is [lanes, channels]

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

#endif  // WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_
