// fetch_barrier: waits for every block that recv has asked for
//
// `sync`: the program was made for sync training; the channel knows what that means. What the servers said of the step
// is written to StepContext.outcome.
//
// `staleness`, `geo_every_steps`, `geo_blocks` and `geo_lr_block` say the training mode in programs of format version 1
// (framework/graph/training_mode.h).
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"

namespace weir {
namespace {

class FetchBarrierKernel : public OpKernel {
 public:
  explicit FetchBarrierKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(StepChannel * channel, ChannelOf(ctx));
    StepOutcome outcome;
    RETURN_IF_ERROR(channel->FinishReceives(&outcome));
    if (ctx.step->outcome != nullptr) *ctx.step->outcome = outcome;
    return absl::OkStatus();
  }
};

REGISTER_OP(fetch_barrier)
({.type = "fetch_barrier",
  .summary = "waits for what recv asked for",
  .attrs = {BoolAttr("sync", true), IntAttr("staleness", -1), IntAttr("geo_every_steps", 0), BlocksAttr("geo_blocks"),
            BlockAttr("geo_lr_block")},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const AttrReader attrs = ctx.attrs();
    if (attrs.Int("staleness") < -1) return ctx.Error("staleness must be at least -1");
    if (attrs.Int("geo_every_steps") < 0) return ctx.Error("geo_every_steps must not be negative");
    if (attrs.Bool("sync") && (attrs.Int("staleness") >= 0 || attrs.Int("geo_every_steps") > 0)) {
      return ctx.Error("staleness and geo_every_steps need sync = false");
    }
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{}; }});
REGISTER_KERNEL(fetch_barrier, MakeKernel<FetchBarrierKernel>);
REGISTER_HOST_OP(fetch_barrier);

}  // namespace
}  // namespace weir
