#include "ops/device/launch.cuh"
#include "ops/device/losses_functors.h"

namespace weir {
namespace device {

#define WEIR_LOSS(Math)        \
  WEIR_FOR_EACH(LossAt<Math>); \
  WEIR_FOR_EACH(LossGradAt<Math>)
WEIR_LOSS(SigmoidCrossEntropyMath);
WEIR_LOSS(SquareErrorMath);
WEIR_LOSS(LogLossMath);
WEIR_LOSS(FocalLossMath);
WEIR_LOSS(HingeLossMath);
WEIR_LOSS(HuberLossMath);
WEIR_LOSS(PoissonLossMath);
WEIR_LOSS(QuantileLossMath);

WEIR_FOR_EACH(SoftmaxRowAt);
WEIR_FOR_EACH(SoftmaxGradRowAt);
WEIR_FOR_EACH(SoftmaxLossGradAt);

}  // namespace device
}  // namespace weir
