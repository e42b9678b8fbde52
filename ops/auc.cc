// auc: counts predictions in buckets, from which the area under the ROC curve follows. Counts are integers, so the sum
// over lanes, steps and trainers is exact and needs no order.
//
//   Predict     [B, 1]  f32, probabilities
//   Label       [B, 1]  f32, positive when above 0.5
//   StatPos     [buckets]  int64
//   StatNeg     [buckets]  int64
//   StatPosOut  the same variable as StatPos
//   StatNegOut  the same variable as StatNeg
//   buckets     int = 65536
//
// Bucket of p: floor(p * buckets), the last one for 1. Runs once per step over all lanes, which share the counts. A
// prediction outside of [0, 1] or NaN is an error. No gradient.
#include <algorithm>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/loss_shape.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

constexpr int64_t kBuckets = 65536;

// Predictions whose buckets are computed together before they are counted, so that the computation is vectorized and no
// count waits for a single bucket.
constexpr int64_t kChunk = 1024;
// Most buckets that the vector loop's int32 holds; with more, predictions are counted one by one.
constexpr int64_t kMostFound = int64_t{1} << 30;

bool IsProbability(float p) { return p >= 0 && p <= 1; }

int64_t BucketOf(float p, int64_t buckets) {
  return std::min(static_cast<int64_t>(static_cast<double>(p) * static_cast<double>(buckets)), buckets - 1);
}

// Computes the buckets of n predictions; one outside of [0, 1] gets any bucket. Returns nonzero if there is such a one.
WEIR_VECTORIZED int32_t FindBuckets(int64_t n, const float* p, double buckets, int32_t* bucket) {
  int32_t outside = 0;
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) {
    double place = static_cast<double>(p[i]) * buckets;
    place = place > 0 ? place : 0;
    place = place < buckets - 1 ? place : buckets - 1;
    bucket[i] = static_cast<int32_t>(place);
    outside |= p[i] >= 0 && p[i] <= 1 ? 0 : 1;
  }
  return outside;
}

WEIR_VECTORIZED void FindPositives(int64_t n, const float* label, int32_t* positive) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) positive[i] = label[i] > 0.5f ? 1 : 0;
}

// Counts n predictions, up to the first one outside of [0, 1]. Returns the number counted.
int64_t Count(int64_t n, const float* p, const float* label, int64_t buckets, int64_t* positives, int64_t* negatives) {
  int32_t bucket[kChunk], positive[kChunk];
  int64_t* const counts[2] = {negatives, positives};
  for (int64_t at = 0; at < n; at += kChunk) {
    const int64_t some = std::min(n - at, kChunk);
    if (buckets > kMostFound || FindBuckets(some, p + at, static_cast<double>(buckets), bucket) != 0) {
      for (int64_t i = at; i < at + some; ++i) {
        if (!IsProbability(p[i])) return i;
        ++(label[i] > 0.5f ? positives : negatives)[BucketOf(p[i], buckets)];
      }
      continue;
    }
    FindPositives(some, label + at, positive);
    for (int64_t i = 0; i < some; ++i) ++counts[positive[i]][bucket[i]];
  }
  return n;
}

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
  enum Input { kPredict, kLabel, kStatPos, kStatNeg };
  enum Output { kStatPosOut, kStatNegOut };

 public:
  explicit AucKernel(const KernelInit& init) : buckets_(init.attrs.Int("buckets")) {}
  absl::Status Run(KernelContext& ctx) override {
    RETURN_IF_ERROR(CopyCounts("StatPos", ctx.input(kStatPos), ctx.output(kStatPosOut)));
    RETURN_IF_ERROR(CopyCounts("StatNeg", ctx.input(kStatNeg), ctx.output(kStatNegOut)));
    int64_t* positives = ctx.output(kStatPosOut)->data<int64_t>();
    int64_t* negatives = ctx.output(kStatNegOut)->data<int64_t>();
    for (int lane = 0; lane < ctx.lanes(); ++lane) {
      const Tensor& predict = std::get<Tensor>(ctx.lane_input(lane, kPredict));
      const Tensor& label = std::get<Tensor>(ctx.lane_input(lane, kLabel));
      RETURN_IF_ERROR(CheckTensor("Predict", predict, predict.dims()));
      RETURN_IF_ERROR(CheckTensor("Label", label, predict.dims()));
      const float* const p = predict.data<float>();
      const int64_t counted = Count(predict.size(), p, label.data<float>(), buckets_, positives, negatives);
      if (counted < predict.size()) {
        return absl::InvalidArgumentError(
            absl::StrCat("Predict must be in [0, 1], got ", p[counted], " for example ", counted, " of lane ", lane));
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CopyCounts(std::string_view slot, const Tensor& from, Tensor* to) const {
    RETURN_IF_ERROR(CheckTensor(slot, from, {buckets_}, v1::INT64));
    if (to != &from) to->CopyFrom(from);
    return absl::OkStatus();
  }

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
  .cost =
      [](InferContext& ctx) {
        return Cost{.flops = Elements(ctx.Input("Predict")), .bytes = 24 * Elements(ctx.Input("Predict"))};
      },
  .in_place = {{"StatPos", "StatPosOut"}, {"StatNeg", "StatNegOut"}}});

REGISTER_KERNEL(auc, MakeKernel<AucKernel>);
// It counts in integers.
REGISTER_HOST_OP(auc);

}  // namespace
}  // namespace weir
