#include "ops/device/launch.cuh"
#include "ops/device/lookup_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(GatherAt);
WEIR_FOR_EACH(PlaceAt);
WEIR_FOR_EACH(PoolAt);
WEIR_FOR_EACH(SegmentAt);
WEIR_FOR_EACH(AddRowsAt);
WEIR_REDUCE(JoinRuns);

}  // namespace device
}  // namespace weir
