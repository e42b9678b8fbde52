#include "ops/device/conv2d_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(ColumnsAt);
WEIR_FOR_EACH(ConvOutAt);
WEIR_FOR_EACH(ConvBackAt);
WEIR_FOR_EACH(ConvInputAt);
WEIR_REDUCE(ConvFilterSum);

}  // namespace device
}  // namespace weir
