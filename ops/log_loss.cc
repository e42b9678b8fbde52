// log_loss: loss = weight * (-label * log(p + epsilon) - (1 - label) * log(1 - p + epsilon)).
//
//   Predicted  [B, 1]  f32, probabilities
//   Label      [B, 1]  f32, probabilities (0 or 1)
//   Weight?    [B, 1]  f32
//   Loss       [B, 1]  f32
//   epsilon    float = 1e-4, not negative
//
// Gradient: dp = dloss * weight * ((1 - label) / (1 - p + epsilon) - label / (p + epsilon)).
#include <memory>

#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/column_loss.h"
#include "ops/loss_math.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void Forward(LogLossMath math, int64_t n, const float* p, const float* label, float* loss) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) loss[i] = math.Loss(p[i], label[i]);
}

WEIR_VECTORIZED void Backward(LogLossMath math, int64_t n, const float* p, const float* label, const float* dloss,
                              float* dp) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dp[i] = math.Dx(p[i], label[i], dloss[i]);
}

struct Loops {
  explicit Loops(const KernelInit& init) : math{static_cast<float>(init.attrs.Float("epsilon"))} {}
  void Forward(int64_t n, const float* p, const float* label, float* loss) const {
    weir::Forward(math, n, p, label, loss);
  }
  void Backward(int64_t n, const float* p, const float* label, const float* dloss, float* dp) const {
    weir::Backward(math, n, p, label, dloss, dp);
  }
  const LogLossMath math;
};

absl::Status LogLossShape(InferContext& ctx) {
  const double epsilon = ctx.attrs().Float("epsilon");
  if (!(epsilon >= 0)) return ctx.Error(absl::StrCat("epsilon must not be negative, got ", epsilon));
  return ColumnLossShape(ctx, "Predicted", "Loss");
}

// Value of PaddlePaddle Fluid.
constexpr double kEpsilon = 1e-4;

REGISTER_OP(log_loss)
({.type = "log_loss",
  .summary = "cross entropy of probabilities, per example",
  .inputs = {{"Predicted"}, {"Label"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Loss"}},
  .attrs = {FloatAttr("epsilon", kEpsilon)},
  .shape = LogLossShape,
  .gradient = GradOpRule({"Predicted", "Label", "Weight"}, {}, {"Loss"}, {"Predicted"}),
  .cost = ElementwiseCost(60)});
REGISTER_OP(log_loss_grad)
({.type = "log_loss_grad",
  .summary = "gradient of log_loss",
  .inputs = {{"Predicted"}, {"Label"}, {.name = "Weight", .optional = true}, {"Loss@GRAD"}},
  .outputs = {{"Predicted@GRAD"}},
  .attrs = {FloatAttr("epsilon", kEpsilon)},
  .shape = ColumnLossGradRule("Predicted", "Loss"),
  .cost = ElementwiseCost(10),
  .in_place = {{"Loss@GRAD", "Predicted@GRAD"}}});

REGISTER_KERNEL(log_loss, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(log_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
