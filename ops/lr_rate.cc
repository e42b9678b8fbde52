// lr_rate: what a schedule gives becomes the learning rate of updates
//
//   X    float64 [1]  the rate
//   Out  float32 [1]  factor X, rounded once
//   factor  float = 1
#include <memory>

#include "framework/base/status_macros.h"
#include "ops/lr_schedule_op.h"

namespace weir {
namespace {

class RateKernel : public OpKernel {
 public:
  explicit RateKernel(const KernelInit& init) : factor_(init.attrs.Float("factor")) {}
  absl::Status Run(KernelContext& ctx) override {
    RETURN_IF_ERROR(CheckOne(ctx.input(0), "X", v1::FLOAT64));
    const double rate = ctx.input(0).data<double>()[0] * factor_;
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, {1});
    out->data<float>()[0] = static_cast<float>(rate);
    return absl::OkStatus();
  }

 private:
  const double factor_;
};

REGISTER_OP(lr_rate)
({.type = "lr_rate",
  .summary = "a scheduled rate, times a factor, as the updates read it",
  .inputs = {{.name = "X"}},
  .outputs = {{.name = "Out"}},
  .attrs = {FloatAttr("factor", 1)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectOne(ctx, "X", v1::FLOAT64));
    ctx.SetOutput("Out", {1});
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{.flops = 1, .bytes = 12}; }});
REGISTER_KERNEL(lr_rate, MakeKernel<RateKernel>);

}  // namespace
}  // namespace weir
