#include "ops/device/launch.cuh"
#include "ops/device/loss_functors.h"

namespace weir {
namespace device {

#define WEIR_LOSS(Math)        \
  WEIR_FOR_EACH(LossAt<Math>); \
  WEIR_FOR_EACH(LossGradAt<Math>)
WEIR_LOSS(SigmoidCrossEntropyMath);
WEIR_LOSS(SquareErrorMath);
WEIR_LOSS(LogLossMath);

WEIR_FOR_EACH(SoftmaxRowAt);
WEIR_FOR_EACH(SoftmaxGradRowAt);
WEIR_FOR_EACH(SoftmaxLossGradAt);
WEIR_FOR_EACH(DropoutAt);
WEIR_FOR_EACH(FmSumAt);
WEIR_FOR_EACH(FmOutAt);
WEIR_FOR_EACH(FmGradAt);
WEIR_FOR_EACH(FmColumnsGradAt);

}  // namespace device
}  // namespace weir
