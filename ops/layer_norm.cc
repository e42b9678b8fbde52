// layer_norm: every row of X with mean 0 and variance 1, then scaled and shifted by column:
//   out = (x - mean) * inverse * scale + shift,  inverse = 1 / sqrt(variance + epsilon)
//
//   X             [B, .., W]  f32; a row is the W values of the last dim
//   Scale, Shift  [W]         f32
//   Out           like X      f32
//   Mean          [B, .., 1]  f32, of each row
//   Inverse       [B, .., 1]  f32; Mean and Inverse are kept for the gradient
//   epsilon float > 0
//
// Sums over a row are in the order of ops/fixed_sum.h; the variance is taken around the mean in a second pass.
//
// Gradient (layer_norm_grad), with norm = (x - mean) * inverse and dnorm = dOut * scale:
//   dShift = sum of dOut, dScale = sum of dOut * norm, both over rows in their order;
//   dX = inverse * (dnorm - mean of dnorm - norm * mean of dnorm * norm), means over the row.
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/layer_norm_math.h"
#include "ops/row_statistics.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void NormaliseRows(int64_t rows, int64_t n, float epsilon, const float* x, const float* scale,
                                   const float* shift, float* mean, float* inverse, float* out) {
  const float count = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, out += n) {
    const float middle = FixedSum(n, [x](int64_t i) { return x[i]; }) / count;
    const float variance = FixedSum(n, [=](int64_t i) { return (x[i] - middle) * (x[i] - middle); }) / count;
    const float factor = InverseOfDeviation(variance, epsilon);
    mean[r] = middle;
    inverse[r] = factor;
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) out[i] = Normalised(x[i], middle, factor) * scale[i] + shift[i];
  }
}

WEIR_VECTORIZED void SumProducts(int64_t rows, int64_t n, const float* x, const float* mean, const float* inverse,
                                 const float* dout, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n) {
    const float middle = mean[r], factor = inverse[r];
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += dout[i] * Normalised(x[i], middle, factor);
  }
}

// dx may be dout.
WEIR_VECTORIZED void InputGradient(int64_t rows, int64_t n, const float* x, const float* mean, const float* inverse,
                                   const float* scale, const float* dout, float* dx) {
  const float count = static_cast<float>(n);
  for (int64_t r = 0; r < rows; ++r, x += n, dout += n, dx += n) {
    const float middle = mean[r], factor = inverse[r];
    const float sum = FixedSum(n, [=](int64_t i) { return dout[i] * scale[i]; }) / count;
    const float products =
        FixedSum(n, [=](int64_t i) { return dout[i] * scale[i] * Normalised(x[i], middle, factor); }) / count;
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) {
      dx[i] = NormalisedInputGradient(dout[i] * scale[i], Normalised(x[i], middle, factor), factor, sum, products);
    }
  }
}

// Rows of a run, and the dims of what is measured of each.
struct Rows {
  int64_t count = 0, width = 0;
  Shape measured;

  static absl::StatusOr<Rows> Of(const Tensor& x) {
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    if (x.rank() < 2 || x.dim(x.rank() - 1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("X must be [B, .., W], got ", ShapeString(x.dims())));
    }
    Rows rows = {.width = x.dim(x.rank() - 1), .measured = Shape(x.dims().begin(), x.dims().end())};
    rows.measured.back() = 1;
    rows.count = x.size() / rows.width;
    return rows;
  }
};

class LayerNormKernel : public OpKernel {
  enum Input { kX, kScale, kShift };
  enum Output { kOut, kMean, kInverse };

 public:
  explicit LayerNormKernel(const KernelInit& init) : epsilon_(static_cast<float>(init.attrs.Float("epsilon"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x));
    RETURN_IF_ERROR(CheckTensor("Scale", ctx.input(kScale), {rows.width}));
    RETURN_IF_ERROR(CheckTensor("Shift", ctx.input(kShift), {rows.width}));
    ctx.output(kOut)->Resize(v1::FLOAT32, x.dims());
    for (const int slot : {kMean, kInverse}) ctx.output(slot)->Resize(v1::FLOAT32, rows.measured);
    NormaliseRows(rows.count, rows.width, epsilon_, x.data<float>(), ctx.input(kScale).data<float>(),
                  ctx.input(kShift).data<float>(), ctx.output(kMean)->data<float>(),
                  ctx.output(kInverse)->data<float>(), ctx.output(kOut)->data<float>());
    return absl::OkStatus();
  }

 private:
  const float epsilon_;
};

class LayerNormGradKernel : public OpKernel {
  enum Input { kX, kScale, kMean, kInverse, kOutGrad };
  enum Output { kXGrad, kScaleGrad, kShiftGrad };

 public:
  explicit LayerNormGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const Rows rows, Rows::Of(x));
    RETURN_IF_ERROR(CheckTensor("Scale", ctx.input(kScale), {rows.width}));
    RETURN_IF_ERROR(CheckTensor("Mean", ctx.input(kMean), rows.measured));
    RETURN_IF_ERROR(CheckTensor("Inverse", ctx.input(kInverse), rows.measured));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, x.dims()));
    const float* const mean = ctx.input(kMean).data<float>();
    const float* const inverse = ctx.input(kInverse).data<float>();
    if (ctx.has_output(kScaleGrad)) {
      ctx.output(kScaleGrad)->Resize(v1::FLOAT32, {rows.width});
      SumProducts(rows.count, rows.width, x.data<float>(), mean, inverse, dout.data<float>(),
                  ctx.output(kScaleGrad)->data<float>());
    }
    if (ctx.has_output(kShiftGrad)) {
      ctx.output(kShiftGrad)->Resize(v1::FLOAT32, {rows.width});
      SumColumns(rows.count, rows.width, dout.data<float>(), ctx.output(kShiftGrad)->data<float>());
    }
    // Written last, because it may share the memory of dOut.
    if (ctx.has_output(kXGrad)) {
      ctx.output(kXGrad)->Resize(v1::FLOAT32, x.dims());
      InputGradient(rows.count, rows.width, x.data<float>(), mean, inverse, ctx.input(kScale).data<float>(),
                    dout.data<float>(), ctx.output(kXGrad)->data<float>());
    }
    return absl::OkStatus();
  }
};

// Sets the dims of X, and of what is measured of its rows.
absl::Status ExpectRows(const InferContext& ctx, Shape* x, Shape* measured) {
  // Check epsilon as float32, the type that the kernels compute with.
  const double epsilon = ctx.attrs().Float("epsilon");
  if (!(static_cast<float>(epsilon) > 0 && std::isfinite(static_cast<float>(epsilon)))) {
    return ctx.Error(absl::StrCat("epsilon must be positive, got ", epsilon));
  }
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  *x = ctx.InputShape("X");
  if (x->size() < 2 || x->back() < 1) {
    return ctx.Error(absl::StrCat("X must be [B, .., W] with a known, positive W, got ", ShapeString(*x)));
  }
  *measured = *x;
  measured->back() = 1;
  return ExpectDims(ctx, "Scale", {x->back()});
}

CostRule LayerNormCost(double flops, double passes) {
  return [=](InferContext& ctx) {
    const double elements = Elements(ctx.Input("X"));
    return Cost{.flops = flops * elements, .bytes = 4 * passes * elements};
  };
}

REGISTER_OP(layer_norm)
({.type = "layer_norm",
  .summary = "(X - mean) / sqrt(variance + epsilon) * Scale + Shift, of each row",
  .inputs = {{"X"}, {"Scale"}, {"Shift"}},
  .outputs = {{"Out"}, {"Mean"}, {"Inverse"}},
  .attrs = {FloatAttr("epsilon", 1e-5)},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape x, measured;
    RETURN_IF_ERROR(ExpectRows(ctx, &x, &measured));
    RETURN_IF_ERROR(ExpectDims(ctx, "Shift", {x.back()}));
    SetLike(ctx, "Out", "X");
    for (const char* slot : {"Mean", "Inverse"}) ctx.SetOutput(slot, measured);
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    for (const char* slot : {"Mean", "Inverse"}) {
      if (ctx.OutputGrad(slot).empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("layer_norm: ", slot, " has no gradient of its own; only Out may be used by the model"));
    }
    return MakeGradOp(ctx, {"X", "Scale"}, {"Mean", "Inverse"}, {"Out"}, {"X", "Scale", "Shift"});
  },
  .cost = LayerNormCost(8, 3),
  .elements = LastAxisElements({"Scale", "Shift"})});
REGISTER_OP(layer_norm_grad)
({.type = "layer_norm_grad",
  .summary = "gradients of layer_norm",
  .inputs = {{"X"}, {"Scale"}, {"Mean"}, {"Inverse"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "Scale@GRAD", .optional = true},
              {.name = "Shift@GRAD", .optional = true}},
  .attrs = {FloatAttr("epsilon", 1e-5)},
  .shape = [](InferContext& ctx) -> absl::Status {
    Shape x, measured;
    RETURN_IF_ERROR(ExpectRows(ctx, &x, &measured));
    for (const char* slot : {"Mean", "Inverse"}) RETURN_IF_ERROR(ExpectDims(ctx, slot, measured));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", x));
    if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
    for (const char* slot : {"Scale@GRAD", "Shift@GRAD"}) {
      if (ctx.OutputCount(slot) > 0) ctx.SetOutput(slot, {x.back()});
    }
    return absl::OkStatus();
  },
  .cost = LayerNormCost(16, 7),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(layer_norm, MakeKernel<LayerNormKernel>);
REGISTER_KERNEL(layer_norm_grad, MakeKernel<LayerNormGradKernel>);

}  // namespace
}  // namespace weir
