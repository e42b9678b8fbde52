// lars_momentum: rate = lr lars_coeff |w| / (|g| + lars_weight_decay |w| + epsilon), lr when either norm is 0;
//                v = mu v + rate (g + lars_weight_decay w);  w -= v
//
//   Param, Grad          any shape, or merged selected rows of Param for Grad
//   Velocity             shape of Param, initially 0
//   ParamNorm, GradNorm  [1] float64, from whole_norm: |w| and |g| of the whole parameter
//
// Lazy on rows: |g| is over the rows of the step, |w| over all rows, and only the rows of the step change. No row form
// for tables. Arithmetic in ops/norm_math.h.
#include "ops/norm_math.h"
#include "ops/norm_update.h"

namespace weir {
namespace {

constexpr int kParamNorm = 4, kGradNorm = 5;

class LarsMomentumKernel : public OpKernel {
 public:
  explicit LarsMomentumKernel(const KernelInit& init)
      : mu_(static_cast<float>(init.attrs.Float("mu"))),
        coeff_(init.attrs.Float("lars_coeff")),
        decay_(init.attrs.Float("lars_weight_decay")),
        epsilon_(init.attrs.Float("epsilon")) {}

  absl::Status Run(KernelContext& ctx) override {
    ASSIGN_OR_RETURN(const UpdateArgs a, CheckUpdate(ctx, LarsMath::kStates, LarsMath::kCounts));
    if (a.absent) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double param_norm, ReadNorm(ctx, kParamNorm, "ParamNorm"));
    ASSIGN_OR_RETURN(const double grad_norm, ReadNorm(ctx, kGradNorm, "GradNorm"));
    const LarsMath::Step c = {mu_, LarsMath::Rate(a.lr, coeff_, decay_, epsilon_, param_norm, grad_norm),
                              static_cast<float>(decay_)};
    const float* const g = a.dense != nullptr ? a.dense->data<float>() : a.selected->values.data<float>();
    ForUpdated(a, ctx.step->pool, [&](int64_t begin, int64_t n, int64_t row) {
      UpdateLoops<LarsMath>::Dense(c, n, g + (row < 0 ? begin : row * a.width), a.param + begin, a.state[0] + begin,
                                   nullptr, nullptr);
    });
    return absl::OkStatus();
  }

 private:
  const float mu_;
  const double coeff_, decay_, epsilon_;
};

REGISTER_OP(lars_momentum)
(WithNorms(MakeUpdateOp("lars_momentum", "momentum with a rate for each parameter, by |w| / |g|",
                        {FloatAttr("mu", 0.9), FloatAttr("lars_coeff", 0.001), FloatAttr("lars_weight_decay", 0.0005),
                         FloatAttr("epsilon", 0)},
                        {{.slot = "Velocity"}}, 6),
           {"ParamNorm", "GradNorm"}));
REGISTER_KERNEL(lars_momentum, MakeKernel<LarsMomentumKernel>);

}  // namespace
}  // namespace weir
