// mean: Out = (sum of all elements of X) / (their number), added in double in the order of X. 0 for no elements.
//
//   X    any shape  f32
//   Out  []         f32
//
// Gradient (mean_grad): dX = dOut / number of elements.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status MeanShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  ctx.SetOutput("Out", {});
  return absl::OkStatus();
}

class MeanKernel : public OpKernel {
 public:
  explicit MeanKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    double sum = 0;
    for (float v : x.span<float>()) sum += v;
    const float mean = x.size() == 0 ? 0.0f : static_cast<float>(sum / static_cast<double>(x.size()));
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, {});
    out->data<float>()[0] = mean;
    return absl::OkStatus();
  }
};

class MeanGradKernel : public OpKernel {
 public:
  explicit MeanGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(1), {}));
    const float dout = ctx.input(1).data<float>()[0];
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, x.dims());
    std::fill_n(dx->data<float>(), dx->size(), dout / static_cast<float>(x.size()));
    return absl::OkStatus();
  }
};

REGISTER_OP(mean)
({.type = "mean",
  .summary = "mean of all elements",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .shape = MeanShape,
  .gradient = GradOpRule({"X"}, {}, {"Out"}, {"X"}),
  .cost =
      [](InferContext& ctx) { return Cost{.flops = Elements(ctx.Input("X")), .bytes = 4 * Elements(ctx.Input("X"))}; },
  .loss_form = LossForm::kMean});
REGISTER_OP(mean_grad)
({.type = "mean_grad",
  .summary = "dy / number of elements",
  .inputs = {{"X"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {}));
    return SameShapeRule("X", "X@GRAD")(ctx);
  },
  .cost = ElementwiseCost(0)});

REGISTER_KERNEL(mean, MakeKernel<MeanKernel>);
REGISTER_KERNEL(mean_grad, MakeKernel<MeanGradKernel>);

}  // namespace
}  // namespace weir
