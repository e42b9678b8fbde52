// dropout: in training, each element is dropped with probability `rate`, and those that stay are divided by 1 - rate;
// otherwise the identity.
//
//   X      [B, ..]  f32
//   Out    like X   f32
//   Mask   like X   f32: 0, or 1 / (1 - rate); 1 when not training
//   rate   float in [0, 1)
//   layer  string: names the layer in the random numbers
//
// Element e is a function of (seed, layer, step, lane of the job, e) alone: Philox with the key made of seed and layer,
// the counter (e / 4; step and lane), the word e mod 4.
//
// Gradient (dropout_grad): dX = dOut * Mask.
#include <algorithm>
#include <memory>

#include "framework/base/philox.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void FillMask(int64_t n, uint64_t key, uint64_t counter_high, float rate, float* mask) {
  const float keep = 1.0f / (1.0f - rate);
  const int64_t blocks = n / 4;
  for (int64_t b = 0; b < blocks; ++b) {
    const PhiloxBlock random = Philox(key, static_cast<uint64_t>(b), counter_high);
    for (int j = 0; j < 4; ++j) mask[4 * b + j] = UniformFloat(random.v[j]) < rate ? 0.0f : keep;
  }
  if (4 * blocks < n) {
    const PhiloxBlock random = Philox(key, static_cast<uint64_t>(blocks), counter_high);
    for (int64_t i = 4 * blocks; i < n; ++i) mask[i] = UniformFloat(random.v[i % 4]) < rate ? 0.0f : keep;
  }
}

WEIR_VECTORIZED void Multiply(int64_t n, const float* x, const float* mask, float* out) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * mask[i];
}

absl::Status DropoutShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "X"));
  const double rate = ctx.attrs().Float("rate");
  // Check the rate as float32, the type that the kernel computes with: one that rounds to 1 would keep nothing and
  // divide by 0.
  if (!(rate >= 0 && static_cast<float>(rate) < 1))
    return ctx.Error(absl::StrCat("rate must be in [0, 1), got ", rate));
  SetLike(ctx, "Out", "X");
  SetLike(ctx, "Mask", "X");
  return absl::OkStatus();
}

class DropoutKernel : public OpKernel {
 public:
  explicit DropoutKernel(const KernelInit& init)
      : rate_(static_cast<float>(init.attrs.Float("rate"))), layer_(StableHash(init.attrs.String("layer"))) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    const Shape dims(x.dims().begin(), x.dims().end());
    Tensor* out = ctx.output(0);
    Tensor* mask = ctx.output(1);
    mask->Resize(v1::FLOAT32, dims);
    out->Resize(v1::FLOAT32, dims);
    if (!ctx.step->training || rate_ == 0) {
      std::fill_n(mask->data<float>(), mask->size(), 1.0f);
      if (out != &x) std::copy_n(x.data<float>(), x.size(), out->data<float>());
      return absl::OkStatus();
    }
    const uint64_t key = MixId(ctx.step->seed) ^ layer_;
    // Step and lane share 64 bits: there are fewer than 2^16 lanes.
    const uint64_t counter_high = (static_cast<uint64_t>(ctx.step->step) << 16) | static_cast<uint64_t>(ctx.lane);
    FillMask(x.size(), key, counter_high, rate_, mask->data<float>());
    Multiply(x.size(), x.data<float>(), mask->data<float>(), out->data<float>());
    return absl::OkStatus();
  }

 private:
  const float rate_;
  const uint64_t layer_;
};

class DropoutGradKernel : public OpKernel {
 public:
  explicit DropoutGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& mask = ctx.input(0);
    const Tensor& dout = ctx.input(1);
    RETURN_IF_ERROR(CheckTensor("Mask", mask, dout.dims()));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, mask.dims()));
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, Shape(dout.dims().begin(), dout.dims().end()));
    Multiply(dout.size(), dout.data<float>(), mask.data<float>(), dx->data<float>());
    return absl::OkStatus();
  }
};

REGISTER_OP(dropout)
({.type = "dropout",
  .summary = "drops elements with probability `rate` in training",
  .inputs = {{"X"}},
  .outputs = {{"Out"}, {"Mask"}},
  .attrs = {Required(FloatAttr("rate", 0)), Required(StringAttr("layer", ""))},
  .shape = DropoutShape,
  .gradient = GradOpRule({}, {"Mask"}, {"Out"}, {"X"}),
  // Counts ten rounds of Philox per four elements.
  .cost = ElementwiseCost(25),
  .in_place = {{"X", "Out"}},
  .elements = SameElements(),
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});
REGISTER_OP(dropout_grad)
({.type = "dropout_grad",
  .summary = "dy * mask",
  .inputs = {{"Mask"}, {"Out@GRAD"}},
  .outputs = {{"X@GRAD"}},
  .attrs = {FloatAttr("rate", 0), StringAttr("layer", "")},
  .shape = AlikeRule({"Mask", "Out@GRAD"}, "X@GRAD"),
  .cost = ElementwiseCost(1),
  .in_place = {{"Out@GRAD", "X@GRAD"}}});

REGISTER_KERNEL(dropout, MakeKernel<DropoutKernel>);
REGISTER_KERNEL(dropout_grad, MakeKernel<DropoutGradKernel>);

}  // namespace
}  // namespace weir
