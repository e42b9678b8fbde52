#include "ops/device/launch.cuh"
#include "ops/device/learned_weight_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(LearnedWeightAt);
WEIR_FOR_EACH(LearnedWeightGradAt);
WEIR_REDUCE(LogVarianceGradOf);

}  // namespace device
}  // namespace weir
