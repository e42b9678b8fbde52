// listwise_softmax (Cao et al. 2007, ListNet with one candidate drawn): cross entropy between the labels of the
// candidates of a request, divided by their sum, and the softmax of their scores.
//
//   Scores   [B, C]  f32
//   Label    [B, C]  f32, relevances that are not negative. A device cannot say which one is:
//                    there the loss of a request with a negative one is NaN.
//   Length?  [B, 1]  f32: number of candidates that count, from the first on; all, without it
//   Weight?  [B, 1]  f32
//   Softmax  [B, C]  f32, 0 behind the candidates that count
//   Out      [B, 1]  f32, 0 for a request without a positive label
#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/ordered_sum.h"
#include "ops/row_loss_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

// Checks Label, Length and Weight beside `scores`: Scores, or Softmax in the gradient.
absl::Status ExpectCandidates(const InferContext& ctx, std::string_view scores) {
  RETURN_IF_ERROR(ExpectDense(ctx, scores));
  RETURN_IF_ERROR(ExpectRank(ctx, scores, 2));
  const Shape dims = ctx.InputShape(scores);
  if (dims[1] < 1) {
    return ctx.Error(
        absl::StrCat(Av(scores), " has dims ", ShapeString(dims), "; the largest number of candidates must be known"));
  }
  RETURN_IF_ERROR(ExpectDims(ctx, "Label", dims));
  for (const char* const column : {"Length", "Weight"}) {
    if (ctx.InputCount(column) > 0) RETURN_IF_ERROR(ExpectDims(ctx, column, {dims[0], 1}));
  }
  return absl::OkStatus();
}

// Inputs of one run that both kernels have.
struct Candidates {
  const Tensor& scores;
  const Tensor& label;
  const Tensor* length;
  const Tensor* weight;

  absl::Status Check(std::string_view name) const {
    RETURN_IF_ERROR(CheckRank(name, scores, 2));
    if (scores.dim(1) < 1) return absl::InvalidArgumentError("there is no candidate");
    RETURN_IF_ERROR(CheckTensor("Label", label, scores.dims()));
    const Shape column = {scores.dim(0), 1};
    if (length != nullptr) RETURN_IF_ERROR(CheckTensor("Length", *length, column));
    return weight == nullptr ? absl::OkStatus() : CheckTensor("Weight", *weight, column);
  }
  // Candidates of a request that count.
  int64_t Count(int64_t row) const {
    if (length == nullptr) return scores.dim(1);
    const float count = length->data<float>()[row];
    return count >= 0 ? static_cast<int64_t>(std::min(count, static_cast<float>(scores.dim(1)))) : 0;
  }
  float Factor(int64_t row) const { return weight == nullptr ? 1.0f : weight->data<float>()[row]; }
};

WEIR_VECTORIZED float RowLoss(int64_t n, const float* x, const float* label, float* softmax) {
  return ListwiseSoftmaxMath{}.Loss(OrderedSum(), n, x, label, softmax);
}
WEIR_VECTORIZED void RowDx(int64_t n, const float* label, const float* softmax, float dloss, float* dx) {
  ListwiseSoftmaxMath{}.Dx(OrderedSum(), n, label, softmax, dloss, dx);
}

class ListwiseSoftmaxKernel : public OpKernel {
  enum Input { kScores, kLabel, kLength, kWeight };
  enum Output { kSoftmax, kOut };

 public:
  explicit ListwiseSoftmaxKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Candidates in{.scores = ctx.input(kScores),
                        .label = ctx.input(kLabel),
                        .length = ctx.has_input(kLength) ? &ctx.input(kLength) : nullptr,
                        .weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr};
    RETURN_IF_ERROR(in.Check("Scores"));
    const int64_t rows = in.scores.dim(0), n = in.scores.dim(1);
    Tensor *const softmax = ctx.output(kSoftmax), *const out = ctx.output(kOut);
    softmax->Resize(v1::FLOAT32, {rows, n});
    out->Resize(v1::FLOAT32, {rows, 1});
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t count = in.Count(r);
      const float* const label = in.label.data<float>() + r * n;
      if (const float* const bad = std::find_if(label, label + count, [](float l) { return l < 0; });
          bad != label + count) {
        return absl::InvalidArgumentError(absl::StrCat(
            "Label of candidate ", bad - label, " of example ", r, " of a lane's batch is ", *bad,
            "; a relevance must not be negative: change what computes it, or give it as a column of the data"));
      }
      float* const p = softmax->data<float>() + r * n;
      std::fill(p + count, p + n, 0.0f);
      const float loss = count == 0 ? 0.0f : RowLoss(count, in.scores.data<float>() + r * n, label, p);
      out->data<float>()[r] = loss * in.Factor(r);
    }
    return absl::OkStatus();
  }
};

class ListwiseSoftmaxGradKernel : public OpKernel {
  enum Input { kLabel, kLength, kWeight, kSoftmax, kOutGrad };

 public:
  explicit ListwiseSoftmaxGradKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Candidates in{.scores = ctx.input(kSoftmax),
                        .label = ctx.input(kLabel),
                        .length = ctx.has_input(kLength) ? &ctx.input(kLength) : nullptr,
                        .weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr};
    RETURN_IF_ERROR(in.Check("Softmax"));
    const int64_t rows = in.scores.dim(0), n = in.scores.dim(1);
    RETURN_IF_ERROR(CheckTensor("Out@GRAD", ctx.input(kOutGrad), {rows, 1}));
    Tensor* const dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, {rows, n});
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t count = in.Count(r);
      float* const to = dx->data<float>() + r * n;
      std::fill(to + count, to + n, 0.0f);
      if (count == 0) continue;
      RowDx(count, in.label.data<float>() + r * n, in.scores.data<float>() + r * n,
            ctx.input(kOutGrad).data<float>()[r] * in.Factor(r), to);
    }
    return absl::OkStatus();
  }
};

CostRule PerCandidate(std::string_view scores, double flops) {
  return [scores, flops](InferContext& ctx) {
    Cost cost = ElementwiseCost(0)(ctx);
    cost.flops = flops * Elements(ctx.Input(scores));
    return cost;
  };
}

REGISTER_OP(listwise_softmax)
({.type = "listwise_softmax",
  .summary = "cross entropy of the labels of a request's candidates and the softmax of their scores",
  .inputs = {{"Scores"}, {"Label"}, {.name = "Length", .optional = true}, {.name = "Weight", .optional = true}},
  .outputs = {{"Softmax"}, {"Out"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectCandidates(ctx, "Scores"));
    SetLike(ctx, "Softmax", "Scores");
    ctx.SetOutput("Out", {ctx.InputShape("Scores")[0], 1});
    return absl::OkStatus();
  },
  .gradient = GradOpRule({"Label", "Length", "Weight"}, {"Softmax"}, {"Out"}, {"Scores"}),
  .cost = PerCandidate("Scores", 30)});
REGISTER_OP(listwise_softmax_grad)
({.type = "listwise_softmax_grad",
  .summary = "gradient of listwise_softmax",
  .inputs = {{"Label"},
             {.name = "Length", .optional = true},
             {.name = "Weight", .optional = true},
             {"Softmax"},
             {"Out@GRAD"}},
  .outputs = {{"Scores@GRAD"}},
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectCandidates(ctx, "Softmax"));
    RETURN_IF_ERROR(ExpectDims(ctx, "Out@GRAD", {ctx.InputShape("Softmax")[0], 1}));
    SetLike(ctx, "Scores@GRAD", "Softmax");
    return absl::OkStatus();
  },
  .cost = PerCandidate("Softmax", 5)});

REGISTER_KERNEL(listwise_softmax, MakeKernel<ListwiseSoftmaxKernel>);
REGISTER_KERNEL(listwise_softmax_grad, MakeKernel<ListwiseSoftmaxGradKernel>);

}  // namespace
}  // namespace weir
