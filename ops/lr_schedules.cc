// Learning-rate schedules: ops/lr_schedule_op.h, formulas below; lr is the attribute learning_rate.
//
//   lr_constant      lr
//   lr_exponential   lr decay_rate^q,           q = t / decay_steps, with staircase rounded down
//   lr_natural_exp   lr e^(-decay_rate q)
//   lr_inverse_time  lr / (1 + decay_rate q)
//   lr_polynomial    (lr - end) (1 - min(t, n) / n)^power + end,  n = decay_steps, with cycle times
//                    ceil(t / decay_steps), at least 1; end is the attribute end_learning_rate
//   lr_piecewise     values[i], i the number of boundaries that are not above t
//   lr_noam          lr d_model^-0.5 min((t + 1)^-0.5, (t + 1) warmup_steps^-1.5)
//   lr_cosine        end + (lr - end) (1 + cos(pi min(t, decay_steps) / decay_steps)) / 2
//   lr_warm_up       start + (end - start) t / steps while t < steps, then X
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/lr_schedule_op.h"

namespace weir {
namespace {

// OK when the integer attribute is at least 1: it divides.
absl::Status CheckSteps(InferContext& ctx, const char* attr) {
  const int64_t steps = ctx.attrs().Int(attr);
  if (steps >= 1) return absl::OkStatus();
  return ctx.Error(absl::StrCat(attr, " must be at least 1, got ", steps));
}
absl::Status CheckDecaySteps(InferContext& ctx) { return CheckSteps(ctx, "decay_steps"); }

REGISTER_OP(lr_constant)
(MakeScheduleOp(
    {.type = "lr_constant", .summary = "the learning rate", .attrs = {Required(FloatAttr("learning_rate", 0))}}));
REGISTER_KERNEL(lr_constant, [](const KernelInit& init) {
  return MakeScheduleKernel([lr = init.attrs.Float("learning_rate")](int64_t, double) { return lr; });
});

// t / decay_steps.
struct Quotient {
  explicit Quotient(const AttrReader& attrs)
      : lr(attrs.Float("learning_rate")),
        rate(attrs.Float("decay_rate")),
        steps(static_cast<double>(attrs.Int("decay_steps"))),
        staircase(attrs.Bool("staircase")) {}
  double At(int64_t t) const {
    const double q = static_cast<double>(t) / steps;
    return staircase ? std::floor(q) : q;
  }
  double lr, rate, steps;
  bool staircase;
};

std::vector<AttrDef> QuotientAttrs() {
  return {Required(FloatAttr("learning_rate", 0)), Required(IntAttr("decay_steps", 1)),
          Required(FloatAttr("decay_rate", 0)), BoolAttr("staircase", false)};
}

REGISTER_OP(lr_exponential)
(MakeScheduleOp({.type = "lr_exponential",
                 .summary = "lr decay_rate^(t / decay_steps)",
                 .attrs = QuotientAttrs(),
                 .check = CheckDecaySteps}));
REGISTER_KERNEL(lr_exponential, [](const KernelInit& init) {
  return MakeScheduleKernel([c = Quotient(init.attrs)](int64_t t, double) { return c.lr * std::pow(c.rate, c.At(t)); });
});

REGISTER_OP(lr_natural_exp)
(MakeScheduleOp({.type = "lr_natural_exp",
                 .summary = "lr e^(-decay_rate t / decay_steps)",
                 .attrs = QuotientAttrs(),
                 .check = CheckDecaySteps}));
REGISTER_KERNEL(lr_natural_exp, [](const KernelInit& init) {
  return MakeScheduleKernel(
      [c = Quotient(init.attrs)](int64_t t, double) { return c.lr * std::exp(-c.rate * c.At(t)); });
});

REGISTER_OP(lr_inverse_time)
(MakeScheduleOp({.type = "lr_inverse_time",
                 .summary = "lr / (1 + decay_rate t / decay_steps)",
                 .attrs = QuotientAttrs(),
                 .check = CheckDecaySteps}));
REGISTER_KERNEL(lr_inverse_time, [](const KernelInit& init) {
  return MakeScheduleKernel([c = Quotient(init.attrs)](int64_t t, double) { return c.lr / (1 + c.rate * c.At(t)); });
});

absl::StatusOr<std::unique_ptr<OpKernel>> Polynomial(const KernelInit& init) {
  const double lr = init.attrs.Float("learning_rate"), end = init.attrs.Float("end_learning_rate");
  const double decay_steps = static_cast<double>(init.attrs.Int("decay_steps")), power = init.attrs.Float("power");
  const bool cycle = init.attrs.Bool("cycle");
  return MakeScheduleKernel([=](int64_t step, double) {
    const double t = static_cast<double>(step);
    const double n = cycle ? decay_steps * std::max(1.0, std::ceil(t / decay_steps)) : decay_steps;
    return (lr - end) * std::pow(1 - std::min(t, n) / n, power) + end;
  });
}

REGISTER_OP(lr_polynomial)
(MakeScheduleOp({.type = "lr_polynomial",
                 .summary = "(lr - end) (1 - t / decay_steps)^power + end",
                 .attrs = {Required(FloatAttr("learning_rate", 0)), Required(IntAttr("decay_steps", 1)),
                           FloatAttr("end_learning_rate", 0.0001), FloatAttr("power", 1), BoolAttr("cycle", false)},
                 .check = CheckDecaySteps}));
REGISTER_KERNEL(lr_polynomial, Polynomial);

REGISTER_OP(lr_piecewise)
(MakeScheduleOp({.type = "lr_piecewise",
                 .summary = "values[i] while t < boundaries[i]",
                 .attrs = {Required(IntsAttr("boundaries")), Required(FloatsAttr("values"))},
                 .check = [](InferContext& ctx) -> absl::Status {
                   const size_t values = ctx.attrs().Floats("values").size();
                   const std::vector<int64_t> boundaries = ctx.attrs().Ints("boundaries");
                   if (values != boundaries.size() + 1) {
                     return ctx.Error(absl::StrCat("needs one value more than boundaries, got ", values, " values and ",
                                                   boundaries.size(), " boundaries"));
                   }
                   if (!std::is_sorted(boundaries.begin(), boundaries.end()))
                     return ctx.Error("boundaries must ascend");
                   return absl::OkStatus();
                 }}));
REGISTER_KERNEL(lr_piecewise, [](const KernelInit& init) {
  return MakeScheduleKernel(
      [boundaries = init.attrs.Ints("boundaries"), values = init.attrs.Floats("values")](int64_t t, double) {
        const auto after = std::upper_bound(boundaries.begin(), boundaries.end(), t);
        return values[static_cast<size_t>(after - boundaries.begin())];
      });
});

absl::StatusOr<std::unique_ptr<OpKernel>> Noam(const KernelInit& init) {
  const double scale = init.attrs.Float("learning_rate") / std::sqrt(init.attrs.Float("d_model"));
  const double warmup = static_cast<double>(init.attrs.Int("warmup_steps"));
  return MakeScheduleKernel([=](int64_t step, double) {
    const double t = static_cast<double>(step) + 1;
    return scale * std::min(1 / std::sqrt(t), t / (warmup * std::sqrt(warmup)));
  });
}

REGISTER_OP(lr_noam)
(MakeScheduleOp({.type = "lr_noam",
                 .summary = "lr d_model^-0.5 min((t + 1)^-0.5, (t + 1) warmup_steps^-1.5)",
                 .attrs = {Required(FloatAttr("learning_rate", 0)), Required(FloatAttr("d_model", 1)),
                           Required(IntAttr("warmup_steps", 1))},
                 .check = [](InferContext& ctx) { return CheckSteps(ctx, "warmup_steps"); }}));
REGISTER_KERNEL(lr_noam, Noam);

absl::StatusOr<std::unique_ptr<OpKernel>> Cosine(const KernelInit& init) {
  const double lr = init.attrs.Float("learning_rate"), end = init.attrs.Float("end_learning_rate");
  const double decay_steps = static_cast<double>(init.attrs.Int("decay_steps"));
  return MakeScheduleKernel([=](int64_t step, double) {
    const double part = std::min(static_cast<double>(step), decay_steps) / decay_steps;
    return end + (lr - end) * (1 + std::cos(M_PI * part)) / 2;
  });
}

REGISTER_OP(lr_cosine)
(MakeScheduleOp({.type = "lr_cosine",
                 .summary = "half a cosine from lr to end_learning_rate in decay_steps",
                 .attrs = {Required(FloatAttr("learning_rate", 0)), Required(IntAttr("decay_steps", 1)),
                           FloatAttr("end_learning_rate", 0)},
                 .check = CheckDecaySteps}));
REGISTER_KERNEL(lr_cosine, Cosine);

absl::StatusOr<std::unique_ptr<OpKernel>> WarmUp(const KernelInit& init) {
  const double start = init.attrs.Float("start"), end = init.attrs.Float("end");
  const int64_t steps = init.attrs.Int("steps");
  return MakeScheduleKernel([=](int64_t t, double x) {
    return t >= steps ? x : start + (end - start) * static_cast<double>(t) / static_cast<double>(steps);
  });
}

REGISTER_OP(lr_warm_up)
(MakeScheduleOp({.type = "lr_warm_up",
                 .summary = "from start to end in steps, then X",
                 .attrs = {Required(IntAttr("steps", 1)), Required(FloatAttr("start", 0)),
                           Required(FloatAttr("end", 0))},
                 .behind_another = true,
                 .check = [](InferContext& ctx) { return CheckSteps(ctx, "steps"); }}));
REGISTER_KERNEL(lr_warm_up, WarmUp);

}  // namespace
}  // namespace weir
