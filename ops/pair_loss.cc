#include "ops/pair_loss.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/fit.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status ExpectPair(const InferContext& ctx) {
  RETURN_IF_ERROR(ExpectColumn(ctx, "Positive"));
  RETURN_IF_ERROR(ExpectDense(ctx, "Negative"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Negative", 2));
  const Shape positive = ctx.InputShape("Positive"), negative = ctx.InputShape("Negative");
  if (negative[0] != positive[0] || negative[1] < 1) {
    return ctx.Error(absl::StrCat("Negative must be [", positive[0],
                                  ", N], with at least one negative for each "
                                  "positive, got ",
                                  ShapeString(negative), " (variable ", ctx.Input("Negative").name(), ")"));
  }
  return ExpectAlike(ctx, {"Positive", "Weight"});
}

CostRule PerNegative(double flops) {
  return [flops](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = flops * Elements(ctx.Input("Negative"));
    return cost;
  };
}

}  // namespace

OpDef PairLossOp(PairLoss loss) {
  return {.type = loss.type,
          .summary = loss.summary,
          .inputs = {{"Positive"}, {"Negative"}, {.name = "Weight", .optional = true}},
          .outputs = {{"Out"}},
          .attrs = loss.attrs,
          .shape = [check = loss.check](InferContext& ctx) -> absl::Status {
            if (check) RETURN_IF_ERROR(check(ctx));
            RETURN_IF_ERROR(ExpectPair(ctx));
            SetLike(ctx, "Out", "Positive");
            return absl::OkStatus();
          },
          .gradient = GradOpRule({"Positive", "Negative", "Weight"}, {}, {"Out"}, {"Positive", "Negative"}),
          .cost = PerNegative(loss.flops)};
}

OpDef PairLossGradOp(PairLoss loss) {
  return {.type = loss.type + "_grad",
          .summary = loss.grad_summary,
          .inputs = {{"Positive"}, {"Negative"}, {.name = "Weight", .optional = true}, {"Out@GRAD"}},
          .outputs = {{.name = "Positive@GRAD", .optional = true}, {.name = "Negative@GRAD", .optional = true}},
          .attrs = loss.attrs,
          .shape = [](InferContext& ctx) -> absl::Status {
            RETURN_IF_ERROR(ExpectPair(ctx));
            RETURN_IF_ERROR(ExpectAlike(ctx, {"Positive", "Out@GRAD"}));
            if (ctx.OutputCount("Positive@GRAD") > 0) SetLike(ctx, "Positive@GRAD", "Positive");
            if (ctx.OutputCount("Negative@GRAD") > 0) SetLike(ctx, "Negative@GRAD", "Negative");
            return absl::OkStatus();
          },
          .cost = PerNegative(loss.grad_flops)};
}

absl::Status CheckPairLoss(const Tensor& positive, const Tensor& negative, const Tensor* weight,
                           const Tensor* out_grad) {
  RETURN_IF_ERROR(CheckRank("Negative", negative, 2));
  const Shape column = {negative.dim(0), 1};
  if (negative.dim(1) < 1) return absl::InvalidArgumentError("Negative has no column");
  RETURN_IF_ERROR(CheckTensor("Positive", positive, column));
  if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", *weight, column));
  return out_grad == nullptr ? absl::OkStatus() : CheckTensor("Out@GRAD", *out_grad, column);
}

}  // namespace weir
