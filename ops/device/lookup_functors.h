// Functors of looking rows up and of their gradient.
#ifndef WEIR_OPS_DEVICE_LOOKUP_FUNCTORS_H_
#define WEIR_OPS_DEVICE_LOOKUP_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/device/fours.h"
#include "ops/device/quotient.h"

namespace weir {
namespace device {

// Positions of the rows of groups: one after the other if `stride` is 0; else in columns of a matrix with `stride`
// columns, from column `first` on, with `groups` rows for each example.
struct GroupRows {
  int64_t stride = 0;
  int64_t first = 0;
  int64_t groups = 1;
  WEIR_HOST_DEVICE int64_t Begin(int64_t group, int64_t width) const {
    if (stride == 0) return group * width;
    const int64_t example = Quotient(group, groups);
    return example * stride + first + (group - example * groups) * width;
  }
  bool Fours() const { return stride % 4 == 0 && first % 4 == 0; }
};

// One id a group: out [n, width], or part of a matrix.
struct GatherAt {
  const int32_t* row;
  const float* rows;
  int64_t width;
  float* out;
  GroupRows to = {};
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t at = Quotient(i, width), column = i - at * width;
    out[to.Begin(at, width) + column] = rows[static_cast<int64_t>(row[at]) * width + column];
  }
  bool Fours() const { return width % 4 == 0 && to.Fours() && InFours(rows, out); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const int64_t w = width / 4, at = Quotient(i, w), column = i - at * w;
    StoreFour(out, to.Begin(at, width) / 4 + column, LoadFour(rows, static_cast<int64_t>(row[at]) * w + column));
  }
};

// A row for each place, 0 where row is -1. `weight` may be null.
struct PlaceAt {
  const int32_t* row;
  const float* weight;
  const float* rows;
  int64_t width;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t at = Quotient(i, width);
    float sum = 0;
    if (row[at] >= 0) {
      const float value = rows[static_cast<int64_t>(row[at]) * width + (i - at * width)];
      sum += weight == nullptr ? value : weight[at] * value;
    }
    out[i] = sum;
  }
};

// Group g has values [begin[g], begin[g + 1]); row -1 is padding. `weight` and `divisor` may be null.
struct PoolAt {
  const int32_t* begin;
  const int32_t* row;
  const float* weight;
  const float* divisor;
  const float* rows;
  int64_t width;
  float* out;
  GroupRows to = {};
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t group = Quotient(i, width), column = i - group * width;
    float sum = 0;
    const float d = divisor == nullptr ? 1.0f : divisor[group];
    if (d != 0) {
      for (int32_t v = begin[group]; v < begin[group + 1]; ++v) {
        if (row[v] < 0) continue;
        const float value = rows[static_cast<int64_t>(row[v]) * width + column];
        sum += weight == nullptr ? value : weight[v] * value;
      }
      if (d != 1) sum /= d;
    }
    out[to.Begin(group, width) + column] = sum;
  }
  bool Fours() const { return width % 4 == 0 && to.Fours() && InFours(rows, out); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const int64_t w = width / 4, group = Quotient(i, w), column = i - group * w;
    Float4 sum = {};
    const float d = divisor == nullptr ? 1.0f : divisor[group];
    if (d != 0) {
      for (int32_t v = begin[group]; v < begin[group + 1]; ++v) {
        if (row[v] < 0) continue;
        const Float4 value = LoadFour(rows, static_cast<int64_t>(row[v]) * w + column);
        for (int k = 0; k < 4; ++k) sum.v[k] += weight == nullptr ? value.v[k] : weight[v] * value.v[k];
      }
      for (int k = 0; k < 4; ++k) {
        if (d != 1) sum.v[k] /= d;
      }
    }
    StoreFour(out, to.Begin(group, width) / 4 + column, sum);
  }
};

// The gradient of a row is the sum over the values that are it, in their order in the batch, cut into runs of kRun: a
// row that a whole batch has is many runs, and no thread has more than one. Runs of one row lie together. No atomics.
inline constexpr int64_t kRun = 32;

// Run r has entries [begin[r], begin[r + 1]) of `group` and `weight`; it is all of row to[r] when that is not negative,
// else run -1 - to[r] of `partial`. `weight` and `divisor` may be null.
struct SegmentAt {
  const int32_t* begin;
  const int32_t* to;
  const int32_t* group;
  const float* weight;
  const float* divisor;
  const float* dout;
  int64_t width;
  float* grad;
  float* partial;
  GroupRows from_rows = {};
  WEIR_HOST_DEVICE float Term(int32_t entry, int64_t column) const {
    const float from = dout[from_rows.Begin(group[entry], width) + column];
    const float w = weight == nullptr ? 1.0f : weight[entry];
    const float d = divisor == nullptr ? 1.0f : divisor[group[entry]];
    if (w == 1 && d == 1) return from;
    // d = 0: the output was the constant zero.
    return d == 0 ? 0.0f : w * (from / d);
  }
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t run = Quotient(i, width), column = i - run * width;
    float sum = Term(begin[run], column);
    for (int32_t entry = begin[run] + 1; entry < begin[run + 1]; ++entry) sum += Term(entry, column);
    const int32_t at = to[run];
    if (at >= 0) {
      grad[static_cast<int64_t>(at) * width + column] = sum;
    } else {
      partial[static_cast<int64_t>(-1 - at) * width + column] = sum;
    }
  }
};

// Row row[i] is the sum of runs [begin[i], begin[i + 1]) of `partial`.
struct JoinRuns {
  using Sum = float;
  const int32_t* begin;
  const int32_t* row;
  const float* partial;
  int64_t width;
  float* grad;
  WEIR_HOST_DEVICE int64_t Terms(int64_t o) const { return begin[o / width + 1] - begin[o / width]; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    return partial[(begin[o / width] + k) * width + o % width];
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const {
    grad[static_cast<int64_t>(row[o / width]) * width + o % width] = sum;
  }
};

// Sum s has terms [begin[s], begin[s + 1]), at least one: row[t] of x[input[t]], added in their order.
struct AddRowsAt {
  static constexpr int kMost = 32;
  const int32_t* begin;
  const int32_t* input;
  const int32_t* row;
  const float* x[kMost];
  int64_t width;
  float* out;
  WEIR_HOST_DEVICE float Term(int32_t t, int64_t column) const {
    return x[input[t]][static_cast<int64_t>(row[t]) * width + column];
  }
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t s = Quotient(i, width), column = i - s * width;
    float sum = Term(begin[s], column);
    for (int32_t t = begin[s] + 1; t < begin[s + 1]; ++t) sum += Term(t, column);
    out[i] = sum;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LOOKUP_FUNCTORS_H_
