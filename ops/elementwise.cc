// elementwise_add, _sub, _mul, _div: out = x op y, element by element, Y repeated where it has 1 or no dim.
//
//   X     any shape     f32
//   Y     dims stand against X's from `axis` on (-1: at the end); each equal to X's or 1   f32
//   Out   like X        f32
//   axis  int = -1
//
// [B, S, W] op [W], [B, S, W] op [S] with axis 1, [B, W] op [B, 1], [B, W] op [] are all fine.
//
// Gradients (elementwise_*_grad): dX = dout * d out / d x, like X; dY = dout * d out / d y added over the elements that
// one element of Y stands for, in the order of X.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/broadcast.h"
#include "ops/elementwise_math.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

absl::Status ExpectBroadcast(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  RETURN_IF_ERROR(ExpectDense(ctx, "Y"));
  const absl::StatusOr<Shape> aligned = AlignDims(ctx.InputShape("X"), ctx.InputShape("Y"), ctx.attrs().Int("axis"));
  return aligned.ok() ? absl::OkStatus() : ctx.Error(ToStd(aligned.status().message()));
}

absl::Status ElementwiseShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectBroadcast(ctx));
  SetLike(ctx, "Out", "X");
  return absl::OkStatus();
}

absl::Status ElementwiseGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectBroadcast(ctx));
  RETURN_IF_ERROR(ExpectAlike(ctx, {"X", "Out@GRAD"}));
  if (ctx.OutputCount("X@GRAD") > 0) SetLike(ctx, "X@GRAD", "X");
  if (ctx.OutputCount("Y@GRAD") > 0) SetLike(ctx, "Y@GRAD", "Y");
  return absl::OkStatus();
}

// Loops over one inner run, a struct of functions per operator. "moving": Y has a value for each element of the run;
// "still": one value for all.
struct Loops {
  void (*out_moving)(int64_t n, const float* x, const float* y, float* out);
  void (*out_still)(int64_t n, const float* x, float y, float* out);
  void (*dx_moving)(int64_t n, const float* x, const float* y, const float* dout, float* dx);
  void (*dx_still)(int64_t n, const float* x, float y, const float* dout, float* dx);
  void (*add_dy)(int64_t n, const float* x, const float* y, const float* dout, float* dy);
  float (*sum_dy)(int64_t n, const float* x, float y, const float* dout);
};

#define WEIR_BINARY_LOOPS(Math)                                                                                  \
  WEIR_VECTORIZED void Math##OutMoving(int64_t n, const float* x, const float* y, float* out) {                  \
    WEIR_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; ++i) out[i] = Math::Out(x[i], y[i]);                                              \
  }                                                                                                              \
  WEIR_VECTORIZED void Math##OutStill(int64_t n, const float* x, float y, float* out) {                          \
    WEIR_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; ++i) out[i] = Math::Out(x[i], y);                                                 \
  }                                                                                                              \
  WEIR_VECTORIZED void Math##DxMoving(int64_t n, const float* x, const float* y, const float* dout, float* dx) { \
    WEIR_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; ++i) dx[i] = Math::Dx(x[i], y[i], dout[i]);                                       \
  }                                                                                                              \
  WEIR_VECTORIZED void Math##DxStill(int64_t n, const float* x, float y, const float* dout, float* dx) {         \
    WEIR_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; ++i) dx[i] = Math::Dx(x[i], y, dout[i]);                                          \
  }                                                                                                              \
  WEIR_VECTORIZED void Math##AddDy(int64_t n, const float* x, const float* y, const float* dout, float* dy) {    \
    WEIR_INDEPENDENT                                                                                             \
    for (int64_t i = 0; i < n; ++i) dy[i] += Math::Dy(x[i], y[i], dout[i]);                                      \
  }                                                                                                              \
  WEIR_VECTORIZED float Math##SumDy(int64_t n, const float* x, float y, const float* dout) {                     \
    return FixedSum(n, [=](int64_t i) { return Math::Dy(x[i], y, dout[i]); });                                   \
  }                                                                                                              \
  constexpr Loops k##Math##Loops = {Math##OutMoving, Math##OutStill, Math##DxMoving,                             \
                                    Math##DxStill,   Math##AddDy,    Math##SumDy};

WEIR_BINARY_LOOPS(AddMath)
WEIR_BINARY_LOOPS(SubMath)
WEIR_BINARY_LOOPS(MulMath)
WEIR_BINARY_LOOPS(DivMath)

template <const Loops& loops>
class ElementwiseKernel : public OpKernel {
 public:
  explicit ElementwiseKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Tensor& y = ctx.input(1);
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    RETURN_IF_ERROR(CheckTensor("Y", y, y.dims()));
    ASSIGN_OR_RETURN(const Shape y_dims, AlignDims(x.dims(), y.dims(), axis_));
    const Broadcast broadcast(x.dims(), y_dims);
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    const float* xs = x.data<float>();
    const float* ys = y.data<float>();
    float* outs = out->data<float>();
    const int64_t n = broadcast.inner();
    broadcast.ForEach([&](int64_t at, int64_t y_at) {
      if (broadcast.inner_moves()) {
        loops.out_moving(n, xs + at, ys + y_at, outs + at);
      } else {
        loops.out_still(n, xs + at, ys[y_at], outs + at);
      }
    });
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
};

template <const Loops& loops>
class ElementwiseGradKernel : public OpKernel {
  enum Input { kX, kY, kOutGrad };
  enum Output { kXGrad, kYGrad };

 public:
  explicit ElementwiseGradKernel(const KernelInit& init) : axis_(init.attrs.Int("axis")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& y = ctx.input(kY);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
    RETURN_IF_ERROR(CheckTensor("Y", y, y.dims()));
    const float* xs = x.data<float>();
    const float* ys = y.data<float>();
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, x.dims()));
    const float* douts = dout.data<float>();
    ASSIGN_OR_RETURN(const Shape y_dims, AlignDims(x.dims(), y.dims(), axis_));
    const Broadcast broadcast(x.dims(), y_dims);
    const int64_t n = broadcast.inner();
    // Compute dY first, because dX may share the memory of Out@GRAD.
    if (ctx.has_output(kYGrad)) {
      Tensor* dy = ctx.output(kYGrad);
      dy->Resize(v1::FLOAT32, y.dims());
      float* dys = dy->data<float>();
      std::fill_n(dys, dy->size(), 0.0f);
      broadcast.ForEach([&](int64_t at, int64_t y_at) {
        if (broadcast.inner_moves()) {
          loops.add_dy(n, xs + at, ys + y_at, douts + at, dys + y_at);
        } else {
          dys[y_at] += loops.sum_dy(n, xs + at, ys[y_at], douts + at);
        }
      });
    }
    if (ctx.has_output(kXGrad)) {
      Tensor* dx = ctx.output(kXGrad);
      dx->Resize(v1::FLOAT32, x.dims());
      float* dxs = dx->data<float>();
      broadcast.ForEach([&](int64_t at, int64_t y_at) {
        if (broadcast.inner_moves()) {
          loops.dx_moving(n, xs + at, ys + y_at, douts + at, dxs + at);
        } else {
          loops.dx_still(n, xs + at, ys[y_at], douts + at, dxs + at);
        }
      });
    }
    return absl::OkStatus();
  }

 private:
  const int64_t axis_;
};

// Of two variables with other names the result is known by its own.
void BothElements(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("X");
  if (x == ctx.Names("Y")) return ctx.NameOutput("Out", x);
  OwnElements()(ctx);
}
OpDef Elementwise(std::string type, std::string summary, LossForm loss_form) {
  OpDef def;
  def.loss_form = loss_form;
  def.type = std::move(type);
  def.summary = std::move(summary);
  def.inputs = {{"X"}, {"Y"}};
  def.outputs = {{"Out"}};
  def.attrs = {IntAttr("axis", -1)};
  def.shape = ElementwiseShape;
  def.gradient = GradOpRule({"X", "Y"}, {}, {"Out"}, {"X", "Y"});
  def.cost = ElementwiseCost(1);
  def.in_place = {{"X", "Out"}};
  def.elements = BothElements;
  def.effect = loss_form == LossForm::kWeightedSum ? ElementEffect::kAdded
               : def.type == "elementwise_mul"     ? ElementEffect::kMultiplied
                                                   : ElementEffect::kMixed;
  def.zero_of_zero = def.effect != ElementEffect::kMixed;
  return def;
}

OpDef ElementwiseGrad(const std::string& type) {
  OpDef def;
  def.summary = "gradients of " + type;
  def.type = type + "_grad";
  def.inputs = {{"X"}, {"Y"}, {"Out@GRAD"}};
  def.outputs = {{.name = "X@GRAD", .optional = true}, {.name = "Y@GRAD", .optional = true}};
  def.attrs = {IntAttr("axis", -1)};
  def.shape = ElementwiseGradShape;
  def.cost = ElementwiseCost(2);
  def.in_place = {{"Out@GRAD", "X@GRAD"}};
  return def;
}

REGISTER_OP(elementwise_add)(Elementwise("elementwise_add", "x + y, Y broadcast", LossForm::kWeightedSum));
REGISTER_OP(elementwise_add_grad)(ElementwiseGrad("elementwise_add"));
REGISTER_OP(elementwise_sub)(Elementwise("elementwise_sub", "x - y, Y broadcast", LossForm::kWeightedSum));
REGISTER_OP(elementwise_sub_grad)(ElementwiseGrad("elementwise_sub"));
REGISTER_OP(elementwise_mul)(Elementwise("elementwise_mul", "x * y, Y broadcast", LossForm::kOther));
REGISTER_OP(elementwise_mul_grad)(ElementwiseGrad("elementwise_mul"));
REGISTER_OP(elementwise_div)(Elementwise("elementwise_div", "x / y, Y broadcast", LossForm::kOther));
REGISTER_OP(elementwise_div_grad)(ElementwiseGrad("elementwise_div"));

REGISTER_KERNEL(elementwise_add, MakeKernel<ElementwiseKernel<kAddMathLoops>>);
REGISTER_KERNEL(elementwise_add_grad, MakeKernel<ElementwiseGradKernel<kAddMathLoops>>);
REGISTER_KERNEL(elementwise_sub, MakeKernel<ElementwiseKernel<kSubMathLoops>>);
REGISTER_KERNEL(elementwise_sub_grad, MakeKernel<ElementwiseGradKernel<kSubMathLoops>>);
REGISTER_KERNEL(elementwise_mul, MakeKernel<ElementwiseKernel<kMulMathLoops>>);
REGISTER_KERNEL(elementwise_mul_grad, MakeKernel<ElementwiseGradKernel<kMulMathLoops>>);
REGISTER_KERNEL(elementwise_div, MakeKernel<ElementwiseKernel<kDivMathLoops>>);
REGISTER_KERNEL(elementwise_div_grad, MakeKernel<ElementwiseGradKernel<kDivMathLoops>>);

}  // namespace
}  // namespace weir
