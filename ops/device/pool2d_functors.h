// Functors of pool2d: windows and elements of pictures that lie one after the other. Arithmetic and order for each
// element equal those of ops/pool2d.cc.
#ifndef WEIR_OPS_DEVICE_POOL2D_FUNCTORS_H_
#define WEIR_OPS_DEVICE_POOL2D_FUNCTORS_H_

#include <cstdint>

#include "ops/device/picture_functors.h"
#include "ops/device/quotient.h"

namespace weir {
namespace device {

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

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_POOL2D_FUNCTORS_H_
