// prelu: out = x where it is above 0, slope * x elsewhere
//
//   X      [B, .., W]  f32
//   Slope  [W] or [1]  f32, for each value of the last dim, or one for all
//   Out    like X      f32
//
// Gradient (prelu_grad): dx = dOut where x is above 0, slope * dOut elsewhere; dSlope = sum of dOut * x where x is not
// above 0, over rows in their order. For one slope a row is first added up in the order of ops/fixed_sum.h.
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/activation_math.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void ByColumn(int64_t rows, int64_t n, const float* x, const float* slope, float* out) {
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Prelu(x[i], slope[i]);
  }
}

WEIR_VECTORIZED void WithOne(int64_t size, const float* x, float slope, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < size; ++i) out[i] = Prelu(x[i], slope);
}

// dx may be dout.
WEIR_VECTORIZED void InputGradientByColumn(int64_t rows, int64_t n, const float* x, const float* slope,
                                           const float* dout, float* dx) {
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n, dx += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) dx[i] = PreluGrad(x[i], slope[i], dout[i]);
  }
}

WEIR_VECTORIZED void InputGradientWithOne(int64_t size, const float* x, float slope, const float* dout, float* dx) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < size; ++i) dx[i] = PreluGrad(x[i], slope, dout[i]);
}

WEIR_VECTORIZED void SlopeGradients(int64_t rows, int64_t n, const float* x, const float* dout, float* sum) {
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n) {
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += PreluSlopeGrad(x[i], dout[i]);
  }
}

WEIR_VECTORIZED float SlopeGradient(int64_t rows, int64_t n, const float* x, const float* dout) {
  float sum = 0;
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n) {
    sum += FixedSum(n, [=](int64_t i) { return PreluSlopeGrad(x[i], dout[i]); });
  }
  return sum;
}

// Rows of X, and their width.
struct Rows {
  int64_t count = 0, width = 0;

  static absl::StatusOr<Rows> Of(const Tensor& x, const Tensor& slope) {
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    if (x.rank() < 2 || x.dim(x.rank() - 1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("X must be [B, .., W], got ", ShapeString(x.dims())));
    }
    RETURN_IF_ERROR(CheckRank("Slope", slope, 1));
    const int64_t width = x.dim(x.rank() - 1);
    RETURN_IF_ERROR(CheckTensor("Slope", slope, {slope.dim(0) == 1 ? 1 : width}));
    return Rows{.count = x.size() / width, .width = width};
  }
};

class PreluKernel : public OpKernel {
 public:
  explicit PreluKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(0), &slope = ctx.input(1);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x, slope));
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, x.dims());
    if (slope.size() == 1) {
      WithOne(x.size(), x.data<float>(), *slope.data<float>(), out->data<float>());
    } else {
      ByColumn(rows.count, rows.width, x.data<float>(), slope.data<float>(), out->data<float>());
    }
    return absl::OkStatus();
  }
};

class PreluGradKernel : public OpKernel {
  enum Input { kX, kSlope, kOutGrad };
  enum Output { kXGrad, kSlopeGrad };

 public:
  explicit PreluGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &x = ctx.input(kX), &slope = ctx.input(kSlope), &dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x, slope));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, x.dims()));
    if (ctx.has_output(kSlopeGrad)) {
      Tensor* const dslope = ctx.output(kSlopeGrad);
      dslope->Resize(v1::FLOAT32, slope.dims());
      std::fill_n(dslope->data<float>(), dslope->size(), 0.0f);
      if (slope.size() == 1) {
        *dslope->data<float>() = SlopeGradient(rows.count, rows.width, x.data<float>(), dout.data<float>());
      } else {
        SlopeGradients(rows.count, rows.width, x.data<float>(), dout.data<float>(), dslope->data<float>());
      }
    }
    // Written last, because it may share the memory of dOut.
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    Tensor* const dx = ctx.output(kXGrad);
    dx->Resize(v1::FLOAT32, x.dims());
    if (slope.size() == 1) {
      InputGradientWithOne(x.size(), x.data<float>(), *slope.data<float>(), dout.data<float>(), dx->data<float>());
    } else {
      InputGradientByColumn(rows.count, rows.width, x.data<float>(), slope.data<float>(), dout.data<float>(),
                            dx->data<float>());
    }
    return absl::OkStatus();
  }
};

absl::Status ExpectSlopes(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const Shape x = ctx.InputShape("X");
  if (x.size() < 2 || x.back() < 1) {
    return ctx.Error(absl::StrCat("X must be [B, .., W] with a known, positive W, got ", ShapeString(x)));
  }
  RETURN_IF_ERROR(ExpectDense(ctx, "Slope"));
  if (ctx.InputShape("Slope") == Shape{1}) return absl::OkStatus();
  return ExpectDims(ctx, "Slope", {x.back()});
}

REGISTER_OP(prelu)
({.type = "prelu",
  .summary = "x where it is above 0, Slope * x elsewhere",
  .inputs = {{"X"}, {"Slope"}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSlopes(ctx));
    SetLike(ctx, "Out", "X");
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"X", "Slope"}, {}, {"Out"}, {"X", "Slope"}),
  .cost = ElementwiseCost(2),
  .elements = LastAxisElements({"Slope"}),
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});
REGISTER_OP(prelu_grad)
({.type = "prelu_grad",
  .summary = "gradients of prelu",
  .inputs = {{"X"}, {"Slope"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "Slope@GRAD", .optional = true}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSlopes(ctx));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", ctx.InputShape("X")));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    if (ctx.OutputCount("Slope@GRAD") > 0) SetLike(ctx, "Slope@GRAD", "Slope");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(4),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(prelu, MakeKernel<PreluKernel>);
REGISTER_KERNEL(prelu_grad, MakeKernel<PreluGradKernel>);

}  // namespace
}  // namespace weir
