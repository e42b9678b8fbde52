// fetch_barrier: waits for every block that recv has asked for
//
// `sync`: the program was made for sync training; the channel knows what that means. What the servers said of the step is
// written to StepContext.outcome.
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"

namespace weir {
namespace {

class FetchBarrierKernel : public OpKernel {
 public:
  explicit FetchBarrierKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(ParamChannel * channel, ChannelOf(ctx));
    StepOutcome outcome;
    RETURN_IF_ERROR(channel->FinishReceives(&outcome));
    if (ctx.step->outcome != nullptr) *ctx.step->outcome = outcome;
    return absl::OkStatus();
  }
};

REGISTER_OP(fetch_barrier)
({.type = "fetch_barrier",
  .summary = "waits for what recv asked for",
  .attrs = {BoolAttr("sync", true)},
  .scope = OpScope::kStep,
  .shape = [](InferContext&) { return absl::OkStatus(); },
  .cost = [](InferContext&) { return Cost{}; }});
REGISTER_KERNEL(fetch_barrier, kCpu, MakeKernel<FetchBarrierKernel>);

}  // namespace
}  // namespace weir
