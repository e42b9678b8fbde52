#include "ops/device/dot_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(DotAt);
WEIR_FOR_EACH(DotXGradAt);
WEIR_FOR_EACH(DotYGradAt);
WEIR_FOR_EACH(KnownLabelAt);

}  // namespace device
}  // namespace weir
