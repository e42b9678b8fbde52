// Functors of self_attention: elements [batch, most, size], of which example b has the first length[b], with heads of
// `width` columns side by side, and weights [batch, heads, most, most]. Arithmetic and order equal those of
// ops/self_attention.cc.
#ifndef WEIR_OPS_DEVICE_SELF_ATTENTION_FUNCTORS_H_
#define WEIR_OPS_DEVICE_SELF_ATTENTION_FUNCTORS_H_

#include <cstdint>

#include "ops/attention_math.h"
#include "ops/device/fixed_sum_order.h"
#include "ops/device/quotient.h"
#include "ops/vector_math.h"

namespace weir {
namespace device {

struct AttentionDims {
  const int32_t* length;
  int64_t most, heads, width;
  bool causal;
  float scale;

  WEIR_HOST_DEVICE int64_t size() const { return heads * width; }
  // Elements that element t of n attends to; those that attend to it begin with BeginOf.
  WEIR_HOST_DEVICE int64_t EndOf(int64_t t, int64_t n) const { return causal ? t + 1 : n; }
  WEIR_HOST_DEVICE int64_t BeginOf(int64_t t) const { return causal ? t : 0; }
};

// Row r of the weights: of element t and head h of example b. `head`: place of the head in the example's first element.
struct WeightRow {
  int64_t b, h, t, n, head;
  WEIR_HOST_DEVICE WeightRow(const AttentionDims& d, int64_t r) {
    const int64_t of_head = Quotient(r, d.most);
    t = r - of_head * d.most;
    b = Quotient(of_head, d.heads);
    h = of_head - b * d.heads;
    n = d.length[b];
    head = b * d.most * d.size() + h * d.width;
  }
};

// weight [.., t, u] = a[t] . b[u] of each head, times the scale if `scaled`; 0 for what is not attended to. For scores,
// and for gradients of weights.
struct AttentionProductAt {
  AttentionDims d;
  const float* a;
  const float* b;
  bool scaled;
  float* weight;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t r = Quotient(i, d.most), u = i - r * d.most;
    const WeightRow row(d, r);
    if (row.t >= row.n || u >= d.EndOf(row.t, row.n)) {
      weight[i] = 0;
      return;
    }
    const float* const x = a + row.head + row.t * d.size();
    const float* const y = b + row.head + u * d.size();
    float sum = 0;
    for (int64_t w = 0; w < d.width; ++w) sum += x[w] * y[w];
    weight[i] = scaled ? sum * d.scale : sum;
  }
};
// Makes weights of a row of scores, in place.
struct AttentionSoftmaxAt {
  AttentionDims d;
  float* weight;
  WEIR_HOST_DEVICE void operator()(int64_t r) const {
    const WeightRow at(d, r);
    if (at.t >= at.n) return;
    const int64_t end = d.EndOf(at.t, at.n);
    float* const row = weight + r * d.most;
    float largest = row[0];
    for (int64_t u = 1; u < end; ++u) largest = row[u] > largest ? row[u] : largest;
    for (int64_t u = 0; u < end; ++u) row[u] = Exp(row[u] - largest);
    const float factor = 1.0f / SumOf16Parts(end, [row](int64_t u) { return row[u]; });
    for (int64_t u = 0; u < end; ++u) row[u] = row[u] * factor;
  }
};
// Makes gradients of scores of a row of those of weights, in place.
struct AttentionScoreGradAt {
  AttentionDims d;
  const float* weight;
  float* grad;
  WEIR_HOST_DEVICE void operator()(int64_t r) const {
    const WeightRow at(d, r);
    if (at.t >= at.n) return;
    const int64_t end = d.EndOf(at.t, at.n);
    const float* const w = weight + r * d.most;
    float* const g = grad + r * d.most;
    const float sum = SumOf16Parts(end, [w, g](int64_t u) { return w[u] * g[u]; });
    for (int64_t u = 0; u < end; ++u) g[u] = SoftmaxScoreGradient(w[u], g[u], sum) * d.scale;
  }
};
// out[t] = sum over u of factor[t, u] x[u].
struct AttentionRowSumAt {
  AttentionDims d;
  const float* factor;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t element = Quotient(i, d.size()), column = i - element * d.size();
    const int64_t b = Quotient(element, d.most), t = element - b * d.most, n = d.length[b];
    float sum = 0;
    if (t < n) {
      const float* const by = factor + ((b * d.heads + Quotient(column, d.width)) * d.most + t) * d.most;
      const float* const from = x + b * d.most * d.size() + column;
      const int64_t end = d.EndOf(t, n);
      for (int64_t u = 0; u < end; ++u) sum += by[u] * from[u * d.size()];
    }
    out[i] = sum;
  }
};
// out[u] = sum over t of factor[t, u] x[t].
struct AttentionColumnSumAt {
  AttentionDims d;
  const float* factor;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t element = Quotient(i, d.size()), column = i - element * d.size();
    const int64_t b = Quotient(element, d.most), u = element - b * d.most, n = d.length[b];
    float sum = 0;
    if (u < n) {
      const float* const by = factor + (b * d.heads + Quotient(column, d.width)) * d.most * d.most + u;
      const float* const from = x + b * d.most * d.size() + column;
      for (int64_t t = d.BeginOf(u); t < n; ++t) sum += by[t * d.most] * from[t * d.size()];
    }
    out[i] = sum;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_SELF_ATTENTION_FUNCTORS_H_
