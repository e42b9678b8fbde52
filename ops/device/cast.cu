#include "ops/device/cast_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

#define WEIR_CAST_TO(To)              \
  WEIR_FOR_EACH(CastAt<To, float>);   \
  WEIR_FOR_EACH(CastAt<To, double>);  \
  WEIR_FOR_EACH(CastAt<To, int32_t>); \
  WEIR_FOR_EACH(CastAt<To, int64_t>); \
  WEIR_FOR_EACH(CastAt<To, bool>);    \
  WEIR_FOR_EACH(CastAt<To, uint8_t>)
WEIR_CAST_TO(float);
WEIR_CAST_TO(double);
WEIR_CAST_TO(int32_t);
WEIR_CAST_TO(int64_t);
WEIR_CAST_TO(bool);
WEIR_CAST_TO(uint8_t);

}  // namespace device
}  // namespace weir
