#include "ops/device/launch.cuh"
#include "ops/device/prelu_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(PreluAt);
WEIR_FOR_EACH(PreluInputAt);
WEIR_FOR_EACH(PreluSlopeTermAt);
WEIR_FOR_EACH(PreluRowTermAt);
WEIR_FOR_EACH(DiceInverseAt);
WEIR_FOR_EACH(DiceAt);
WEIR_FOR_EACH(DiceTermAt);
WEIR_FOR_EACH(DiceInputAt);

}  // namespace device
}  // namespace weir
