// square_error: loss = weight * (x - label)^2.
//
//   X        [B, 1]  f32
//   Label    [B, 1]  f32
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32
//
// Gradient: dx = dout * weight * 2 * (x - label).
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

WEIR_VECTORIZED void Forward(SquareErrorMath math, int64_t n, const float* x, const float* label, float* loss) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) loss[i] = math.Loss(x[i], label[i]);
}

WEIR_VECTORIZED void Backward(SquareErrorMath math, int64_t n, const float* x, const float* label, const float* dloss,
                              float* dx) {
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
  const SquareErrorMath math = {};
};

REGISTER_OP(square_error)
({.type = "square_error",
  .summary = "(x - label)^2, per example",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Out"}},
  .shape = [](InferContext& ctx) { return ColumnLossShape(ctx, "X", "Out"); },
  .gradient = GradOpRule({"X", "Label", "Weight"}, {}, {"Out"}, {"X"}),
  .cost = ElementwiseCost(3)});
REGISTER_OP(square_error_grad)
({.type = "square_error_grad",
  .summary = "dloss * weight * 2 * (x - label)",
  .inputs = {{"X"}, {"Label"}, {.name = "Weight", .optional = true}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .shape = ColumnLossGradRule("X", "Out"),
  .cost = ElementwiseCost(4),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(square_error, MakeKernel<ColumnLossKernel<Loops>>);
REGISTER_KERNEL(square_error_grad, MakeKernel<ColumnLossGradKernel<Loops>>);

}  // namespace
}  // namespace weir
