#include "ops/device/interaction_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(CrossAt);
WEIR_FOR_EACH(CrossGradAt);
WEIR_FOR_EACH(PairsAt);
WEIR_FOR_EACH(PairGradientsAt);

}  // namespace device
}  // namespace weir
