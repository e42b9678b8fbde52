// fc: a fully connected layer, Out = f(X * W + Bias).
//
//   X     [B, K..]  f32, product of K.. is K
//   W     [K, N]    f32
//   Bias? [N]       f32
//   Out   [B, N]    f32
//   activation: identity, relu, sigmoid or tanh
//   row_dims  int = 1   with more, X [B, .., K..] has that many dims of rows, and so has Out [B, .., N]
//
// Gradient (fc_grad), with dPre = dOut * f' taken from Out:
//   dX = dPre * W^T, dW = X^T * dPre, dBias = sum of dPre over examples, in their order.
#include <memory>
#include <string>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/activation_math.h"
#include "ops/fit.h"
#include "ops/fused_activation.h"
#include "ops/gemm.h"
#include "ops/scratch.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// out [rows, n] = f(out + bias), bias of n elements.
#define WEIR_BIAS_LOOP(name, function)                                                \
  WEIR_VECTORIZED void name(int64_t rows, int64_t n, const float* bias, float* out) { \
    for (int64_t r = 0; r < rows; ++r) {                                              \
      float* row = out + r * n;                                                       \
      WEIR_INDEPENDENT                                                                \
      for (int64_t i = 0; i < n; ++i) row[i] = function(row[i] + bias[i]);            \
    }                                                                                 \
  }
#define WEIR_NO_BIAS_LOOP(name, function)                      \
  WEIR_VECTORIZED void name(int64_t n, float* out) {           \
    WEIR_INDEPENDENT                                           \
    for (int64_t i = 0; i < n; ++i) out[i] = function(out[i]); \
  }

inline float Identity(float x) { return x; }

WEIR_BIAS_LOOP(BiasIdentity, Identity)
WEIR_BIAS_LOOP(BiasRelu, Relu)
WEIR_BIAS_LOOP(BiasSigmoid, Sigmoid)
WEIR_BIAS_LOOP(BiasTanh, Tanh)
WEIR_NO_BIAS_LOOP(OnlyRelu, Relu)
WEIR_NO_BIAS_LOOP(OnlySigmoid, Sigmoid)
WEIR_NO_BIAS_LOOP(OnlyTanh, Tanh)

WEIR_VECTORIZED void SumRows(int64_t rows, int64_t n, const float* x, float* sum) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) sum[i] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * n;
    WEIR_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
  }
}

// Sets the dims of Out if X and W fit together.
absl::Status ProductDims(const InferContext& ctx, Shape* out) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "W"));
  RETURN_IF_ERROR(ExpectRank(ctx, "W", 2));
  const int64_t row_dims = ctx.attrs().Int("row_dims");
  if (row_dims == 1) return MatrixProductDims(ctx, "X", "W", out);
  const Shape x = ctx.InputShape("X"), w = ctx.InputShape("W");
  if (row_dims < 1 || row_dims >= static_cast<int64_t>(x.size())) {
    return ctx.Error(absl::StrCat("row_dims must leave a dim of X ", ShapeString(x), ", got ", row_dims));
  }
  int64_t k = 1;
  for (size_t i = static_cast<size_t>(row_dims); i < x.size(); ++i) k *= x[i];
  if (k != w[0]) {
    return ctx.Error(absl::StrCat("X has dims ", ShapeString(x), ", ", k, " values per row; W has dims ",
                                  ShapeString(w), " and takes ", w[0]));
  }
  out->assign(x.begin(), x.begin() + row_dims);
  out->push_back(w[1]);
  return absl::OkStatus();
}

absl::Status FcShape(InferContext& ctx) {
  const absl::StatusOr<FusedActivation> activation = ParseFusedActivation(ctx.attrs().String("activation"));
  if (!activation.ok()) return ctx.Error(ToStd(activation.status().message()));
  Shape out;
  RETURN_IF_ERROR(ProductDims(ctx, &out));
  if (ctx.InputCount("Bias") > 0) {
    RETURN_IF_ERROR(ExpectDense(ctx, "Bias"));
    const Shape bias = ctx.InputShape("Bias");
    if (bias != Shape{out.back()}) {
      return ctx.Error(absl::StrCat("Bias has dims ", ShapeString(bias), "; W has ", out.back(),
                                    " columns, so it must be [", out.back(), "]"));
    }
  }
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

// Shapes of the tensors of one run: X [.., k..] with `row_dims` dims of rows, W [k, n].
struct Product {
  int64_t rows = 0, k = 0, n = 0;
  Shape out;

  static absl::StatusOr<Product> Of(const Tensor& x, const Tensor& w, int64_t row_dims) {
    RETURN_IF_ERROR(CheckRank("W", w, 2));
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    Product p = {.rows = 1, .k = w.dim(0), .n = w.dim(1)};
    for (int64_t i = 0; i < row_dims && i < x.rank(); ++i) {
      p.rows *= x.dim(static_cast<int>(i));
      p.out.push_back(x.dim(static_cast<int>(i)));
    }
    p.out.push_back(p.n);
    if (x.rank() > row_dims && x.size() == p.rows * p.k) return p;
    return absl::InvalidArgumentError(
        absl::StrCat("X ", ShapeString(x.dims()), " cannot be multiplied by W ", ShapeString(w.dims())));
  }
};

class FcKernel : public OpKernel {
  enum Input { kX, kW, kBias };
  enum Output { kOut };

 public:
  FcKernel(FusedActivation activation, int64_t row_dims) : activation_(activation), row_dims_(row_dims) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Product p, Product::Of(x, w, row_dims_));
    const int64_t rows = p.rows, k = p.k, n = p.n;
    if (ctx.has_input(kBias)) RETURN_IF_ERROR(CheckTensor("Bias", ctx.input(kBias), {n}));
    Tensor* out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, p.out);
    float* y = out->data<float>();
    Gemm(rows, n, k, x.data<float>(), w.data<float>(), y, {.precision = ctx.step->precision});
    const float* bias = ctx.has_input(kBias) ? ctx.input(kBias).data<float>() : nullptr;
    switch (activation_) {
      case FusedActivation::kIdentity:
        if (bias != nullptr) BiasIdentity(rows, n, bias, y);
        break;
      case FusedActivation::kRelu:
        bias != nullptr ? BiasRelu(rows, n, bias, y) : OnlyRelu(rows * n, y);
        break;
      case FusedActivation::kSigmoid:
        bias != nullptr ? BiasSigmoid(rows, n, bias, y) : OnlySigmoid(rows * n, y);
        break;
      case FusedActivation::kTanh:
        bias != nullptr ? BiasTanh(rows, n, bias, y) : OnlyTanh(rows * n, y);
        break;
    }
    return absl::OkStatus();
  }

 private:
  const FusedActivation activation_;
  const int64_t row_dims_;
};

// Inputs X, W, Bias?, Out, Out@GRAD; outputs X@GRAD?, W@GRAD?, Bias@GRAD?.
absl::Status FcGradShape(InferContext& ctx) {
  Shape out;
  RETURN_IF_ERROR(ProductDims(ctx, &out));
  if (ctx.InputCount("Bias") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Bias", {out.back()}));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out", out));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
  for (const char* slot : {"X", "W", "Bias"}) {
    if (ctx.OutputCount(GradName(slot)) == 0) continue;
    if (ctx.InputCount(slot) == 0) return ctx.Error(absl::StrCat(slot, "@GRAD is asked for, and there is no ", slot));
    SetLike(ctx, GradName(slot), slot);
  }
  return absl::OkStatus();
}

class FcGradKernel : public OpKernel {
  enum Input { kX, kW, kBias, kOut, kOutGrad };
  enum Output { kXGrad, kWGrad, kBiasGrad };

 public:
  FcGradKernel(FusedActivation activation, int64_t row_dims) : activation_(activation), row_dims_(row_dims) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Product p, Product::Of(x, w, row_dims_));
    const int64_t rows = p.rows, k = p.k, n = p.n;
    RETURN_IF_ERROR(CheckTensor("Out", ctx.input(kOut), p.out));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), p.out));
    const float* dpre = PreGradient(rows * n, ctx.input(kOut).data<float>(), ctx.input(kOutGrad).data<float>());
    if (ctx.has_output(kBiasGrad)) {
      Tensor* dbias = ctx.output(kBiasGrad);
      dbias->Resize(v1::FLOAT32, {n});
      SumRows(rows, n, dpre, dbias->data<float>());
    }
    if (ctx.has_output(kWGrad)) {
      Tensor* dw = ctx.output(kWGrad);
      dw->Resize(v1::FLOAT32, {k, n});
      Gemm(k, n, rows, x.data<float>(), dpre, dw->data<float>(),
           {.transpose_a = true, .precision = ctx.step->precision});
    }
    if (ctx.has_output(kXGrad)) {
      Tensor* dx = ctx.output(kXGrad);
      dx->Resize(v1::FLOAT32, x.dims());
      Gemm(rows, k, n, dpre, w.data<float>(), dx->data<float>(),
           {.transpose_b = true, .precision = ctx.step->precision});
    }
    return absl::OkStatus();
  }

 private:
  const float* PreGradient(int64_t size, const float* out, const float* dout) const {
    if (activation_ == FusedActivation::kIdentity) return dout;
    float* dpre = Scratch(size);
    BackThroughActivation(activation_, size, out, dout, dpre);
    return dpre;
  }

  const FusedActivation activation_;
  const int64_t row_dims_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeFc(const KernelInit& init) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(init.attrs.String("activation")));
  return std::unique_ptr<OpKernel>(new Kernel(activation, init.attrs.Int("row_dims")));
}

// W [K, N]: the K are the elements of X, flattened but for dims of rows; the N are W's own.
void FcElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  const auto rows = static_cast<size_t>(std::max<int64_t>(ctx.attrs().Int("row_dims") - 1, 0));
  const v1::VarDesc& w = ctx.Input("W");
  const ElementAxis out = AxisOf(w.name(), w.dims(1));
  const size_t kept = std::min(rows, x.size());
  ctx.NameParameter("W", {FlattenAxes(absl::MakeConstSpan(x).subspan(kept)), out});
  if (ctx.InputCount("Bias") > 0) ctx.NameParameter("Bias", {out});
  ElementAxes named(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(kept));
  named.push_back(out);
  ctx.NameOutput("Out", std::move(named));
  const std::string& activation = ctx.attrs().String("activation");
  if (activation == "sigmoid" || activation == "softmax") ctx.NotZeroOfZero();
}

REGISTER_OP(fc)
({.type = "fc",
  .summary = "fully connected: activation(X [B, K..] * W [K, N] + Bias [N])",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}},
  .outputs = {{"Out"}},
  .attrs = {StringAttr("activation", "identity"), IntAttr("row_dims", 1)},
  .shape = FcShape,
  .gradient = GradOpRule({"X", "W", "Bias"}, {"Out"}, {"Out"}, {"X", "W", "Bias"}),
  .cost = MatrixProductCost("X", "W", 1),
  .elements = FcElements,
  .effect = ElementEffect::kWeighted,
  .zero_of_zero = true});
REGISTER_OP(fc_grad)
({.type = "fc_grad",
  .summary = "gradients of fc",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}, {"Out"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "W@GRAD", .optional = true},
              {.name = "Bias@GRAD", .optional = true}},
  .attrs = {StringAttr("activation", "identity"), IntAttr("row_dims", 1)},
  .shape = FcGradShape,
  .cost = MatrixProductCost("X", "W", 2),
  .apart = "X@GRAD"});

REGISTER_KERNEL(fc, MakeFc<FcKernel>);
REGISTER_KERNEL(fc_grad, MakeFc<FcGradKernel>);

}  // namespace
}  // namespace weir
