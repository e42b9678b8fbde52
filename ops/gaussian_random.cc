// gaussian_random: normally distributed elements, each a function of (seed, variable, element)
//
//   Out  `shape`  f32: elements [element_begin, element_begin + product of shape) of `variable`
#include "ops/random_init.h"

namespace weir {
namespace {

REGISTER_OP(gaussian_random)
(MakeRandomInitOp("gaussian_random", "normal with mean and stddev", {FloatAttr("mean", 0), FloatAttr("stddev", 1)}));
REGISTER_KERNEL(gaussian_random, [](const KernelInit& init) {
  v1::Initializer initializer;
  initializer.mutable_gaussian()->set_mean(init.attrs.Float("mean"));
  initializer.mutable_gaussian()->set_stddev(init.attrs.Float("stddev"));
  return MakeRandomInitKernel(init.attrs, initializer);
});

}  // namespace
}  // namespace weir
