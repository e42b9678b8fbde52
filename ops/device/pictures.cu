#include "ops/device/launch.cuh"
#include "ops/device/picture_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(ColumnsAt);
WEIR_FOR_EACH(ConvOutAt);
WEIR_FOR_EACH(ConvBackAt);
WEIR_FOR_EACH(ConvInputAt);
WEIR_REDUCE(ConvFilterSum);

WEIR_FOR_EACH(PoolMaxAt);
WEIR_FOR_EACH(PoolGreatestAt);
WEIR_FOR_EACH(PoolAverageAt);
WEIR_FOR_EACH(PoolInputAt);

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
