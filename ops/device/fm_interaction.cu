#include "ops/device/fm_interaction_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(FmSumAt);
WEIR_FOR_EACH(FmOutAt);
WEIR_FOR_EACH(FmGradAt);
WEIR_FOR_EACH(FmColumnsGradAt);

}  // namespace device
}  // namespace weir
