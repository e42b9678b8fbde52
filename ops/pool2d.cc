// pool2d: the greatest element, or the mean, of each window of a picture
//
//   X    [B, C, H, W]    f32
//   Out  [B, C, H', W']  f32, H' = (H + 2 padding - kernel) / stride + 1
//   type: max or average
//   kernel, stride, padding: two ints, of height and width; padding is below the kernel
//
// Only elements that are there count: padding is never the greatest, and an average is over those that are not padding.
// NaN in a window makes its maximum NaN.
//
// Gradient (pool2d_grad). max: dOut goes to the first of the greatest elements, row by row (with NaN to the last NaN).
// average: to each element that is there, divided by their number. An element in several windows adds them up in the
// order of windows.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"
#include "ops/windows.h"

namespace weir {
namespace {

// Returns true if v replaces the greatest value so far; a NaN always does.
inline bool Greater(float v, float best) { return (v > best) | (v != v); }

struct Pool {
  int64_t pictures = 0;  // examples times channels
  WindowAxis height, width;
  int64_t size() const { return height.size * width.size; }
  int64_t windows() const { return height.count * width.count; }
  // Returns true for windows of 2 x 2 that lie side by side.
  bool halves() const {
    const auto half = [](const WindowAxis& axis) { return axis.kernel == 2 && axis.stride == 2 && axis.padding == 0; };
    return half(height) && half(width);
  }
};

// Returns the index of the greatest element of window (i, j).
inline int64_t GreatestOf(const Pool& p, int64_t i, int64_t j, const float* x) {
  int64_t at = p.height.Begin(i) * p.width.size + p.width.Begin(j);
  for (int64_t h = p.height.Begin(i); h < p.height.End(i); ++h) {
    for (int64_t w = p.width.Begin(j); w < p.width.End(j); ++w) {
      const int64_t here = h * p.width.size + w;
      if (Greater(x[here], x[at])) at = here;
    }
  }
  return at;
}

void MaxForward(const Pool& p, const float* x, float* out) {
  for (int64_t i = 0; i < p.height.count; ++i) {
    for (int64_t j = 0; j < p.width.count; ++j) *out++ = x[GreatestOf(p, i, j, x)];
  }
}

void MaxBackward(const Pool& p, const float* x, const float* dout, float* dx) {
  std::fill_n(dx, p.size(), 0.0f);
  for (int64_t i = 0; i < p.height.count; ++i) {
    for (int64_t j = 0; j < p.width.count; ++j) dx[GreatestOf(p, i, j, x)] += *dout++;
  }
}

// Windows of 2 x 2 side by side are handled kChunk at a time. Rows are often shorter than a chunk: it then continues
// behind the end of its row, and the next row overwrites what it wrote there. At the end of memory windows are handled
// one by one.
constexpr int64_t kChunk = 16;

inline float GreatestOfHalves(const float* x, const float* below) {
  float best = x[0];
  best = Greater(x[1], best) ? x[1] : best;
  best = Greater(below[0], best) ? below[0] : best;
  return Greater(below[1], best) ? below[1] : best;
}

inline __attribute__((always_inline)) void MaxOfHalves(int64_t n, const float* __restrict x,
                                                       const float* __restrict below, float* __restrict out) {
  for (int64_t j = 0; j < n; ++j) out[j] = GreatestOfHalves(x + 2 * j, below + 2 * j);
}

inline __attribute__((always_inline)) void BackOfHalves(int64_t n, const float* __restrict x,
                                                        const float* __restrict below, const float* __restrict dout,
                                                        float* dx, float* dbelow) {
  // Elements of the windows: a holds the first of each window in reading order, d the last.
  float a[kChunk], b[kChunk], c[kChunk], d[kChunk];
  for (int64_t j = 0; j < n; ++j) {
    a[j] = x[2 * j];
    b[j] = x[2 * j + 1];
    c[j] = below[2 * j];
    d[j] = below[2 * j + 1];
  }
  for (int64_t j = 0; j < n; ++j) {
    // Each takes the place of the greatest before it, or does not.
    const float ab = Greater(b[j], a[j]) ? b[j] : a[j];
    const float abc = Greater(c[j], ab) ? c[j] : ab;
    const float to_d = Greater(d[j], abc) ? dout[j] : 0.0f, to_abc = Greater(d[j], abc) ? 0.0f : dout[j];
    const float to_c = Greater(c[j], ab) ? to_abc : 0.0f, to_ab = Greater(c[j], ab) ? 0.0f : to_abc;
    const float to_b = Greater(b[j], a[j]) ? to_ab : 0.0f, to_a = Greater(b[j], a[j]) ? 0.0f : to_ab;
    a[j] = to_a;
    b[j] = to_b;
    c[j] = to_c;
    d[j] = to_d;
  }
  // Write the lower row after the upper one, whose chunk may run into it.
  for (int64_t j = 0; j < n; ++j) {
    dx[2 * j] = a[j];
    dx[2 * j + 1] = b[j];
  }
  for (int64_t j = 0; j < n; ++j) {
    dbelow[2 * j] = c[j];
    dbelow[2 * j + 1] = d[j];
  }
}

// Pools one picture. Chunks may read up to x_end and write up to out_end.
WEIR_VECTORIZED void MaxForwardOfHalves(const Pool& p, const float* x, const float* x_end, float* out,
                                        const float* out_end) {
  const int64_t width = p.width.size, count = p.width.count;
  for (int64_t i = 0; i < p.height.count; ++i, x += 2 * width, out += count) {
    const float* below = x + width;
    if (count < kChunk && (x_end - below < 2 * kChunk || out_end - out < kChunk)) {
      MaxOfHalves(count, x, below, out);
      continue;
    }
    // The last chunk of a long row overlaps the one before it.
    for (int64_t j = 0; j < count; j += kChunk) {
      const int64_t at = count > kChunk ? std::min(j, count - kChunk) : 0;
      MaxOfHalves(kChunk, x + 2 * at, below + 2 * at, out + at);
    }
  }
}

WEIR_VECTORIZED void MaxBackwardOfHalves(const Pool& p, const float* x, const float* x_end, const float* dout,
                                         const float* dout_end, float* dx) {
  const int64_t width = p.width.size, count = p.width.count;
  for (int64_t i = 0; i < p.height.count; ++i, x += 2 * width, dx += 2 * width, dout += count) {
    const float* below = x + width;
    float* dbelow = dx + width;
    if (count < kChunk && (x_end - below < 2 * kChunk || dout_end - dout < kChunk)) {
      BackOfHalves(count, x, below, dout, dx, dbelow);
    } else {
      for (int64_t j = 0; j < count; j += kChunk) {
        const int64_t at = count > kChunk ? std::min(j, count - kChunk) : 0;
        BackOfHalves(kChunk, x + 2 * at, below + 2 * at, dout + at, dx + 2 * at, dbelow + 2 * at);
      }
    }
    // Elements in no window, an odd last column or row, have gradient 0.
    if (2 * count < width) dx[2 * count] = dbelow[2 * count] = 0;
  }
  std::fill_n(dx, (p.height.size - 2 * p.height.count) * width, 0.0f);
}

// Returns the number of elements of window (i, j) within the picture.
inline float CountOf(const Pool& p, int64_t i, int64_t j) {
  return static_cast<float>((p.height.End(i) - p.height.Begin(i)) * (p.width.End(j) - p.width.Begin(j)));
}

void AverageForward(const Pool& p, const float* x, float* out) {
  for (int64_t i = 0; i < p.height.count; ++i) {
    for (int64_t j = 0; j < p.width.count; ++j) {
      float sum = 0;
      for (int64_t h = p.height.Begin(i); h < p.height.End(i); ++h) {
        for (int64_t w = p.width.Begin(j); w < p.width.End(j); ++w) sum += x[h * p.width.size + w];
      }
      *out++ = sum / CountOf(p, i, j);
    }
  }
}

void AverageBackward(const Pool& p, const float* dout, float* dx) {
  std::fill_n(dx, p.size(), 0.0f);
  for (int64_t i = 0; i < p.height.count; ++i) {
    for (int64_t j = 0; j < p.width.count; ++j) {
      const float share = *dout++ / CountOf(p, i, j);
      for (int64_t h = p.height.Begin(i); h < p.height.End(i); ++h) {
        for (int64_t w = p.width.Begin(j); w < p.width.End(j); ++w) dx[h * p.width.size + w] += share;
      }
    }
  }
}

absl::StatusOr<Pool> MakePool(absl::Span<const int64_t> x, const PoolSettings& settings) {
  Pool p;
  p.pictures = x[0] < 0 ? -1 : x[0] * x[1];
  ASSIGN_OR_RETURN(const WindowAxes axes, MakePoolAxes(x, settings));
  p.height = axes.height;
  p.width = axes.width;
  return p;
}

class PoolKernel : public OpKernel {
 public:
  explicit PoolKernel(PoolSettings settings) : settings_(std::move(settings)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckRank("X", x, 4));
    ASSIGN_OR_RETURN(const Pool p, MakePool(x.dims(), settings_));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {x.dim(0), x.dim(1), p.height.count, p.width.count});
    const float* from = x.data<float>();
    float* to = out->data<float>();
    const float *const from_end = from + x.size(), *const to_end = to + out->size();
    for (int64_t i = 0; i < p.pictures; ++i, from += p.size(), to += p.windows()) {
      if (settings_.average) {
        AverageForward(p, from, to);
      } else if (p.halves()) {
        MaxForwardOfHalves(p, from, from_end, to, to_end);
      } else {
        MaxForward(p, from, to);
      }
    }
    return absl::OkStatus();
  }

 private:
  const PoolSettings settings_;
};

// Inputs X, Out@GRAD; output X@GRAD.
class PoolGradKernel : public OpKernel {
 public:
  explicit PoolGradKernel(PoolSettings settings) : settings_(std::move(settings)) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckRank("X", x, 4));
    ASSIGN_OR_RETURN(const Pool p, MakePool(x.dims(), settings_));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {x.dim(0), x.dim(1), p.height.count, p.width.count}));
    Tensor* const dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, x.dims());
    const float* from = x.data<float>();
    const float* grad = dout.data<float>();
    float* to = dx->data<float>();
    const float *const from_end = from + x.size(), *const grad_end = grad + dout.size();
    for (int64_t i = 0; i < p.pictures; ++i, from += p.size(), grad += p.windows(), to += p.size()) {
      if (settings_.average) {
        AverageBackward(p, grad, to);
      } else if (p.halves()) {
        MaxBackwardOfHalves(p, from, from_end, grad, grad_end, to);
      } else {
        MaxBackward(p, from, grad, to);
      }
    }
    return absl::OkStatus();
  }

 private:
  const PoolSettings settings_;
};

absl::StatusOr<Shape> InferPool(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectRank(ctx, "X", 4));
  const absl::StatusOr<PoolSettings> settings = ReadPoolSettings(ctx.attrs());
  if (!settings.ok()) return ctx.Error(ToStd(settings.status().message()));
  const Shape x = ctx.InputShape("X");
  const absl::StatusOr<Pool> pool = MakePool(x, *settings);
  if (!pool.ok()) return ctx.Error(ToStd(pool.status().message()));
  return Shape{x[0], x[1], pool->height.count, pool->width.count};
}

// Counts a comparison or an addition per element of a window.
Cost PoolCost(InferContext& ctx) {
  const absl::StatusOr<Shape> out = InferPool(ctx);
  if (!out.ok()) return {};
  double windows = 1, kernel = 1;
  for (const int64_t d : *out) windows *= static_cast<double>(std::max<int64_t>(1, d));
  for (const int64_t k : ctx.attrs().Ints("kernel")) kernel *= static_cast<double>(k);
  return {.flops = windows * kernel, .bytes = 4 * (Elements(ctx.Input("X")) + windows)};
}

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakePoolKernel(const KernelInit& init) {
  ASSIGN_OR_RETURN(PoolSettings settings, ReadPoolSettings(init.attrs));
  return std::unique_ptr<OpKernel>(new Kernel(std::move(settings)));
}

REGISTER_OP(pool2d)
({.type = "pool2d",
  .summary = "the greatest element or the mean of each window of a picture [B, C, H, W]",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {Required(StringAttr("type", "")), Required(IntsAttr("kernel")), Required(IntsAttr("stride")),
            Required(IntsAttr("padding"))},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const Shape out, InferPool(ctx));
    ctx.SetOutput("Out", out);
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X"}, {}, {"Out"}, {"X"}),
  .cost = PoolCost});
REGISTER_OP(pool2d_grad)
({.type = "pool2d_grad",
  .summary = "gives a window's gradient to its greatest element, or to all",
  .inputs = {{"X"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .attrs = {Required(StringAttr("type", "")), Required(IntsAttr("kernel")), Required(IntsAttr("stride")),
            Required(IntsAttr("padding"))},
  .shape = [](InferContext& ctx) -> absl::Status {
    ASSIGN_OR_RETURN(const Shape out, InferPool(ctx));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
    SetLike(ctx, "X@GRAD", "X");
    return absl::OkStatus();
  },
  .cost = PoolCost});

REGISTER_KERNEL(pool2d, MakePoolKernel<PoolKernel>);
REGISTER_KERNEL(pool2d_grad, MakePoolKernel<PoolGradKernel>);

}  // namespace
}  // namespace weir
