#include "ops/device/cross_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(CrossAt);
WEIR_FOR_EACH(CrossGradAt);

}  // namespace device
}  // namespace weir
