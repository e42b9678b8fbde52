// Functors of sequences x [batch, most, width], of which example b has the first length[b] elements: pooling, the parts
// of an attention, and vectors of positions. Each adds in the order of its operator in ops/.
#ifndef WEIR_OPS_DEVICE_SEQUENCES_FUNCTORS_H_
#define WEIR_OPS_DEVICE_SEQUENCES_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/attention_math.h"
#include "ops/device/fixed_sum_order.h"
#include "ops/device/lane_rows.h"
#include "ops/device/quotient.h"
#include "ops/sequence_pool_math.h"
#include "ops/vector_math.h"

namespace weir {
namespace device {

// Element t of example b, column w of it: place (b * most + t) * width + w.
struct PlaceOfElement {
  int64_t b, t, w;
  WEIR_HOST_DEVICE PlaceOfElement(int64_t i, int64_t most, int64_t width) {
    const int64_t element = Quotient(i, width);
    w = i - element * width;
    b = Quotient(element, most);
    t = element - b * most;
  }
};

// Out [batch, width].
struct SequencePoolAt {
  SequencePooling type;
  const float* x;
  const int32_t* length;
  int64_t most, width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t b = Quotient(i, width);
    const int64_t n = length[b];
    const float* from = x + b * most * width + (i - b * width);
    if (n == 0) {
      out[i] = 0;
    } else if (type == SequencePooling::kFirst) {
      out[i] = *from;
    } else if (type == SequencePooling::kLast) {
      out[i] = from[(n - 1) * width];
    } else if (type == SequencePooling::kMax) {
      float largest = *from;
      for (int64_t t = 1; t < n; ++t) largest = LargerOf(largest, from[t * width]);
      out[i] = largest;
    } else {
      float sum = 0;
      for (int64_t t = 0; t < n; ++t) sum += from[t * width];
      const float divisor = SequenceDivisor(type, static_cast<float>(n));
      out[i] = divisor == 1.0f ? sum : sum / divisor;
    }
  }
};
// Not for the largest.
struct SequencePoolGradAt {
  SequencePooling type;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    const int64_t n = length[at.b];
    const float d = dout[at.b * width + at.w];
    if (at.t >= n) {
      dx[i] = 0;
    } else if (type == SequencePooling::kFirst || type == SequencePooling::kLast) {
      dx[i] = at.t == (type == SequencePooling::kFirst ? 0 : n - 1) ? d : 0.0f;
    } else {
      dx[i] = d / SequenceDivisor(type, static_cast<float>(n));
    }
  }
};
// A column of an example.
struct LargestGradAt {
  const float* x;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t b = Quotient(i, width);
    const int64_t n = length[b];
    const int64_t first = b * most * width + (i - b * width);
    float largest = n == 0 ? 0.0f : x[first];
    for (int64_t t = 1; t < n; ++t) largest = LargerOf(largest, x[first + t * width]);
    float left = dout[i];
    for (int64_t t = 0; t < most; ++t) {
      const int64_t at = first + t * width;
      if (t >= n) {
        dx[at] = 0;
        continue;
      }
      dx[at] = GradientOfLargest(x[at], largest, left);
      left = LeftOfGradient(x[at], largest, left);
    }
  }
};

// Rows [q, k, q - k, q * k] of 4 * width, of a query for each example and its elements.
struct AttentionPairsAt {
  const float* query;
  const float* x;
  const int32_t* length;
  int64_t most, width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    float* const row = out + (i - at.w) * 4 + at.w;
    const bool there = at.t < length[at.b];
    const float q = there ? query[at.b * width + at.w] : 0.0f, k = there ? x[i] : 0.0f;
    row[0] = q;
    row[width] = k;
    row[2 * width] = there ? PairDifference(q, k) : 0.0f;
    row[3 * width] = there ? PairProduct(q, k) : 0.0f;
  }
};
struct QueryGradAt {
  const float* x;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dquery;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t b = Quotient(i, width);
    const int64_t n = length[b];
    const float* k = x + b * most * width + (i - b * width);
    const float* row = dout + b * most * 4 * width + (i - b * width);
    float sum = 0;
    for (int64_t t = 0; t < n; ++t, k += width, row += 4 * width) {
      sum += PairGradientOfQuery(row[0], row[2 * width], row[3 * width], *k);
    }
    dquery[i] = sum;
  }
};
struct ElementGradAt {
  const float* query;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    const float* const row = dout + (i - at.w) * 4 + at.w;
    dx[i] = at.t < length[at.b]
                ? PairGradientOfElement(row[width], row[2 * width], row[3 * width], query[at.b * width + at.w])
                : 0.0f;
  }
};

// Weights [batch, most] of an example's elements from their scores, which may be the same memory.
struct AttentionWeightsAt {
  const float* score;
  const int32_t* length;
  int64_t most;
  bool softmax;
  float* weight;
  WEIR_HOST_DEVICE void operator()(int64_t b) const {
    const int64_t n = length[b];
    const float* const from = score + b * most;
    float* const to = weight + b * most;
    if (softmax && n > 0) {
      float largest = from[0];
      for (int64_t t = 1; t < n; ++t) largest = from[t] > largest ? from[t] : largest;
      for (int64_t t = 0; t < n; ++t) to[t] = Exp(from[t] - largest);
      const float sum = SumOf16Parts(n, [to](int64_t t) { return to[t]; });
      for (int64_t t = 0; t < n; ++t) to[t] = to[t] / sum;
    } else {
      for (int64_t t = 0; t < n; ++t) to[t] = from[t];
    }
    for (int64_t t = n; t < most; ++t) to[t] = 0;
  }
};
// Out [batch, width].
struct WeighedSumAt {
  const float* weight;
  const float* x;
  const int32_t* length;
  int64_t most, width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t b = Quotient(i, width);
    const int64_t n = length[b];
    const float* k = x + b * most * width + (i - b * width);
    float sum = 0;
    for (int64_t t = 0; t < n; ++t, k += width) sum += weight[b * most + t] * *k;
    out[i] = sum;
  }
};
// Gradient of the weight of an element.
struct WeightGradAt {
  const float* x;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dweight;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t b = Quotient(i, most);
    if (i - b * most >= length[b]) {
      dweight[i] = 0;
      return;
    }
    const float* const k = x + i * width;
    const float* const d = dout + b * width;
    dweight[i] = SumOf16Parts(width, [k, d](int64_t w) { return k[w] * d[w]; });
  }
};
// Converts gradients of weights to those of scores for one example, in place.
struct SoftmaxScoresGradAt {
  const float* weight;
  const int32_t* length;
  int64_t most;
  float* grad;
  WEIR_HOST_DEVICE void operator()(int64_t b) const {
    const int64_t n = length[b];
    const float* const w = weight + b * most;
    float* const g = grad + b * most;
    const float sum = SumOf16Parts(n, [w, g](int64_t t) { return w[t] * g[t]; });
    for (int64_t t = 0; t < n; ++t) g[t] = SoftmaxScoreGradient(w[t], g[t], sum);
  }
};
struct WeighedElementGradAt {
  const float* weight;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    dx[i] = at.t < length[at.b] ? weight[at.b * most + at.t] * dout[at.b * width + at.w] : 0.0f;
  }
};

// Position of element t of n.
WEIR_HOST_DEVICE inline int64_t PositionOf(int64_t t, int64_t n, bool from_end) { return from_end ? n - 1 - t : t; }

// Out may be x.
struct AddPositionsAt {
  const float* x;
  const float* w;
  const int32_t* length;
  int64_t most, width;
  bool from_end;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    const int64_t n = length[at.b];
    out[i] = at.t < n ? x[i] + w[PositionOf(at.t, n, from_end) * width + at.w] : 0.0f;
  }
};
// x, with 0 behind the length. Out may be x.
struct ElementsAt {
  const float* x;
  const int32_t* length;
  int64_t most, width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    out[i] = at.t < length[at.b] ? x[i] : 0.0f;
  }
};
// dw [lanes, most, width]: a column of a position adds the gradients of a lane's elements there.
struct PositionGradAt {
  LaneRows examples;
  const int32_t* length;
  const float* dout;
  int64_t most, width;
  bool from_end;
  float* dw;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const PlaceOfElement at(i, most, width);
    const int lane = static_cast<int>(at.b);
    float sum = 0;
    for (int64_t b = examples.begin[lane]; b < examples.begin[lane + 1]; ++b) {
      const int64_t n = length[b];
      if (at.t < n) sum += dout[(b * most + PositionOf(at.t, n, from_end)) * width + at.w];
    }
    dw[i] = sum;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_SEQUENCES_FUNCTORS_H_
