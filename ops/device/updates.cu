#include "ops/device/launch.cuh"
#include "ops/device/updates_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(UpdateAt<SgdMath>);
WEIR_FOR_EACH(UpdateAt<MomentumMath<false>>);
WEIR_FOR_EACH(UpdateAt<MomentumMath<true>>);
WEIR_FOR_EACH(UpdateAt<AdagradMath>);
WEIR_FOR_EACH(UpdateAt<AdamMath>);
WEIR_FOR_EACH(UpdateAt<RunningAverageMath>);

}  // namespace device
}  // namespace weir
