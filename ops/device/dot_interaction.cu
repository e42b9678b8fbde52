#include "ops/device/dot_interaction_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(PairsAt);
WEIR_FOR_EACH(PairGradientsAt);

}  // namespace device
}  // namespace weir
