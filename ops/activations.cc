// relu, sigmoid, tanh, exp, square: y = f(x), element by element.
//
//   X    any shape  f32
//   Out  like X     f32
//
// Gradients, each an op of its own:
//   relu_grad     dx = y > 0 ? dy : 0
//   sigmoid_grad  dx = dy * y * (1 - y)
//   tanh_grad     dx = dy * (1 - y^2)
//   exp_grad      dx = dy * y
//   square_grad   dx = 2 * x * dy
// All but the last read Out, so X may be overwritten by it.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/activation_math.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Defines one vector loop per function; kernels are templates over a pointer to it.
#define WEIR_UNARY_LOOP(name, function)                                  \
  WEIR_VECTORIZED void name##Loop(int64_t n, const float* x, float* y) { \
    WEIR_INDEPENDENT                                                     \
    for (int64_t i = 0; i < n; ++i) y[i] = function(x[i]);               \
  }
#define WEIR_UNARY_GRAD_LOOP(name, function)                                                   \
  WEIR_VECTORIZED void name##Loop(int64_t n, const float* saved, const float* dy, float* dx) { \
    WEIR_INDEPENDENT                                                                           \
    for (int64_t i = 0; i < n; ++i) dx[i] = function(saved[i], dy[i]);                         \
  }

WEIR_UNARY_LOOP(Relu, Relu)
WEIR_UNARY_LOOP(Sigmoid, Sigmoid)
WEIR_UNARY_LOOP(Tanh, Tanh)
WEIR_UNARY_LOOP(Exp, Exp)
WEIR_UNARY_LOOP(Square, Square)
WEIR_UNARY_GRAD_LOOP(ReluGrad, ReluGrad)
WEIR_UNARY_GRAD_LOOP(SigmoidGrad, SigmoidGrad)
WEIR_UNARY_GRAD_LOOP(TanhGrad, TanhGrad)
WEIR_UNARY_GRAD_LOOP(ExpGrad, ExpGrad)
WEIR_UNARY_GRAD_LOOP(SquareGrad, SquareGrad)

template <void (*loop)(int64_t, const float*, float*)>
class UnaryKernel : public OpKernel {
 public:
  explicit UnaryKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    Tensor* y = ctx.output(0);
    y->Resize(v1::FLOAT32, x.dims());
    loop(x.size(), x.data<float>(), y->data<float>());
    return absl::OkStatus();
  }
};

// Inputs: the saved tensor (Out, or X for square), Out@GRAD.
template <void (*loop)(int64_t, const float*, const float*, float*)>
class UnaryGradKernel : public OpKernel {
 public:
  explicit UnaryGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& saved = ctx.input(0);
    const Tensor& dy = ctx.input(1);
    RETURN_IF_ERROR(CheckTensor("the forward value", saved, dy.dims()));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dy, saved.dims()));
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, dy.dims());
    loop(dy.size(), saved.data<float>(), dy.data<float>(), dx->data<float>());
    return absl::OkStatus();
  }
};

OpDef Unary(std::string type, std::string summary, bool saves_output, double flops) {
  OpDef def;
  def.type = std::move(type);
  def.summary = std::move(summary);
  def.inputs = {{"X"}};
  def.outputs = {{"Out"}};
  def.shape = SameShapeRule();
  def.gradient = saves_output ? GradOpRule({}, {"Out"}, {"Out"}, {"X"}) : GradOpRule({"X"}, {}, {"Out"}, {"X"});
  def.cost = ElementwiseCost(flops);
  def.in_place = {{"X", "Out"}};
  def.elements = SameElements();
  def.effect = ElementEffect::kApart;
  def.zero_of_zero = def.type != "sigmoid" && def.type != "exp";
  return def;
}

OpDef UnaryGrad(std::string type, std::string summary, bool saves_output, double flops) {
  OpDef def;
  def.type = std::move(type);
  def.summary = std::move(summary);
  def.inputs = {{saves_output ? "Out" : "X"}, {"Out@GRAD"}};
  def.outputs = {{"X@GRAD"}};
  def.shape = AlikeRule({saves_output ? "Out" : "X", "Out@GRAD"}, "X@GRAD");
  def.cost = ElementwiseCost(flops);
  def.in_place = {{"Out@GRAD", "X@GRAD"}};
  return def;
}

// Flops of sigmoid, tanh and exp: operations of Exp.
REGISTER_OP(relu)(Unary("relu", "max(x, 0)", true, 1));
REGISTER_OP(relu_grad)(UnaryGrad("relu_grad", "dy where y > 0", true, 1));
REGISTER_OP(sigmoid)(Unary("sigmoid", "1 / (1 + exp(-x))", true, 25));
REGISTER_OP(sigmoid_grad)(UnaryGrad("sigmoid_grad", "dy * y * (1 - y)", true, 3));
REGISTER_OP(tanh)(Unary("tanh", "hyperbolic tangent", true, 40));
REGISTER_OP(tanh_grad)(UnaryGrad("tanh_grad", "dy * (1 - y^2)", true, 3));
REGISTER_OP(exp)(Unary("exp", "e^x", true, 22));
REGISTER_OP(exp_grad)(UnaryGrad("exp_grad", "dy * y", true, 1));
REGISTER_OP(square)(Unary("square", "x^2", false, 1));
REGISTER_OP(square_grad)(UnaryGrad("square_grad", "2 * x * dy", false, 2));

REGISTER_KERNEL(relu, MakeKernel<UnaryKernel<ReluLoop>>);
REGISTER_KERNEL(relu_grad, MakeKernel<UnaryGradKernel<ReluGradLoop>>);
REGISTER_KERNEL(sigmoid, MakeKernel<UnaryKernel<SigmoidLoop>>);
REGISTER_KERNEL(sigmoid_grad, MakeKernel<UnaryGradKernel<SigmoidGradLoop>>);
REGISTER_KERNEL(tanh, MakeKernel<UnaryKernel<TanhLoop>>);
REGISTER_KERNEL(tanh_grad, MakeKernel<UnaryGradKernel<TanhGradLoop>>);
REGISTER_KERNEL(exp, MakeKernel<UnaryKernel<ExpLoop>>);
REGISTER_KERNEL(exp_grad, MakeKernel<UnaryGradKernel<ExpGradLoop>>);
REGISTER_KERNEL(square, MakeKernel<UnaryKernel<SquareLoop>>);
REGISTER_KERNEL(square_grad, MakeKernel<UnaryGradKernel<SquareGradLoop>>);

}  // namespace
}  // namespace weir
