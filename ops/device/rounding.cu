#include "ops/device/launch.cuh"
#include "ops/device/rounding_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(ToBFloat16At);
WEIR_FOR_EACH(ToFloat16At);

}  // namespace device
}  // namespace weir
