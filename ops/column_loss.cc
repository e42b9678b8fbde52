#include "ops/column_loss.h"

#include <utility>

#include "ops/fit.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

WEIR_VECTORIZED void MultiplyBy(int64_t n, const float* weight, float* values) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) values[i] = values[i] * weight[i];
}

}  // namespace

OpDef ColumnLossOp(ColumnLoss loss) {
  return {.type = loss.type,
          .summary = loss.summary,
          .inputs = {{loss.x}, {"Label"}, {.name = "Weight", .optional = true}},
          .outputs = {{loss.out}},
          .attrs = loss.attrs,
          .shape = [x = loss.x, out = loss.out, check = loss.check](InferContext& ctx) -> absl::Status {
            if (check) RETURN_IF_ERROR(check(ctx));
            return ColumnLossShape(ctx, x, out);
          },
          .gradient = GradOpRule({loss.x, "Label", "Weight"}, {}, {loss.out}, {loss.x}),
          .cost = ElementwiseCost(loss.flops)};
}

OpDef ColumnLossGradOp(ColumnLoss loss) {
  const std::string dx = GradName(loss.x), dout = GradName(loss.out);
  return {.type = loss.type + "_grad",
          .summary = loss.grad_summary,
          .inputs = {{loss.x}, {"Label"}, {.name = "Weight", .optional = true}, {dout}},
          .outputs = {{dx}},
          .attrs = loss.attrs,
          .shape = ColumnLossGradRule(loss.x, loss.out),
          .cost = ElementwiseCost(loss.grad_flops),
          .in_place = {{dout, dx}}};
}

absl::Status CheckColumnLoss(const Tensor& x, const Tensor& label, const Tensor* weight, const Tensor* out_grad) {
  RETURN_IF_ERROR(CheckTensor("X", x, x.dims()));
  RETURN_IF_ERROR(CheckTensor("Label", label, x.dims()));
  if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", *weight, x.dims()));
  if (out_grad != nullptr) RETURN_IF_ERROR(CheckTensor("the gradient of the loss", *out_grad, x.dims()));
  return absl::OkStatus();
}

void Weigh(const Tensor& weight, Tensor* values) {
  CHECK_EQ(weight.size(), values->size());
  MultiplyBy(values->size(), weight.data<float>(), values->data<float>());
}

}  // namespace weir
