#include "ops/device/bilinear_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(BilinearLeftAt);
WEIR_FOR_EACH(BilinearAt);
WEIR_FOR_EACH(BilinearProductGradAt);
WEIR_FOR_EACH(BilinearVectorGradAt);

}  // namespace device
}  // namespace weir
