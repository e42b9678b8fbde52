#include "ops/device/launch.cuh"
#include "ops/device/layer_norm_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(LayerNormMeasureAt);
WEIR_FOR_EACH(LayerNormAt);
WEIR_FOR_EACH(LayerNormScaleTermAt);
WEIR_FOR_EACH(LayerNormRowGradAt);
WEIR_FOR_EACH(LayerNormInputAt);

}  // namespace device
}  // namespace weir
