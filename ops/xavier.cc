// xavier: Glorot's variance 2 / (fan_in + fan_out), uniform or normal, each element a function of (seed, variable,
// element)
//
//   Out  `shape`  f32: elements [element_begin, element_begin + product of shape) of `variable`
//
// The fans are those of the whole variable, which a piece cannot know: they must be given.
#include "absl/strings/str_cat.h"
#include "ops/random_init.h"

namespace weir {
namespace {

OpDef Definition() {
  OpDef def =
      MakeRandomInitOp("xavier", "variance 2 / (fan_in + fan_out)",
                       {BoolAttr("uniform", true), Required(IntAttr("fan_in", 0)), Required(IntAttr("fan_out", 0))});
  def.shape = [rest = def.shape](InferContext& ctx) -> absl::Status {
    const int64_t fan_in = ctx.attrs().Int("fan_in"), fan_out = ctx.attrs().Int("fan_out");
    if (fan_in < 1 || fan_out < 1) {
      return ctx.Error(
          std::string(absl::StrCat("fan_in and fan_out must be positive, got ", fan_in, " and ", fan_out)));
    }
    return rest(ctx);
  };
  return def;
}

REGISTER_OP(xavier)(Definition());
REGISTER_KERNEL(xavier, [](const KernelInit& init) {
  v1::Initializer initializer;
  initializer.mutable_xavier()->set_uniform(init.attrs.Bool("uniform"));
  initializer.mutable_xavier()->set_fan_in(init.attrs.Int("fan_in"));
  initializer.mutable_xavier()->set_fan_out(init.attrs.Int("fan_out"));
  return MakeRandomInitKernel(init.attrs, initializer);
});

}  // namespace
}  // namespace weir
