#include "ops/device/in_batch_softmax_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

WEIR_FOR_EACH(LogAt);
WEIR_FOR_EACH(InBatchScoreAt);
WEIR_REDUCE(InBatchLargest);
WEIR_REDUCE(InBatchLoss);
WEIR_FOR_EACH(InBatchGradAt);

}  // namespace device
}  // namespace weir
