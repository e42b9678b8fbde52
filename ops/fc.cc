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
#include "ops/arithmetic.h"
#include "ops/bf16_factor.h"
#include "ops/fit.h"
#include "ops/fused_activation.h"
#include "ops/gemm.h"
#include "ops/gemm_bf16.h"
#include "ops/packed_weights.h"
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

// Returns the unit of products in bfloat16, which stays the same.
Bf16Unit UnitBf16() {
  static const Bf16Unit unit = ResolvedBf16Unit();
  return unit;
}

class FcKernel : public OpKernel {
  enum Input { kX, kW, kBias };
  enum Output { kOut };

 public:
  FcKernel(const KernelInit& init, FusedActivation activation)
      : activation_(activation), row_dims_(init.attrs.Int("row_dims")), weights_(init, "W", /*transpose=*/false) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Product p, Product::Of(x, w, row_dims_));
    const int64_t rows = p.rows, k = p.k, n = p.n;
    if (ctx.has_input(kBias)) RETURN_IF_ERROR(CheckTensor("Bias", ctx.input(kBias), {n}));
    Tensor* out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, p.out);
    float* y = out->data<float>();
    if (ctx.step->precision == ProductPrecision::kBf16) {
      ProductBf16(*ctx.step, p, x.data<float>(), w.data<float>(), y);
    } else {
      Gemm(rows, n, k, x.data<float>(), w.data<float>(), y, {});
    }
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
  void ProductBf16(const StepContext& step, const Product& p, const float* x, const float* w, float* y) {
    if (p.rows == 0) return;
    Bf16Factor& left = Bf16Scratch::OfThread().left;
    left.PackLeft(p.rows, p.k, x, p.k, /*transpose=*/false);
    MultiplyBf16(UnitBf16(), left, weights_.Of(step, p.k, p.n, w), y, p.n);
  }

  const FusedActivation activation_;
  const int64_t row_dims_;
  PackedWeights weights_;
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
  FcGradKernel(const KernelInit& init, FusedActivation activation)
      : activation_(activation), row_dims_(init.attrs.Int("row_dims")), weights_(init, "W", /*transpose=*/true) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Product p, Product::Of(x, w, row_dims_));
    const int64_t rows = p.rows, k = p.k, n = p.n;
    RETURN_IF_ERROR(CheckTensor("Out", ctx.input(kOut), p.out));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), p.out));
    const Gradients to = {
        .x = ctx.has_output(kXGrad) ? Sized(ctx.output(kXGrad), x.dims()) : nullptr,
        .w = ctx.has_output(kWGrad) ? Sized(ctx.output(kWGrad), w.dims()) : nullptr,
        .bias = ctx.has_output(kBiasGrad) ? Sized(ctx.output(kBiasGrad), {n}) : nullptr,
    };
    const float* const out = ctx.input(kOut).data<float>();
    const float* const dout = ctx.input(kOutGrad).data<float>();
    if (ctx.step->precision == ProductPrecision::kBf16 && rows > 0) {
      RunBf16(*ctx.step, p, x.data<float>(), w.data<float>(), out, dout, to);
      return absl::OkStatus();
    }
    const float* const dpre = PreGradient(rows * n, out, dout);
    if (to.bias != nullptr) SumRows(rows, n, dpre, to.bias);
    if (to.w != nullptr) Gemm(k, n, rows, x.data<float>(), dpre, to.w, {.transpose_a = true});
    if (to.x != nullptr) Gemm(rows, k, n, dpre, w.data<float>(), to.x, {.transpose_b = true});
    return absl::OkStatus();
  }

 private:
  // Memory of the outputs; nullptr for those that are not asked for.
  struct Gradients {
    float* x = nullptr;
    float* w = nullptr;
    float* bias = nullptr;
  };

  static float* Sized(Tensor* tensor, absl::Span<const int64_t> dims) {
    tensor->Resize(v1::FLOAT32, dims);
    return tensor->data<float>();
  }

  void RunBf16(const StepContext& step, const Product& p, const float* x, const float* w, const float* out,
               const float* dout, const Gradients& to) {
    // The pass that packs the gradient takes it through relu, too.
    const bool relu = activation_ == FusedActivation::kRelu;
    const ResultGradient dpre = {.rows = p.rows,
                                 .columns = p.n,
                                 .d = relu ? dout : PreGradient(p.rows * p.n, out, dout),
                                 .relu = relu ? out : nullptr};
    Bf16Scratch& factors = Bf16Scratch::OfThread();
    PackGradient(dpre, to.x == nullptr ? nullptr : &factors.gradient_left,
                 to.w == nullptr ? nullptr : &factors.gradient_right, to.bias);
    if (to.w != nullptr) {
      factors.left.PackLeft(p.k, p.rows, x, p.k, /*transpose=*/true);
      MultiplyBf16(UnitBf16(), factors.left, factors.gradient_right, to.w, p.n);
    }
    if (to.x != nullptr) {
      MultiplyBf16(UnitBf16(), factors.gradient_left, weights_.Of(step, p.k, p.n, w), to.x, p.k);
    }
  }

  const float* PreGradient(int64_t size, const float* out, const float* dout) const {
    if (activation_ == FusedActivation::kIdentity) return dout;
    float* dpre = Scratch(size);
    BackThroughActivation(activation_, size, out, dout, dpre);
    return dpre;
  }

  const FusedActivation activation_;
  const int64_t row_dims_;
  PackedWeights weights_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeFc(const KernelInit& init) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(init.attrs.String("activation")));
  return std::unique_ptr<OpKernel>(new Kernel(init, activation));
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
