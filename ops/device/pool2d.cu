#include "ops/device/launch.cuh"
#include "ops/device/pool2d_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(PoolMaxAt);
WEIR_FOR_EACH(PoolGreatestAt);
WEIR_FOR_EACH(PoolAverageAt);
WEIR_FOR_EACH(PoolInputAt);

}  // namespace device
}  // namespace weir
