#include "ops/device/launch.cuh"
#include "ops/device/row_losses_functors.h"

namespace weir {
namespace device {

WEIR_FOR_EACH(PairLossAt<PairLossMath<BprTerm>>);
WEIR_FOR_EACH(PairLossGradAt<PairLossMath<BprTerm>>);
WEIR_FOR_EACH(PairLossAt<PairLossMath<PairwiseHingeTerm>>);
WEIR_FOR_EACH(PairLossGradAt<PairLossMath<PairwiseHingeTerm>>);
WEIR_FOR_EACH(PairLossAt<SampledSoftmaxMath>);
WEIR_FOR_EACH(PairLossGradAt<SampledSoftmaxMath>);
WEIR_FOR_EACH(MultiLabelAt);
WEIR_FOR_EACH(MultiLabelGradAt);
WEIR_FOR_EACH(ListwiseSoftmaxAt);
WEIR_FOR_EACH(ListwiseSoftmaxGradAt);

}  // namespace device
}  // namespace weir
