// auc: counts predictions in buckets, from which the area under the ROC curve follows. Counts are integers, so the sum over lanes,
// steps and trainers is exact and needs no order.
//
//   Predict     [B, 1]  f32, probabilities
//   Label       [B, 1]  f32, positive when above 0.5
//   StatPos     [buckets]  int64
//   StatNeg     [buckets]  int64
//   StatPosOut  the same variable as StatPos
//   StatNegOut  the same variable as StatNeg
//   buckets     int = 65536
//
// Bucket of p: floor(p * buckets), the last one for 1. Runs once per step over all lanes, which share the counts. A prediction
// outside of [0, 1] or NaN is an error. No gradient.
#include <algorithm>
#include <cstring>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

constexpr int64_t kBuckets = 65536;

absl::Status AucShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectColumn(ctx, "Predict"));
  RETURN_IF_ERROR(ExpectColumn(ctx, "Label"));
  RETURN_IF_ERROR(ExpectAlike(ctx, {"Predict", "Label"}));
  const int64_t buckets = ctx.attrs().Int("buckets");
  if (buckets < 2) return ctx.Error(absl::StrCat("buckets must be at least 2, got ", buckets));
  for (const char* slot : {"StatPos", "StatNeg"}) {
    RETURN_IF_ERROR(ExpectDense(ctx, slot, v1::INT64));
    const Shape dims = ctx.InputShape(slot);
    if (dims != Shape{buckets}) {
      return ctx.Error(absl::StrCat(slot, " must be [", buckets, "], one count per bucket, got ", ShapeString(dims)));
    }
  }
  SetLike(ctx, "StatPosOut", "StatPos");
  SetLike(ctx, "StatNegOut", "StatNeg");
  return absl::OkStatus();
}

class AucKernel : public OpKernel {
 public:
  explicit AucKernel(const KernelInit& init) : buckets_(init.attrs.Int("buckets")) {}
  absl::Status Run(KernelContext& ctx) override {
    for (int i = 0; i < 2; ++i) {
      const Tensor& in = ctx.input(2 + i);
      RETURN_IF_ERROR(CheckTensor(i == 0 ? "StatPos" : "StatNeg", in, {buckets_}, v1::INT64));
      Tensor* out = ctx.output(i);
      if (out != &in) out->CopyFrom(in);
    }
    int64_t* positives = ctx.output(0)->data<int64_t>();
    int64_t* negatives = ctx.output(1)->data<int64_t>();
    for (int lane = 0; lane < ctx.lanes(); ++lane) {
      const Tensor& predict = std::get<Tensor>(ctx.lane_input(lane, 0));
      const Tensor& label = std::get<Tensor>(ctx.lane_input(lane, 1));
      RETURN_IF_ERROR(CheckTensor("Predict", predict, predict.dims()));
      RETURN_IF_ERROR(CheckTensor("Label", label, predict.dims()));
      for (int64_t i = 0; i < predict.size(); ++i) {
        const float p = predict.data<float>()[i];
        if (!(p >= 0 && p <= 1)) {
          return absl::InvalidArgumentError(
              absl::StrCat("Predict must be in [0, 1], got ", p, " for example ", i, " of lane ", lane));
        }
        const int64_t bucket = std::min(static_cast<int64_t>(static_cast<double>(p) * static_cast<double>(buckets_)), buckets_ - 1);
        ++(label.data<float>()[i] > 0.5f ? positives : negatives)[bucket];
      }
    }
    return absl::OkStatus();
  }

 private:
  const int64_t buckets_;
};

REGISTER_OP(auc)
({.type = "auc",
  .summary = "counts predictions of positives and negatives in buckets",
  .inputs = {{"Predict"}, {"Label"}, {"StatPos"}, {"StatNeg"}},
  .outputs = {{"StatPosOut"}, {"StatNegOut"}},
  .attrs = {IntAttr("buckets", kBuckets)},
  .scope = OpScope::kStep,
  .shape = AucShape,
  .cost = [](InferContext& ctx) { return Cost{.flops = Elements(ctx.Input("Predict")), .bytes = 24 * Elements(ctx.Input("Predict"))}; },
  .in_place = {{"StatPos", "StatPosOut"}, {"StatNeg", "StatNegOut"}}});

REGISTER_KERNEL(auc, kCpu, MakeKernel<AucKernel>);

}  // namespace
}  // namespace weir
