// Functors of losses, softmax, dropout and the factorisation machine.
#ifndef WEIR_OPS_DEVICE_LOSS_FUNCTORS_H_
#define WEIR_OPS_DEVICE_LOSS_FUNCTORS_H_

#include <cstdint>

#include "ops/device/fours.h"
#include "ops/device/lane_rows.h"
#include "ops/device/quotient.h"
#include "ops/loss_math.h"

namespace weir {
namespace device {

// `weight` may be null.
template <typename Math>
struct LossAt {
  Math math;
  const float* x;
  const float* label;
  const float* weight;
  float* loss;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const float value = math.Loss(x[i], label[i]);
    loss[i] = weight == nullptr ? value : value * weight[i];
  }
};
template <typename Math>
struct LossGradAt {
  Math math;
  const float* x;
  const float* label;
  const float* weight;
  const float* dloss;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const float value = math.Dx(x[i], label[i], dloss[i]);
    dx[i] = weight == nullptr ? value : value * weight[i];
  }
};

// A row of softmax in the order of ops/softmax.cc: 16 partial sums, added in a tree.
WEIR_HOST_DEVICE inline float SumOf16(const float* part) {
  float sum[16];
  for (int i = 0; i < 16; ++i) sum[i] = part[i];
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) sum[i] += sum[i + width];
  }
  return sum[0];
}
// `label` and `loss` are null for softmax alone; `weight` may be null.
struct SoftmaxRowAt {
  const float* x;
  int64_t n;
  float* y;
  const int32_t* label;
  const float* weight;
  float* loss;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const float* const from = x + row * n;
    float* const to = y + row * n;
    float largest = from[0];
    for (int64_t i = 1; i < n; ++i) largest = from[i] > largest ? from[i] : largest;
    const float chosen = loss == nullptr ? 0.0f : from[label[row]] - largest;
    float part[16] = {};
    for (int64_t i = 0; i < n; ++i) {
      to[i] = Exp(from[i] - largest);
      part[i % 16] += to[i];
    }
    const float sum = SumOf16(part);
    for (int64_t i = 0; i < n; ++i) to[i] = to[i] / sum;
    if (loss == nullptr) return;
    const float value = Log(sum) - chosen;
    loss[row] = weight == nullptr ? value : value * weight[row];
  }
};
struct SoftmaxGradRowAt {
  const float* y;
  const float* dy;
  int64_t n;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    float part[16] = {};
    for (int64_t i = 0; i < n; ++i) part[i % 16] += dy[row * n + i] * y[row * n + i];
    const float dot = SumOf16(part);
    for (int64_t i = 0; i < n; ++i) dx[row * n + i] = y[row * n + i] * (dy[row * n + i] - dot);
  }
};
// dx = (softmax - one at the label) * dloss * weight.
struct SoftmaxLossGradAt {
  const float* softmax;
  const int32_t* label;
  const float* weight;
  const float* dloss;
  int64_t n;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n;
    const float factor = weight == nullptr ? dloss[row] : dloss[row] * weight[row];
    const float p = softmax[i];
    dx[i] = i - row * n == label[row] ? (p - 1.0f) * factor : p * factor;
  }
};

// The draws of ops/dropout.cc: element e of a lane is word e mod 4 at counter e / 4.
struct DropoutAt {
  const float* x;
  LaneRows elements;
  uint64_t key;
  uint64_t counter_high;  // of the first lane; lanes count on
  float rate, keep;
  float* mask;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int lane = elements.LaneOf(i);
    const int64_t e = i - elements.begin[lane];
    const PhiloxBlock random = Philox(key, static_cast<uint64_t>(e / 4), counter_high + static_cast<uint64_t>(lane));
    const float m = UniformFloat(random.v[e % 4]) < rate ? 0.0f : keep;
    out[i] = x[i] * m;
    mask[i] = m;
  }
  // Four elements are the four words of one draw.
  bool Fours() const {
    bool all = InFours(x, mask, out);
    for (int l = 0; l < elements.lanes; ++l) all = all && elements.begin[l] % 4 == 0;
    return all;
  }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const int lane = elements.LaneOf(4 * i);
    const PhiloxBlock random =
        Philox(key, static_cast<uint64_t>(i - elements.begin[lane] / 4), counter_high + static_cast<uint64_t>(lane));
    Float4 four = LoadFour(x, i), masks;
    for (int k = 0; k < 4; ++k) {
      masks.v[k] = UniformFloat(random.v[k]) < rate ? 0.0f : keep;
      four.v[k] = four.v[k] * masks.v[k];
    }
    StoreFour(out, i, four);
    StoreFour(mask, i, masks);
  }
};

// x has the slots of a row, each `width` long, from row * stride on: sums over slots, in their order.
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
// x [rows, slots, width].
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
// x [rows, stride], whose columns from `begin` on are the slots; added to `onto`, which is like x and may be null.
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

#endif  // WEIR_OPS_DEVICE_LOSS_FUNCTORS_H_
