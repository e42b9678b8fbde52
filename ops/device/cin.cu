#include "ops/device/cin_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(CinTermsAt);
WEIR_FOR_EACH(CinResultAt);
WEIR_FOR_EACH(CinMatrixAt);
WEIR_FOR_EACH(CinVectorGradAt);

}  // namespace device
}  // namespace weir
