// send_barrier: ends the step's pushes
//
//   X*  losses [B, 1], of every lane
//
// Losses and all gradients that send has seen must be finite. If not, nan_policy says: stop, an error that names the
// variable; skip, the verdict SKIP (in sync one SKIP skips the step for all). The sample count is that of all lanes of
// this process.
//
// Gradients that are not finite where StepContext.loss_scale is above 1 have overflown: the verdict is SKIP whatever
// the policy. Losses are not scaled.
//
// StepContext.step counts runs of the program; StepContext.runs_per_step of them make a step, and the channel adds up
// their gradients. `accumulate` and `workers` say that number in programs of format version 1
// (framework/graph/training_mode.h).
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/channel_op.h"
#include "ops/finite.h"

namespace weir {
namespace {

class SendBarrierKernel : public OpKernel {
 public:
  explicit SendBarrierKernel(const KernelInit& init)
      : losses_(VarsOfInput(init.op, "X")), skip_(init.attrs.String("nan_policy") == "skip") {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(StepChannel * channel, ChannelOf(ctx));
    bool is_loss = false;
    const std::string bad = NonFinite(ctx, &is_loss);
    const bool overflow = !is_loss && ctx.step->loss_scale > 1;
    if (!bad.empty() && !skip_ && !overflow) {
      return absl::FailedPreconditionError(absl::StrCat(
          "'", bad, "' is not finite at step ", ctx.step->step / ctx.step->runs_per_step,
          "; a smaller learning rate or checked data may help, train.nan_policy: SKIP_STEP leaves such steps out"));
    }
    int64_t samples = 0;
    for (int lane = 0; lane < ctx.lanes(); ++lane) samples += ctx.lane_batch[lane];
    return channel->FinishSends(samples, bad.empty() ? v1::APPLY : v1::SKIP);
  }

 private:
  // Returns the name of the loss if it is not finite, else the variable that send reported, else "".
  std::string NonFinite(const KernelContext& ctx, bool* is_loss) const {
    for (size_t i = 0; i < losses_.size(); ++i) {
      for (int lane = 0; lane < ctx.lanes(); ++lane) {
        const Tensor* loss = std::get_if<Tensor>(&ctx.lane_input(lane, 0, static_cast<int>(i)));
        if (ctx.lane_batch[lane] == 0 || loss == nullptr || loss->size() == 0) continue;
        if (!AllFinite(loss->data<float>(), loss->size())) {
          if (ctx.step->health != nullptr) ctx.step->health->ReportNonFinite(losses_[i]);
          *is_loss = true;
          return losses_[i];
        }
      }
    }
    return ctx.step->health == nullptr ? "" : ctx.step->health->non_finite();
  }

  const std::vector<std::string> losses_;
  const bool skip_;
};

REGISTER_OP(send_barrier)
({.type = "send_barrier",
  .summary = "ends the step's pushes with samples and verdict",
  .inputs = {{.name = "X", .optional = true, .variadic = true}},
  .attrs = {StringAttr("nan_policy", "stop"), IntAttr("accumulate", 1), IntAttr("workers", 1)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const std::string policy = ctx.attrs().String("nan_policy");
    if (policy != "stop" && policy != "skip") return ctx.Error("nan_policy must be stop or skip, got '" + policy + "'");
    for (const char* count : {"accumulate", "workers"}) {
      const int64_t n = ctx.attrs().Int(count);
      if (n < 1 || n > 1 << 20)
        return ctx.Error(std::string(count) + " must be in [1, 1048576], got " + std::to_string(n));
    }
    for (int i = 0; i < ctx.InputCount("X"); ++i) {
      if (ctx.Input("X", i).dtype() != v1::FLOAT32) return ctx.Error(ctx.Input("X", i).name() + " must be FLOAT32");
    }
    return absl::OkStatus();
  },
  .cost = [](InferContext&) { return Cost{}; }});
REGISTER_KERNEL(send_barrier, MakeKernel<SendBarrierKernel>);
REGISTER_HOST_OP(send_barrier);

}  // namespace
}  // namespace weir
