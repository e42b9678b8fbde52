#include "ops/device/dropout_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(DropoutAt);

}  // namespace device
}  // namespace weir
