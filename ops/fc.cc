// fc: a fully connected layer, Out = f(X * W + Bias).
//
//   X     [B, K..]  f32, product of K.. is K
//   W     [K, N]    f32
//   Bias? [N]       f32
//   Out   [B, N]    f32
//   activation: identity, relu, sigmoid or tanh
//
// Gradient (fc_grad), with dPre = dOut * f' taken from Out:
//   dX = dPre * W^T, dW = X^T * dPre, dBias = sum of dPre over examples, in their order.
#include <memory>
#include <string>

#include "framework/base/status_macros.h"
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
#define WEIR_BIAS_LOOP(name, function)                                                       \
  WEIR_VECTORIZED void name(int64_t rows, int64_t n, const float* bias, float* out) {        \
    for (int64_t r = 0; r < rows; ++r) {                                                     \
      float* row = out + r * n;                                                              \
      WEIR_INDEPENDENT                                                                       \
      for (int64_t i = 0; i < n; ++i) row[i] = function(row[i] + bias[i]);                   \
    }                                                                                        \
  }
#define WEIR_NO_BIAS_LOOP(name, function)                                  \
  WEIR_VECTORIZED void name(int64_t n, float* out) {                       \
    WEIR_INDEPENDENT                                                       \
    for (int64_t i = 0; i < n; ++i) out[i] = function(out[i]);             \
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

absl::Status FcShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "W"));
  RETURN_IF_ERROR(ExpectRank(ctx, "W", 2));
  const absl::StatusOr<FusedActivation> activation = ParseFusedActivation(ctx.attrs().String("activation"));
  if (!activation.ok()) return ctx.Error(ToStd(activation.status().message()));
  Shape out;
  RETURN_IF_ERROR(MatrixProductDims(ctx, "X", "W", &out));
  if (ctx.InputCount("Bias") > 0) {
    RETURN_IF_ERROR(ExpectDense(ctx, "Bias"));
    const Shape bias = ctx.InputShape("Bias");
    if (bias != Shape{out[1]}) {
      return ctx.Error(absl::StrCat("Bias has dims ", ShapeString(bias), "; W has ", out[1], " columns, so it must be [",
                                    out[1], "]"));
    }
  }
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

// What is there when a kernel runs: X of rows of k values, W [k, n].
absl::Status CheckProduct(const Tensor& x, const Tensor& w) {
  RETURN_IF_ERROR(CheckRank("W", w, 2));
  RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
  if (x.rank() >= 2 && x.size() == x.dim(0) * w.dim(0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("X ", ShapeString(x.dims()), " cannot be multiplied by W ", ShapeString(w.dims())));
}

class FcKernel : public OpKernel {
 public:
  explicit FcKernel(FusedActivation activation) : activation_(activation) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& w = ctx.input(1);
    RETURN_IF_ERROR(CheckProduct(x, w));
    const int64_t rows = x.dim(0), k = w.dim(0), n = w.dim(1);
    if (ctx.has_input(2)) RETURN_IF_ERROR(CheckTensor("Bias", ctx.input(2), {n}));
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, {rows, n});
    float* y = out->data<float>();
    Gemm(rows, n, k, x.data<float>(), w.data<float>(), y, {});
    const float* bias = ctx.has_input(2) ? ctx.input(2).data<float>() : nullptr;
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
};

// Inputs X, W, Bias?, Out, Out@GRAD; outputs X@GRAD?, W@GRAD?, Bias@GRAD?.
absl::Status FcGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "W"));
  RETURN_IF_ERROR(ExpectRank(ctx, "W", 2));
  Shape out;
  RETURN_IF_ERROR(MatrixProductDims(ctx, "X", "W", &out));
  if (ctx.InputCount("Bias") > 0) RETURN_IF_ERROR(ExpectDims(ctx, "Bias", {out[1]}));
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
 public:
  explicit FcGradKernel(FusedActivation activation) : activation_(activation) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& w = ctx.input(1);
    RETURN_IF_ERROR(CheckProduct(x, w));
    const int64_t rows = x.dim(0), k = w.dim(0), n = w.dim(1);
    RETURN_IF_ERROR(CheckTensor("Out", ctx.input(3), {rows, n}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(4), {rows, n}));
    const float* dpre = PreGradient(rows * n, ctx.input(3).data<float>(), ctx.input(4).data<float>());
    if (ctx.has_output(2)) {
      Tensor* dbias = ctx.output(2);
      dbias->Resize(v1::FLOAT32, {n});
      SumRows(rows, n, dpre, dbias->data<float>());
    }
    if (ctx.has_output(1)) {
      Tensor* dw = ctx.output(1);
      dw->Resize(v1::FLOAT32, {k, n});
      Gemm(k, n, rows, x.data<float>(), dpre, dw->data<float>(), {.transpose_a = true});
    }
    if (ctx.has_output(0)) {
      Tensor* dx = ctx.output(0);
      dx->Resize(v1::FLOAT32, x.dims());
      Gemm(rows, k, n, dpre, w.data<float>(), dx->data<float>(), {.transpose_b = true});
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
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> MakeFc(const KernelInit& init) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(init.attrs.String("activation")));
  return std::unique_ptr<OpKernel>(new Kernel(activation));
}

REGISTER_OP(fc)
({.type = "fc",
  .summary = "fully connected: activation(X [B, K..] * W [K, N] + Bias [N])",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}},
  .outputs = {{"Out"}},
  .attrs = {StringAttr("activation", "identity")},
  .shape = FcShape,
  .gradient = GradOpRule({"X", "W", "Bias"}, {"Out"}, {"Out"}, {"X", "W", "Bias"}),
  .cost = MatrixProductCost("X", "W", 1)});
REGISTER_OP(fc_grad)
({.type = "fc_grad",
  .summary = "gradients of fc",
  .inputs = {{"X"}, {"W"}, {.name = "Bias", .optional = true}, {"Out"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true},
              {.name = "W@GRAD", .optional = true},
              {.name = "Bias@GRAD", .optional = true}},
  .attrs = {StringAttr("activation", "identity")},
  .shape = FcGradShape,
  .cost = MatrixProductCost("X", "W", 2)});

REGISTER_KERNEL(fc, kCpu, MakeFc<FcKernel>);
REGISTER_KERNEL(fc_grad, kCpu, MakeFc<FcGradKernel>);

}  // namespace
}  // namespace weir
