#include "ops/device/batch_norm_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

#define WEIR_CHANNEL_SUM(Functor) \
  WEIR_REDUCE(Functor);           \
  WEIR_FOR_EACH(OnlyTermAt<Functor>)
WEIR_CHANNEL_SUM(NormSum);
WEIR_CHANNEL_SUM(NormSquares);
WEIR_CHANNEL_SUM(NormBackSum);
WEIR_CHANNEL_SUM(NormBackProducts);

WEIR_FOR_EACH(NormMeanAt);
WEIR_FOR_EACH(NormRunningAt);
WEIR_FOR_EACH(NormFactorAt);
WEIR_FOR_EACH(NormAt);
WEIR_FOR_EACH(NormSlopeAt);
WEIR_FOR_EACH(NormInputAt);
WEIR_FOR_EACH(NormTimesExamplesAt);

}  // namespace device
}  // namespace weir
