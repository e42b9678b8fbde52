// Functors of fm_interaction and its gradient (ops/fm_interaction.cc) for ForEach.
#ifndef WEIR_OPS_DEVICE_FM_INTERACTION_FUNCTORS_H_
#define WEIR_OPS_DEVICE_FM_INTERACTION_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/device/fours.h"
#include "ops/device/quotient.h"

namespace weir {
namespace device {

// Element i of `sum` and `squares` [rows, width]: sums over the slots of x, in their order. The slots of a row, each
// `width` long, begin at x + row * stride.
struct FmSumAt {
  const float* x;
  int64_t stride, slots, width;
  float* sum;
  float* squares;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, width);
    const float* from = x + row * stride + (i - row * width);
    float s = 0, q = 0;
    for (int64_t k = 0; k < slots; ++k, from += width) {
      s += *from;
      q += *from * *from;
    }
    sum[i] = s;
    squares[i] = q;
  }
};
// Element `row` of out [rows], from sum and squares [rows, width].
struct FmOutAt {
  const float* sum;
  const float* squares;
  int64_t width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    float total = 0;
    for (int64_t w = row * width; w < (row + 1) * width; ++w) total += sum[w] * sum[w] - squares[w];
    out[row] = 0.5f * total;
  }
};
// Element i of dx, like x [rows, slots, width]; sum [rows, width], dout [rows].
struct FmGradAt {
  const float* x;
  const float* sum;
  const float* dout;
  int64_t slots, width;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, slots * width);
    dx[i] = dout[row] * (sum[row * width + (i - Quotient(i, width) * width)] - x[i]);
  }
  bool Fours() const { return width % 4 == 0 && InFours(x, sum, dx); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const int64_t w = width / 4, row = Quotient(i, slots * w);
    const Float4 s = LoadFour(sum, row * w + (i - Quotient(i, w) * w));
    const float d = dout[row];
    Float4 four = LoadFour(x, i);
    for (int k = 0; k < 4; ++k) four.v[k] = d * (s.v[k] - four.v[k]);
    StoreFour(dx, i, four);
  }
};
// Element i of dx, like x [rows, stride], whose columns from `begin` on are the slots; other columns of dx are 0. Added
// to `onto`, which is like x and may be null.
struct FmColumnsGradAt {
  FmGradAt of;
  int64_t stride, begin;
  const float* onto;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, stride), column = i - row * stride - begin;
    if (column < 0 || column >= of.slots * of.width) {
      of.dx[i] = onto == nullptr ? 0.0f : onto[i];
      return;
    }
    const float d =
        of.dout[row] * (of.sum[row * of.width + (column - Quotient(column, of.width) * of.width)] - of.x[i]);
    of.dx[i] = onto == nullptr ? d : onto[i] + d;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_FM_INTERACTION_FUNCTORS_H_
