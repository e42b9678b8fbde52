// Functors of losses and softmax.
#ifndef WEIR_OPS_DEVICE_LOSSES_FUNCTORS_H_
#define WEIR_OPS_DEVICE_LOSSES_FUNCTORS_H_

#include <cstdint>

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

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LOSSES_FUNCTORS_H_
