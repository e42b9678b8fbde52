// Functors of losses of several scores per example.
#ifndef WEIR_OPS_DEVICE_ROW_LOSSES_FUNCTORS_H_
#define WEIR_OPS_DEVICE_ROW_LOSSES_FUNCTORS_H_

#include <cstdint>

#include "ops/device/fixed_sum_order.h"
#include "ops/row_loss_math.h"

namespace weir {
namespace device {

struct SumOfParts {
  template <typename Term>
  WEIR_HOST_DEVICE float operator()(int64_t n, const Term& term) const {
    return SumOf16Parts(n, term);
  }
};

// Computes a row.
template <typename Math>
struct PairLossAt {
  Math math;
  int64_t n;
  const float* positive;
  const float* negative;
  const float* weight;  // may be null
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const SumOfParts sum;
    const float* const others = negative + row * n;
    const float loss = math.Loss(sum, math.Begin(sum, n, positive[row], others), n, positive[row], others);
    out[row] = weight == nullptr ? loss : loss * weight[row];
  }
};
// Computes the gradients of a row; either may be null.
template <typename Math>
struct PairLossGradAt {
  Math math;
  int64_t n;
  const float* positive;
  const float* negative;
  const float* weight;
  const float* dout;
  float* dpositive;
  float* dnegative;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const SumOfParts sum;
    const Math m = math;
    const int64_t count = n;
    const float* const others = negative + row * n;
    const float p = positive[row], dloss = dout[row] * (weight == nullptr ? 1.0f : weight[row]);
    const typename Math::State state = m.Begin(sum, n, p, others);
    if (dnegative != nullptr) {
      for (int64_t i = 0; i < n; ++i) dnegative[row * n + i] = dloss * m.Slope(state, n, p, others[i]);
    }
    if (dpositive != nullptr) {
      dpositive[row] = -sum(n, [=](int64_t i) { return dloss * m.Slope(state, count, p, others[i]); });
    }
  }
};

// Computes a row.
struct MultiLabelAt {
  int64_t n;
  const float* x;
  const float* label;
  const float* weight;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const float loss = MultiLabelMath{}.Loss(SumOfParts(), n, x + row * n, label + row * n);
    out[row] = weight == nullptr ? loss : loss * weight[row];
  }
};
// Computes an element.
struct MultiLabelGradAt {
  int64_t n;
  const float* x;
  const float* label;
  const float* weight;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / n;
    const float dloss = dout[row] * (weight == nullptr ? 1.0f : weight[row]);
    dx[i] = MultiLabelMath{}.Dx(n, x[i], label[i], dloss);
  }
};

WEIR_HOST_DEVICE inline int64_t CandidatesOf(const float* length, int64_t row, int64_t n) {
  if (length == nullptr) return n;
  const float count = length[row];
  return count >= 0.0f ? static_cast<int64_t>(count < static_cast<float>(n) ? count : static_cast<float>(n)) : 0;
}
// Computes a row.
struct ListwiseSoftmaxAt {
  int64_t n;
  const float* scores;
  const float* label;
  const float* length;  // may be null, as `weight`
  const float* weight;
  float* softmax;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const int64_t count = CandidatesOf(length, row, n);
    float* const p = softmax + row * n;
    for (int64_t i = count; i < n; ++i) p[i] = 0.0f;
    const float loss =
        count == 0 ? 0.0f : ListwiseSoftmaxMath{}.Loss(SumOfParts(), count, scores + row * n, label + row * n, p);
    out[row] = loss * (weight == nullptr ? 1.0f : weight[row]);
  }
};
struct ListwiseSoftmaxGradAt {
  int64_t n;
  const float* label;
  const float* length;
  const float* weight;
  const float* softmax;
  const float* dout;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t row) const {
    const int64_t count = CandidatesOf(length, row, n);
    for (int64_t i = count; i < n; ++i) dx[row * n + i] = 0.0f;
    if (count == 0) return;
    const float dloss = dout[row] * (weight == nullptr ? 1.0f : weight[row]);
    ListwiseSoftmaxMath{}.Dx(SumOfParts(), count, label + row * n, softmax + row * n, dloss, dx + row * n);
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ROW_LOSSES_FUNCTORS_H_
