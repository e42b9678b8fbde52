// known_label: tells examples with a label from those without, whose label is NaN.
//
//   X        [B, 1]  f32
//   Weight?  [B, 1]  f32
//   Out      [B, 1]  f32   the label, 0 where there is none
//   Mask     [B, 1]  f32   the weight, 1 without it; 0 where there is no label
//
// No gradient.
#include <cmath>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class KnownLabelKernel : public OpKernel {
  enum Input { kX, kWeight };
  enum Output { kOut, kMask };

 public:
  explicit KnownLabelKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    RETURN_IF_ERROR(CheckTensor("X", x, {x.size(), 1}));
    const float* const weight = ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() : nullptr;
    if (weight != nullptr) RETURN_IF_ERROR(CheckTensor("Weight", ctx.input(kWeight), x.dims()));
    Tensor *const out = ctx.output(kOut), *const mask = ctx.output(kMask);
    const int64_t n = x.size();
    const float* const labels = x.data<float>();
    out->Resize(v1::FLOAT32, {n, 1});
    mask->Resize(v1::FLOAT32, {n, 1});
    for (int64_t i = 0; i < n; ++i) {
      const bool known = !std::isnan(labels[i]);
      out->data<float>()[i] = known ? labels[i] : 0.0f;
      mask->data<float>()[i] = !known ? 0.0f : weight == nullptr ? 1.0f : weight[i];
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(known_label)
({.type = "known_label",
  .summary = "a label that may be missing, and whether it is there",
  .inputs = {{"X"}, {.name = "Weight", .optional = true}},
  .outputs = {{"Out"}, {"Mask"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectColumn(ctx, "X"));
    RETURN_IF_ERROR(ExpectAlike(ctx, {"X", "Weight"}));
    SetLike(ctx, "Out", "X");
    SetLike(ctx, "Mask", "X");
    return absl::OkStatus();
  },
  .cost = ElementwiseCost(2)});

REGISTER_KERNEL(known_label, MakeKernel<KnownLabelKernel>);

}  // namespace
}  // namespace weir
