// Functors of in_batch_softmax: rows [first, first + rows) of the matrix of scores of one lane, [rows, n] (see
// ops/in_batch_softmax.cc). Sums are in the order of ops/device/reduce_order.h.
#ifndef WEIR_OPS_DEVICE_IN_BATCH_SOFTMAX_FUNCTORS_H_
#define WEIR_OPS_DEVICE_IN_BATCH_SOFTMAX_FUNCTORS_H_

#include <cstdint>

#include "ops/device/quotient.h"
#include "ops/vector_math.h"

namespace weir {
namespace device {

struct LogAt {
  const float* x;
  float* y;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { y[i] = Log(x[i]); }
};

// Makes scores of products, in place.
struct InBatchScoreAt {
  int64_t n, first;
  float factor;                  // 1 / temperature
  const float* log_probability;  // [n], may be null
  const int64_t* id;             // [n], may be null
  float* s;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    constexpr float kMasked = -1e30f;  // e^ of it is 0 beside any score
    const int64_t row = Quotient(i, n), j = i - row * n, own = first + row;
    float score = s[i] * factor;
    if (log_probability != nullptr) score -= log_probability[j];
    if (id != nullptr && j != own && id[j] == id[own]) score = kMasked;
    s[i] = score;
  }
};

// The larger of numbers; a NaN may be passed by, and shows in the sum.
struct LargestOf {
  float value = -3.402823466e38f;
  WEIR_HOST_DEVICE LargestOf& operator+=(const LargestOf& other) {
    value = other.value > value ? other.value : value;
    return *this;
  }
};
struct InBatchLargest {
  using Sum = LargestOf;
  int64_t n;
  const float* s;
  float* largest;  // [rows]
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return n; }
  WEIR_HOST_DEVICE LargestOf Term(int64_t row, int64_t j) const {
    LargestOf x;
    x.value = s[row * n + j];
    return x;
  }
  WEIR_HOST_DEVICE void Store(int64_t row, LargestOf sum) const { largest[row] = sum.value; }
};
// Makes the losses of rows. log_sum and out are those of row `first`; weight [n] may be null.
struct InBatchLoss {
  using Sum = float;
  int64_t n, first;
  const float* s;
  const float* largest;
  const float* weight;
  float* log_sum;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return n; }
  WEIR_HOST_DEVICE float Term(int64_t row, int64_t j) const { return Exp(s[row * n + j] - largest[row]); }
  WEIR_HOST_DEVICE void Store(int64_t row, float sum) const {
    const int64_t own = first + row;
    const float log = Log(sum);
    log_sum[row] = largest[row] + log;
    out[row] = (weight == nullptr ? 1.0f : weight[own]) * (log - (s[row * n + own] - largest[row]));
  }
};
// Makes gradients of products of scores, in place; log_sum, dout and weight are those of example 0.
struct InBatchGradAt {
  int64_t n, first;
  float factor;  // 1 / temperature
  const float* log_sum;
  const float* dout;
  const float* weight;  // may be null
  float* s;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t row = Quotient(i, n), j = i - row * n, own = first + row;
    const float by = dout[own] * (weight == nullptr ? 1.0f : weight[own]) * factor;
    const float p = by * Exp(s[i] - log_sum[own]);
    s[i] = j == own ? p - by : p;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_IN_BATCH_SOFTMAX_FUNCTORS_H_
