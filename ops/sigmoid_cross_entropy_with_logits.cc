// sigmoid_cross_entropy_with_logits: loss = weight * (log(1 + e^x) - x * label), computed as
// (max(x, 0) - x * label) + log(1 + e^-|x|), so that no logit overflows and a small loss keeps its digits.
//
//   X        [B, 1]  f32, logits
//   Label    [B, 1]  f32, probabilities (0 or 1)
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//
// Gradient: dx = dout * weight * (sigmoid(x) - label).
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

WEIR_VECTORIZED void Forward(SigmoidCrossEntropyMath math, int64_t n, const float* x, const float* label, float* loss) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) loss[i] = math.Loss(x[i], label[i]);
}

WEIR_VECTORIZED void Backward(SigmoidCrossEntropyMath math, int64_t n, const float* x, const float* label,
                              const float* dloss, float* dx) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) dx[i] = math.Dx(x[i], label[i], dloss[i]);
}

struct Loops {
  explicit Loops(const KernelInit&) {}
  void Forward(int64_t n, const float* x, const float* label, float* loss) const {
    weir::Forward(math, n, x, label, loss);
  }
  void Backward(int64_t n, const float* x, const float* label, const float* dloss, float* dx) const {
    weir::Backward(math, n, x, label, dloss, dx);
  }
  const SigmoidCrossEntropyMath math = {};
};

REGISTER_OP(sigmoid_cross_entropy_with_logits)
({.type = "sigmoid_cross_entropy_with_logits",
  .summary = "log(1 + e^x) - x * label, per example",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) { return ColumnLossShape(ctx, "X", "Out"); },
  .gradient = GradOpRule({"X", "Label", "Weight"}, {}, {"Out"}, {"X"}),
  .cost = ElementwiseCost(60)});
REGISTER_OP(sigmoid_cross_entropy_with_logits_grad)
({.type = "sigmoid_cross_entropy_with_logits_grad",
  .summary = "dloss * weight * (sigmoid(x) - label)",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = ColumnLossGradRule("X", "Out"),
  .cost = ElementwiseCost(30),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(sigmoid_cross_entropy_with_logits, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(sigmoid_cross_entropy_with_logits_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
