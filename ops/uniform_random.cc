// uniform_random: elements uniform in [min, max), each a function of (seed, variable, element)
//
//   Out  `shape`  f32: elements [element_begin, element_begin + product of shape) of `variable`
#include "ops/random_init.h"

namespace weir {
namespace {

REGISTER_OP(uniform_random)
(MakeRandomInitOp("uniform_random", "uniform in [min, max)", {FloatAttr("min", -1), FloatAttr("max", 1)}));
REGISTER_KERNEL(uniform_random, [](const KernelInit& init) {
  v1::Initializer initializer;
  initializer.mutable_uniform()->set_min(init.attrs.Float("min"));
  initializer.mutable_uniform()->set_max(init.attrs.Float("max"));
  return MakeRandomInitKernel(init.attrs, initializer);
});

}  // namespace
}  // namespace weir
