// Functors of operators that work element by element, and of those that sum what broadcasting has repeated.
#ifndef WEIR_OPS_DEVICE_ELEMENTWISE_FUNCTORS_H_
#define WEIR_OPS_DEVICE_ELEMENTWISE_FUNCTORS_H_

#include <cstdint>

#include "ops/activation_math.h"
#include "ops/device/fours.h"
#include "ops/device/index_map.h"
#include "ops/device/lane_rows.h"
#include "ops/device/quotient.h"
#include "ops/elementwise_math.h"

namespace weir {
namespace device {

struct ReluFn {
  static WEIR_HOST_DEVICE float Out(float x) { return Relu(x); }
  static WEIR_HOST_DEVICE float Grad(float y, float dy) { return ReluGrad(y, dy); }
};
struct SigmoidFn {
  static WEIR_HOST_DEVICE float Out(float x) { return Sigmoid(x); }
  static WEIR_HOST_DEVICE float Grad(float y, float dy) { return SigmoidGrad(y, dy); }
};
struct ExpFn {
  static WEIR_HOST_DEVICE float Out(float x) { return Exp(x); }
  static WEIR_HOST_DEVICE float Grad(float y, float dy) { return ExpGrad(y, dy); }
};
struct TanhFn {
  static WEIR_HOST_DEVICE float Out(float x) { return Tanh(x); }
  static WEIR_HOST_DEVICE float Grad(float y, float dy) { return TanhGrad(y, dy); }
};
struct SquareFn {
  static WEIR_HOST_DEVICE float Out(float x) { return Square(x); }
  static WEIR_HOST_DEVICE float Grad(float x, float dy) { return SquareGrad(x, dy); }
};
struct IdentityFn {
  static WEIR_HOST_DEVICE float Out(float x) { return x; }
};

template <typename Fn>
struct UnaryAt {
  const float* x;
  float* y;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { y[i] = Fn::Out(x[i]); }
  bool Fours() const { return InFours(x, y); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    Float4 four = LoadFour(x, i);
    for (float& v : four.v) v = Fn::Out(v);
    StoreFour(y, i, four);
  }
};
// `saved` is y, or x for square.
template <typename Fn>
struct UnaryGradAt {
  const float* saved;
  const float* dy;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { dx[i] = Fn::Grad(saved[i], dy[i]); }
  bool Fours() const { return InFours(saved, dy, dx); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const Float4 s = LoadFour(saved, i);
    Float4 four = LoadFour(dy, i);
    for (int k = 0; k < 4; ++k) four.v[k] = Fn::Grad(s.v[k], four.v[k]);
    StoreFour(dx, i, four);
  }
};

// y = f(y + bias), rows of n.
template <typename Fn>
struct BiasAt {
  const float* bias;
  int64_t n;
  float* y;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { y[i] = Fn::Out(y[i] + bias[i - Quotient(i, n) * n]); }
  bool Fours() const { return n % 4 == 0 && InFours(bias, y); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const Float4 b = LoadFour(bias, i - Quotient(i, n / 4) * (n / 4));
    Float4 four = LoadFour(y, i);
    for (int k = 0; k < 4; ++k) four.v[k] = Fn::Out(four.v[k] + b.v[k]);
    StoreFour(y, i, four);
  }
};

struct ScaleAt {
  const float* x;
  float scale, bias;
  float* y;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { y[i] = Scale(x[i], scale, bias); }
  bool Fours() const { return InFours(x, y); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    Float4 four = LoadFour(x, i);
    for (float& v : four.v) v = Scale(v, scale, bias);
    StoreFour(y, i, four);
  }
};
struct MultiplyAt {
  const float* x;
  float factor;
  float* y;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { y[i] = x[i] * factor; }
  bool Fours() const { return InFours(x, y); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    Float4 four = LoadFour(x, i);
    for (float& v : four.v) v = v * factor;
    StoreFour(y, i, four);
  }
};
struct ProductAt {
  const float* x;
  const float* y;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = x[i] * y[i]; }
  bool Fours() const { return InFours(x, y, out); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const Float4 b = LoadFour(y, i);
    Float4 four = LoadFour(x, i);
    for (int k = 0; k < 4; ++k) four.v[k] = four.v[k] * b.v[k];
    StoreFour(out, i, four);
  }
};

struct FillAt {
  float value;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = value; }
  bool Fours() const { return InFours(out); }
  WEIR_HOST_DEVICE void Four(int64_t i) const { StoreFour(out, i, {{value, value, value, value}}); }
};
// Sets every element of lane l to value[l], or to from[l] / divisor[l].
struct FillLanesAt {
  LaneRows elements;
  float value[kMostLanes];
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = value[elements.LaneOf(i)]; }
};
struct SpreadLanesAt {
  LaneRows elements;
  const float* from;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int lane = elements.LaneOf(i);
    out[i] = from[lane] / static_cast<float>(elements.count(lane));
  }
};

// Adds in the order given.
struct SumAt {
  static constexpr int kMost = 32;
  int count;
  const float* x[kMost];
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    float sum = x[0][i];
    for (int k = 1; k < count; ++k) sum += x[k][i];
    out[i] = sum;
  }
  bool Fours() const {
    bool all = InFours(out);
    for (int k = 0; k < count; ++k) all = all && InFours(x[k]);
    return all;
  }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    Float4 sum = LoadFour(x[0], i);
    for (int k = 1; k < count; ++k) {
      const Float4 four = LoadFour(x[k], i);
      for (int e = 0; e < 4; ++e) sum.v[e] += four.v[e];
    }
    StoreFour(out, i, sum);
  }
};

// y[map(i)] stands against x[i].
template <typename Math>
struct BinaryAt {
  const float* x;
  const float* y;
  IndexMap map;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = Math::Out(x[i], y[map.at(i)]); }
};
template <typename Math>
struct BinaryAlikeAt {
  const float* x;
  const float* y;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = Math::Out(x[i], y[i]); }
  bool Fours() const { return InFours(x, y, out); }
  WEIR_HOST_DEVICE void Four(int64_t i) const {
    const Float4 b = LoadFour(y, i);
    Float4 four = LoadFour(x, i);
    for (int k = 0; k < 4; ++k) four.v[k] = Math::Out(four.v[k], b.v[k]);
    StoreFour(out, i, four);
  }
};
template <typename Math>
struct BinaryDxAt {
  const float* x;
  const float* y;
  const float* dout;
  IndexMap map;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { dx[i] = Math::Dx(x[i], y[map.at(i)], dout[i]); }
};
template <typename Math>
struct BinaryDyAt {
  const float* x;
  const float* y;
  const float* dout;
  float* dy;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { dy[i] = Math::Dy(x[i], y[i], dout[i]); }
};
// dy[o]: the terms of y's element o lie in x from kept(o) on, at repeated(k).
template <typename Math>
struct BinaryDySum {
  using Sum = float;
  const float* x;
  const float* y;
  const float* dout;
  IndexMap kept, repeated;
  int64_t terms;
  float* dy;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return terms; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const {
    const int64_t i = kept.at(o) + repeated.at(k);
    return Math::Dy(x[i], y[o], dout[i]);
  }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { dy[o] = sum; }
};

// Functors of reduce_sum and its gradient, with fields as in BinaryDySum.
struct SumOver {
  using Sum = float;
  const float* x;
  IndexMap kept, repeated;
  int64_t terms;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t) const { return terms; }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const { return x[kept.at(o) + repeated.at(k)]; }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { out[o] = sum; }
};
struct RepeatAt {
  const float* dout;
  IndexMap map;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { dx[i] = dout[map.at(i)]; }
};

// Mean of each lane, in double; 0 of nothing.
struct LaneMean {
  using Sum = double;
  const float* x;
  LaneRows elements;
  float* out;
  WEIR_HOST_DEVICE int64_t Terms(int64_t lane) const { return elements.count(static_cast<int>(lane)); }
  WEIR_HOST_DEVICE double Term(int64_t lane, int64_t k) const { return x[elements.begin[lane] + k]; }
  WEIR_HOST_DEVICE void Store(int64_t lane, double sum) const {
    const int64_t n = elements.count(static_cast<int>(lane));
    out[lane] = n == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(n));
  }
};

// Stretches of `length` floats, `stride` apart from `first` on in `whole`; without gaps in `piece`.
struct PieceAt {
  float* whole;
  float* piece;
  int64_t stride, first, length;
  bool into_whole;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t stretch = Quotient(i, length);
    const int64_t at = stretch * stride + first + (i - stretch * length);
    if (into_whole) {
      whole[at] = piece[i];
    } else {
      piece[i] = whole[at];
    }
  }
};

// The lane tree: adds x[right] into x[left], step by step; the sum ends in the first.
struct TreeAt {
  int lanes;
  const float* x[kMostLanes];
  int adds;
  uint8_t left[kMostLanes], right[kMostLanes];
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    float sum[kMostLanes];
    for (int l = 0; l < lanes; ++l) sum[l] = x[l][i];
    for (int a = 0; a < adds; ++a) sum[left[a]] += sum[right[a]];
    out[i] = sum[0];
  }
};

// Sums of the columns of each lane's rows, x [rows, n] -> [lanes, n], in two steps: runs of rows, then runs. How long a
// run is, is a function of the lane's rows alone.
inline constexpr int64_t kShortestRun = 32;
inline constexpr int64_t kMostRuns = 256;
WEIR_HOST_DEVICE inline int64_t RunRows(int64_t rows) {
  const int64_t longest = (rows + kMostRuns - 1) / kMostRuns;
  return longest < kShortestRun ? kShortestRun : longest;
}
WEIR_HOST_DEVICE inline int64_t Runs(int64_t rows) { return (rows + RunRows(rows) - 1) / RunRows(rows); }

struct ColumnRunAt {
  const float* x;
  int64_t n;
  LaneRows rows;
  int64_t runs;    // room for each lane
  float* partial;  // [lanes, runs, n]
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % n, run = i / n % runs;
    const int lane = static_cast<int>(i / n / runs);
    const int64_t run_rows = RunRows(rows.count(lane));
    int64_t row = rows.begin[lane] + run * run_rows;
    int64_t end = row + run_rows;
    end = end < rows.begin[lane + 1] ? end : rows.begin[lane + 1];
    float sum = 0;
    for (; row < end; ++row) sum += x[row * n + column];
    partial[i] = sum;
  }
};
struct ColumnSum {
  using Sum = float;
  const float* partial;
  int64_t n;
  LaneRows rows;
  int64_t runs;
  float* out;  // [lanes, n]
  WEIR_HOST_DEVICE int64_t Terms(int64_t o) const { return Runs(rows.count(static_cast<int>(o / n))); }
  WEIR_HOST_DEVICE float Term(int64_t o, int64_t k) const { return partial[(o / n * runs + k) * n + o % n]; }
  WEIR_HOST_DEVICE void Store(int64_t o, float sum) const { out[o] = sum; }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_ELEMENTWISE_FUNCTORS_H_
