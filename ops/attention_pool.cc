// attention_pool: the weighted sum of the elements of a sequence (ops/sequence.h)
//
//   Score     [B, T, 1]  f32   of each element
//   Sequence  [B, T, W]  f32
//   Length    [B, 1]     f32
//   Weight    [N, 1]     f32   the score, or with `softmax` exp(score) / sum of exp(score) over its sequence; kept for
//   the gradient Out       [B, W]     f32   sum of weight * element, in order; 0 where Length is softmax   bool = false
//
// Gradient (attention_pool_grad): dElement = weight * dOut, 0 behind the length; dWeight = element . dOut, and of a
// softmax dScore = weight * (dWeight - sum of weight * dWeight over the sequence).
#include <algorithm>
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/attention_math.h"
#include "ops/fit.h"
#include "ops/fixed_sum.h"
#include "ops/sequence.h"
#include "ops/shape_rules.h"
#include "ops/softmax.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void WeighedSum(int64_t n, int64_t width, const float* __restrict weight, const float* __restrict k,
                                float* __restrict out) {
  for (int64_t w = 0; w < width; ++w) out[w] = 0;
  for (int64_t t = 0; t < n; ++t, k += width) {
    const float by = weight[t];
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) out[w] += by * k[w];
  }
}

WEIR_VECTORIZED void WeightGradients(int64_t n, int64_t width, const float* __restrict k, const float* __restrict dout,
                                     float* __restrict dweight) {
  for (int64_t t = 0; t < n; ++t, k += width) dweight[t] = FixedSum(width, [=](int64_t w) { return k[w] * dout[w]; });
}

// Computes in place.
WEIR_VECTORIZED void ScoreGradients(int64_t n, const float* __restrict weight, float* __restrict grad) {
  const float sum = FixedSum(n, [=](int64_t t) { return weight[t] * grad[t]; });
  WEIR_INDEPENDENT
  for (int64_t t = 0; t < n; ++t) grad[t] = SoftmaxScoreGradient(weight[t], grad[t], sum);
}

WEIR_VECTORIZED void ElementGradients(int64_t n, int64_t width, const float* __restrict weight,
                                      const float* __restrict dout, float* __restrict dk) {
  for (int64_t t = 0; t < n; ++t, dk += width) {
    const float by = weight[t];
    WEIR_INDEPENDENT
    for (int64_t w = 0; w < width; ++w) dk[w] = by * dout[w];
  }
}

class AttentionPoolKernel : public OpKernel {
  enum Input { kScore, kSequence, kLength };
  enum Output { kOut, kWeight };

 public:
  explicit AttentionPoolKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& score = ctx.input(kScore);
    const Tensor& sequence = ctx.input(kSequence);
    const Tensor& length = ctx.input(kLength);
    RETURN_IF_ERROR(CheckSequence("Sequence", sequence, length));
    const int64_t batch = sequence.dim(0), most = sequence.dim(1), width = sequence.dim(2);
    RETURN_IF_ERROR(CheckTensor("Score", score, {batch, most, 1}));
    Tensor* const out = ctx.output(kOut);
    Tensor* const weights = ctx.output(kWeight);
    out->Resize(v1::FLOAT32, {batch, width});
    weights->Resize(v1::FLOAT32, {batch, most, 1});
    const float* from = score.data<float>();
    float* weight = weights->data<float>();
    for (int64_t b = 0; b < batch; ++b, from += most, weight += most) {
      const int64_t n = LengthOf(length, b);
      float log_sum;
      if (softmax_ && n > 0) {
        SoftmaxRow(n, from, weight, &log_sum);
      } else if (weight != from) {
        std::copy_n(from, n, weight);
      }
      std::fill_n(weight + n, most - n, 0.0f);
      WeighedSum(n, width, weight, sequence.data<float>() + b * most * width, out->data<float>() + b * width);
    }
    return absl::OkStatus();
  }

 private:
  const bool softmax_;
};

class AttentionPoolGradKernel : public OpKernel {
  enum Input { kWeight, kSequence, kLength, kOutGrad };
  enum Output { kScoreGrad, kSequenceGrad };

 public:
  explicit AttentionPoolGradKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& weights = ctx.input(kWeight);
    const Tensor& sequence = ctx.input(kSequence);
    const Tensor& length = ctx.input(kLength);
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckSequence("Sequence", sequence, length));
    const int64_t batch = sequence.dim(0), most = sequence.dim(1), width = sequence.dim(2);
    RETURN_IF_ERROR(CheckTensor("Weight", weights, {batch, most, 1}));
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", dout, {batch, width}));
    if (ctx.has_output(kScoreGrad)) OfScores(weights, sequence, length, dout, ctx.output(kScoreGrad));
    if (ctx.has_output(kSequenceGrad)) OfElements(weights, length, dout, sequence.dims(), ctx.output(kSequenceGrad));
    return absl::OkStatus();
  }

 private:
  void OfScores(const Tensor& weights, const Tensor& sequence, const Tensor& length, const Tensor& dout,
                Tensor* grad) const {
    const int64_t batch = sequence.dim(0), most = sequence.dim(1), width = sequence.dim(2);
    grad->Resize(v1::FLOAT32, {batch, most, 1});
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = LengthOf(length, b);
      float* const to = grad->data<float>() + b * most;
      WeightGradients(n, width, sequence.data<float>() + b * most * width, dout.data<float>() + b * width, to);
      if (softmax_) ScoreGradients(n, weights.data<float>() + b * most, to);
      std::fill_n(to + n, most - n, 0.0f);
    }
  }

  static void OfElements(const Tensor& weights, const Tensor& length, const Tensor& dout,
                         absl::Span<const int64_t> dims, Tensor* grad) {
    const int64_t batch = dims[0], most = dims[1], width = dims[2];
    grad->Resize(v1::FLOAT32, dims);
    for (int64_t b = 0; b < batch; ++b) {
      const int64_t n = LengthOf(length, b);
      float* const to = grad->data<float>() + b * most * width;
      ElementGradients(n, width, weights.data<float>() + b * most, dout.data<float>() + b * width, to);
      std::fill_n(to + n * width, (most - n) * width, 0.0f);
    }
  }

  const bool softmax_;
};

Cost PoolCost(InferContext& ctx) {
  const double elements = Elements(ctx.Input("Sequence"));
  return {.flops = 2 * elements, .bytes = 4 * elements};
}

// A pooled vector has the name of the sequence in front, as that of sequence_pool.
void PooledSequence(ElementContext& ctx) {
  const ElementAxes& x = ctx.Names("Sequence");
  if (x.size() == 2 && !x.front().empty()) ctx.NameOutput("Out", {PrefixAxis(x.front().front().of, x.back())});
}

REGISTER_OP(attention_pool)
({.type = "attention_pool",
  .summary = "weighted sum of the elements of a sequence",
  .inputs = {{"Score"}, {"Sequence"}, {"Length"}},
  .outputs = {{"Out"}, {"Weight"}},
  .attrs = {BoolAttr("softmax", false)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSequence(ctx, "Sequence"));
    const Shape sequence = ctx.InputShape("Sequence");
    RETURN_IF_ERROR(ExpectDims(ctx, "Score", {sequence[0], sequence[1], 1}));
    ctx.SetOutput("Out", {sequence[0], sequence[2]});
    ctx.SetOutput("Weight", {sequence[0], sequence[1], 1});
    return absl::OkStatus();
  },
  .gradient = [](GradContext& ctx) -> absl::StatusOr<std::vector<v1::OpDesc>> {
    if (!ctx.OutputGrad("Weight").empty()) {
      return absl::InvalidArgumentError(
          "attention_pool: Weight has no gradient of its own; only Out may be used by the model");
    }
    return MakeGradOp(ctx, {"Sequence", "Length"}, {"Weight"}, {"Out"}, {"Score", "Sequence"});
  },
  .cost = PoolCost,
  .in_place = {{"Score", "Weight"}},
  .elements = PooledSequence,
  .effect = ElementEffect::kApart});

REGISTER_OP(attention_pool_grad)
({.type = "attention_pool_grad",
  .summary = "gradients of attention_pool",
  .inputs = {{"Weight"}, {"Sequence"}, {"Length"}, {"Out@GRAD"}},
  .outputs = {{.name = "Score@GRAD", .optional = true}, {.name = "Sequence@GRAD", .optional = true}},
  .attrs = {BoolAttr("softmax", false)},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectSequence(ctx, "Sequence"));
    const Shape sequence = ctx.InputShape("Sequence");
    RETURN_IF_ERROR(ExpectDims(ctx, "Weight", {sequence[0], sequence[1], 1}));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {sequence[0], sequence[2]}));
    if (ctx.OutputCount("Score@GRAD") > 0) SetLike(ctx, "Score@GRAD", "Weight");
    if (ctx.OutputCount("Sequence@GRAD") > 0) SetLike(ctx, "Sequence@GRAD", "Sequence");
    return absl::OkStatus();
  },
  .cost = PoolCost});

REGISTER_KERNEL(attention_pool, MakeKernel<AttentionPoolKernel>);
REGISTER_KERNEL(attention_pool_grad, MakeKernel<AttentionPoolGradKernel>);

}  // namespace
}  // namespace weir
