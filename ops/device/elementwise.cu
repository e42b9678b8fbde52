#include "ops/device/elementwise_functors.h"
#include "ops/device/launch.cuh"

namespace weir {
namespace device {

#define WEIR_ACTIVATION(Fn)   \
  WEIR_FOR_EACH(UnaryAt<Fn>); \
  WEIR_FOR_EACH(UnaryGradAt<Fn>)
WEIR_ACTIVATION(ReluFn);
WEIR_ACTIVATION(SigmoidFn);
WEIR_ACTIVATION(TanhFn);
WEIR_ACTIVATION(ExpFn);
WEIR_ACTIVATION(SquareFn);

WEIR_FOR_EACH(BiasAt<IdentityFn>);
WEIR_FOR_EACH(BiasAt<ReluFn>);
WEIR_FOR_EACH(BiasAt<SigmoidFn>);
WEIR_FOR_EACH(BiasAt<TanhFn>);

WEIR_FOR_EACH(ScaleAt);
WEIR_FOR_EACH(MultiplyAt);
WEIR_FOR_EACH(ProductAt);
WEIR_FOR_EACH(FillAt);
WEIR_FOR_EACH(FillLanesAt);
WEIR_FOR_EACH(SpreadLanesAt);
WEIR_FOR_EACH(SumAt);
WEIR_FOR_EACH(TreeAt);
WEIR_FOR_EACH(PieceAt);
WEIR_FOR_EACH(RepeatAt);
WEIR_FOR_EACH(ColumnRunAt);
WEIR_REDUCE(ColumnSum);
WEIR_REDUCE(SumOver);
WEIR_REDUCE(LaneMean);

#define WEIR_BINARY(Math)             \
  WEIR_FOR_EACH(BinaryAt<Math>);      \
  WEIR_FOR_EACH(BinaryAlikeAt<Math>); \
  WEIR_FOR_EACH(BinaryDxAt<Math>);    \
  WEIR_FOR_EACH(BinaryDyAt<Math>);    \
  WEIR_REDUCE(BinaryDySum<Math>)
WEIR_BINARY(AddMath);
WEIR_BINARY(SubMath);
WEIR_BINARY(MulMath);
WEIR_BINARY(DivMath);

}  // namespace device
}  // namespace weir
