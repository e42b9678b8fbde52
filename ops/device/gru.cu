#include "ops/device/gru_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(GruStepAt);
WEIR_FOR_EACH(GruStepGradAt);
WEIR_FOR_EACH(GruElementAt);

}  // namespace device
}  // namespace weir
