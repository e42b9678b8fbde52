// lr_count: the step counter of learning-rate schedules goes on by one
//
//   Step     int64 [1]  steps so far
//   StepOut  Step + 1, the same variable; stays at the largest int64
#include <limits>

#include "framework/base/status_macros.h"
#include "ops/lr_schedule_op.h"

namespace weir {
namespace {

class CountKernel : public OpKernel {
 public:
  explicit CountKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    RETURN_IF_ERROR(CheckOne(ctx.input(0), "Step", v1::INT64));
    const int64_t step = ctx.input(0).data<int64_t>()[0];
    Tensor* out = ctx.output(0);
    out->Resize(v1::INT64, {1});
    out->data<int64_t>()[0] = step < std::numeric_limits<int64_t>::max() ? step + 1 : step;
    return absl::OkStatus();
  }
};

REGISTER_OP(lr_count)
({.type = "lr_count",
  .summary = "counts steps",
  .inputs = {{.name = "Step"}},
  .outputs = {{.name = "StepOut"}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectOne(ctx, "Step", v1::INT64));
    ctx.SetOutput("StepOut", ctx.InputShape("Step"), v1::INT64);
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{.flops = 1, .bytes = 16}; },
  .in_place = {{"Step", "StepOut"}}});
REGISTER_KERNEL(lr_count, MakeKernel<CountKernel>);

}  // namespace
}  // namespace weir
