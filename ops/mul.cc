// mul: product of matrices. X's dimensions after the first are taken as one.
//
//   X    [B, K..]  f32, product of K.. is K
//   Y    [K, N]    f32
//   Out  [B, N]    f32
//
// Gradient (mul_grad): dX = dOut * Y^T, dY = X^T * dOut.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/gemm.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status MulShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "Y"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Y", 2));
  Shape out;
  RETURN_IF_ERROR(MatrixProductDims(ctx, "X", "Y", &out));
  ctx.SetOutput("Out", out);
  return absl::OkStatus();
}

// Checks the tensors of one run: X has rows of k values, Y is [k, n].
absl::Status CheckProduct(const Tensor& x, const Tensor& y) {
  RETURN_IF_ERROR(CheckRank("Y", y, 2));
  RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
  if (x.rank() >= 2 && x.size() == x.dim(0) * y.dim(0)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("X ", ShapeString(x.dims()), " cannot be multiplied by Y ", ShapeString(y.dims())));
}

class MulKernel : public OpKernel {
 public:
  explicit MulKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& y = ctx.input(1);
    RETURN_IF_ERROR(CheckProduct(x, y));
    const int64_t rows = x.dim(0), k = y.dim(0), n = y.dim(1);
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, {rows, n});
    Gemm(rows, n, k, x.data<float>(), y.data<float>(), out->data<float>(), {.precision = ctx.step->precision});
    return absl::OkStatus();
  }
};

// Inputs X, Y, Out@GRAD; outputs X@GRAD?, Y@GRAD?.
absl::Status MulGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "Y"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Y", 2));
  Shape out;
  RETURN_IF_ERROR(MatrixProductDims(ctx, "X", "Y", &out));
  RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", out));
  if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
  if (ctx.OutputCount("Y@GRAD") > 0) SetLike(ctx, "Y@GRAD", "Y");
  return absl::OkStatus();
}

class MulGradKernel : public OpKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit MulGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& y = ctx.input(kY);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckProduct(x, y));
    const int64_t rows = x.dim(0), k = y.dim(0), n = y.dim(1);
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {rows, n}));
    if (ctx.has_output(kYGrad)) {
      Tensor* dy = ctx.output(kYGrad);
      dy->Resize(v1::FLOAT32, {k, n});
      Gemm(k, n, rows, x.data<float>(), dout.data<float>(), dy->data<float>(),
           {.transpose_a = true, .precision = ctx.step->precision});
    }
    if (ctx.has_output(kXGrad)) {
      Tensor* dx = ctx.output(kXGrad);
      dx->Resize(v1::FLOAT32, x.dims());
      Gemm(rows, k, n, dout.data<float>(), y.data<float>(), dx->data<float>(),
           {.transpose_b = true, .precision = ctx.step->precision});
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(mul)
({.type = "mul",
  .summary = "product of X [B, K..] and Y [K, N]",
  .inputs = {{"X"}, {"Y"}},
  .outputs = {{"Out"}},
  .shape = MulShape,
  .gradient = GradOpRule({"X", "Y"}, {}, {"Out"}, {"X", "Y"}),
  .cost = MatrixProductCost("X", "Y", 1)});
REGISTER_OP(mul_grad)
({.type = "mul_grad",
  .summary = "gradients of mul",
  .inputs = {{"X"}, {"Y"}, {"Out@GRAD"}},
  .outputs = {{.name = "X@GRAD", .optional = true}, {.name = "Y@GRAD", .optional = true}},
  .shape = MulGradShape,
  .cost = MatrixProductCost("X", "Y", 2),
  .apart = "X@GRAD"});

REGISTER_KERNEL(mul, MakeKernel<MulKernel>);
REGISTER_KERNEL(mul_grad, MakeKernel<MulGradKernel>);

}  // namespace
}  // namespace weir
