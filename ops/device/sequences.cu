#include "ops/device/launch.cuh"
#include "ops/device/sequences_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(SequencePoolAt);
WEIR_FOR_EACH(SequencePoolGradAt);
WEIR_FOR_EACH(LargestGradAt);
WEIR_FOR_EACH(AttentionPairsAt);
WEIR_FOR_EACH(QueryGradAt);
WEIR_FOR_EACH(ElementGradAt);
WEIR_FOR_EACH(AttentionWeightsAt);
WEIR_FOR_EACH(WeighedSumAt);
WEIR_FOR_EACH(WeightGradAt);
WEIR_FOR_EACH(SoftmaxScoresGradAt);
WEIR_FOR_EACH(WeighedElementGradAt);
WEIR_FOR_EACH(AddPositionsAt);
WEIR_FOR_EACH(ElementsAt);
WEIR_FOR_EACH(PositionGradAt);

}  // namespace device
}  // namespace weir
