// square_error: (input - label)^2. The prediction is the input.
#include "framework/base/status_macros.h"
#include "transpiler/losses/loss.h"

namespace weir {
namespace {

absl::Status Build(const v1::SquareError& m, ModelContext& ctx, v1::LossDesc* loss) {
  loss->set_prediction(m.input());
  return AppendLoss(ctx,
                    {.type = "square_error",
                     .x_slot = "X",
                     .x = m.input(),
                     .x_field = "input",
                     .label = m.label(),
                     .sample_weight = m.sample_weight()},
                    loss);
}
REGISTER_LOSS(square_error, v1::SquareError, Build, {.kind = v1::LossDesc::REGRESSION});

}  // namespace
}  // namespace weir
