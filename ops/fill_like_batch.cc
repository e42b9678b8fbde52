// fill_like_batch: the seed of backward. `value` in the shape of X; or, with scalar_times_batch, one number: value
// times the examples of the lane. With the role BACKWARD times StepContext.loss_scale.
//
//   X                   [B, ..] or []  f32
//   Out                 like X         f32
//   value               float
//   scalar_times_batch  bool = false: X and Out are []
//
// No gradient.
#include <algorithm>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status FillLikeBatchShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  if (ctx.attrs().Bool("scalar_times_batch")) {
    const Shape x = ctx.InputShape("X");
    if (!x.empty())
      return ctx.Error(absl::StrCat("with scalar_times_batch X must be a scalar, got dims ", ShapeString(x)));
  }
  SetLike(ctx, "Out", "X");
  return absl::OkStatus();
}

class FillLikeBatchKernel : public OpKernel {
 public:
  explicit FillLikeBatchKernel(const KernelInit& init)
      : value_(static_cast<float>(init.attrs.Float("value"))),
        scalar_(init.attrs.Bool("scalar_times_batch")),
        seeds_(init.op.role() == v1::BACKWARD) {}
  absl::Status Run(KernelContext& ctx) override {
    const float unscaled = scalar_ ? value_ * static_cast<float>(ctx.lane_batch[0]) : value_;
    const float value = seeds_ ? unscaled * ctx.step->loss_scale : unscaled;
    const Tensor& x = ctx.input(0);
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, x.dims());
    std::fill_n(out->data<float>(), out->size(), value);
    return absl::OkStatus();
  }

 private:
  const float value_;
  const bool scalar_;
  const bool seeds_;
};

REGISTER_OP(fill_like_batch)
({.type = "fill_like_batch",
  .summary = "a number in the shape of X; or the number times the examples of the lane",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {FloatAttr("value", 1), BoolAttr("scalar_times_batch", false)},
  .shape = FillLikeBatchShape,
  .cost = ElementwiseCost(0)});

REGISTER_KERNEL(fill_like_batch, MakeKernel<FillLikeBatchKernel>);

}  // namespace
}  // namespace weir
