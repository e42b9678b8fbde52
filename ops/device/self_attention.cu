#include "ops/device/launch.cuh"
#include "ops/device/self_attention_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(AttentionProductAt);
WEIR_FOR_EACH(AttentionSoftmaxAt);
WEIR_FOR_EACH(AttentionScoreGradAt);
WEIR_FOR_EACH(AttentionRowSumAt);
WEIR_FOR_EACH(AttentionColumnSumAt);

}  // namespace device
}  // namespace weir
