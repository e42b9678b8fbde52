// Functors of conv2d. Arithmetic and order for each element equal those of ops/conv2d.cc, except for sums that say
// otherwise.
#ifndef WEIR_OPS_DEVICE_CONV2D_FUNCTORS_H_
#define WEIR_OPS_DEVICE_CONV2D_FUNCTORS_H_

#include <cstdint>

#include "ops/device/lane_rows.h"
#include "ops/device/picture_functors.h"
#include "ops/device/quotient.h"

namespace weir {
namespace device {

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

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CONV2D_FUNCTORS_H_
