// delay_compensate: out = grad + lambda * grad * grad * (param - read)
//
//   Grad   f32 [..]: the averaged gradient of one trainer's step
//   Param  f32, shape of Grad: the values now
//   Read   f32, shape of Grad: the values that the trainer had read when it computed Grad; the server puts them there
//   Out    shape of Grad, may be Grad itself
//
// A gradient that is late is the gradient at older values; grad * grad stands for the diagonal of the second derivative
// that says how it would have changed (Zheng et al., Asynchronous Stochastic Gradient Descent with Delay Compensation).
// An absent gradient stays absent.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void Compensate(float lambda, int64_t n, const float* g, const float* now, const float* read,
                                float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = g[i] + lambda * g[i] * g[i] * (now[i] - read[i]);
}

class DelayCompensateKernel : public OpKernel {
  enum Input { kGrad, kParam, kRead };
  enum Output { kOut };

 public:
  explicit DelayCompensateKernel(const KernelInit& init) : lambda_(static_cast<float>(init.attrs.Float("lambda"))) {}

  absl::Status Run(KernelContext& ctx) override {
    const Tensor& grad = ctx.input(kGrad);
    Tensor* const out = ctx.output(kOut);
    if (!grad.initialized()) {
      out->Clear();
      return absl::OkStatus();
    }
    const Tensor& now = ctx.input(kParam);
    const Tensor& read = ctx.input(kRead);
    if (now.size() != grad.size() || read.size() != grad.size()) {
      return absl::InvalidArgumentError(absl::StrCat("a gradient of ", grad.size(), " elements, a parameter of ",
                                                     now.size(), " and values read of ", read.size()));
    }
    if (out != &grad) out->Resize(v1::FLOAT32, grad.dims());
    Compensate(lambda_, grad.size(), grad.data<float>(), now.data<float>(), read.data<float>(), out->data<float>());
    return absl::OkStatus();
  }

 private:
  const float lambda_;
};

REGISTER_OP(delay_compensate)
({.type = "delay_compensate",
  .summary = "corrects a gradient for what has changed since the trainer read",
  .inputs = {{.name = "Grad"}, {.name = "Param"}, {.name = "Read"}},
  .outputs = {{.name = "Out"}},
  .attrs = {FloatAttr("lambda", 0.04)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const Shape grad = ctx.InputShape("Grad");
    for (const char* slot : {"Grad", "Param", "Read"}) {
      if (ctx.Input(slot).dtype() != v1::FLOAT32) return ctx.Error(std::string(slot) + " must be FLOAT32");
      if (ctx.InputShape(slot) != grad) {
        return ctx.Error(std::string(slot) + " is " + ShapeString(ctx.InputShape(slot)) + ", Grad " +
                         ShapeString(grad));
      }
    }
    if (!(ctx.attrs().Float("lambda") >= 0)) return ctx.Error("lambda must not be negative");
    SetLike(ctx, "Out", "Grad");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(5),
  .in_place = {{"Grad", "Out"}}});
REGISTER_KERNEL(delay_compensate, MakeKernel<DelayCompensateKernel>);

}  // namespace
}  // namespace weir
