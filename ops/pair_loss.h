// Operators of a loss of one positive score beside N negative ones: a file gives the arithmetic (ops/row_loss_math.h),
// the rest is here.
//
//   Positive  [B, 1]  f32
//   Negative  [B, N]  f32, N at least 1
//   Weight?   [B, 1]  f32
//   Out       [B, 1]  f32
#ifndef WEIR_OPS_PAIR_LOSS_H_
#define WEIR_OPS_PAIR_LOSS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/ordered_sum.h"
#include "ops/vectorized.h"

namespace weir {

struct PairLoss {
  std::string type;
  std::string summary, grad_summary;
  std::vector<AttrDef> attrs = {};
  // Checks the attributes. May be empty.
  std::function<absl::Status(const InferContext&)> check = {};
  double flops = 0, grad_flops = 0;  // per negative
};
OpDef PairLossOp(PairLoss loss);
// The gradient op, "<type>_grad", with the same inputs and Out@GRAD -> Positive@GRAD, Negative@GRAD.
OpDef PairLossGradOp(PairLoss loss);

// Checks the inputs of one run; `weight` and `out_grad` may be null.
absl::Status CheckPairLoss(const Tensor& positive, const Tensor& negative, const Tensor* weight,
                           const Tensor* out_grad);

// Defines Loops for the kernels below, from arithmetic that MakeMath(const KernelInit&) returns.
#define WEIR_PAIR_LOSS_LOOPS(Math)                                                                                   \
  WEIR_VECTORIZED float RowLoss(Math math, int64_t n, float positive, const float* negative) {                       \
    const OrderedSum sum;                                                                                            \
    return math.Loss(sum, math.Begin(sum, n, positive, negative), n, positive, negative);                            \
  }                                                                                                                  \
  WEIR_VECTORIZED float RowDx(Math math, int64_t n, float positive, const float* negative, float dloss, float* dx) { \
    const OrderedSum sum;                                                                                            \
    const auto state = math.Begin(sum, n, positive, negative);                                                       \
    WEIR_INDEPENDENT                                                                                                 \
    for (int64_t i = 0; i < n; ++i) dx[i] = dloss * math.Slope(state, n, positive, negative[i]);                     \
    return -sum(n, [=](int64_t i) { return dx[i]; });                                                                \
  }                                                                                                                  \
  struct Loops {                                                                                                     \
    explicit Loops(const KernelInit& init) : math(MakeMath(init)) {}                                                 \
    float Loss(int64_t n, float positive, const float* negative) const {                                             \
      return RowLoss(math, n, positive, negative);                                                                   \
    }                                                                                                                \
    float Dx(int64_t n, float positive, const float* negative, float dloss, float* dx) const {                       \
      return RowDx(math, n, positive, negative, dloss, dx);                                                          \
    }                                                                                                                \
    const Math math;                                                                                                 \
  };

template <typename Loops>
class PairLossKernel : public OpKernel {
  enum Input { kPositive, kNegative, kWeight };

 public:
  explicit PairLossKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &positive = ctx.input(kPositive), &negative = ctx.input(kNegative);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckPairLoss(positive, negative, weight, nullptr));
    const int64_t rows = positive.dim(0), n = negative.dim(1);
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {rows, 1});
    for (int64_t r = 0; r < rows; ++r) {
      const float loss = loops_.Loss(n, positive.data<float>()[r], negative.data<float>() + r * n);
      out->data<float>()[r] = weight == nullptr ? loss : loss * weight->data<float>()[r];
    }
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

template <typename Loops>
class PairLossGradKernel : public OpKernel {
  enum Input { kPositive, kNegative, kWeight, kOutGrad };
  enum Output { kPositiveGrad, kNegativeGrad };

 public:
  explicit PairLossGradKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor &positive = ctx.input(kPositive), &negative = ctx.input(kNegative), &dout = ctx.input(kOutGrad);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckPairLoss(positive, negative, weight, &dout));
    const int64_t rows = positive.dim(0), n = negative.dim(1);
    // Only one of the two may be wanted.
    std::vector<float> unwanted;
    Tensor *const dpositive = ctx.has_output(kPositiveGrad) ? ctx.output(kPositiveGrad) : nullptr,
                  *const dnegative = ctx.has_output(kNegativeGrad) ? ctx.output(kNegativeGrad) : nullptr;
    if (dpositive != nullptr) dpositive->Resize(v1::FLOAT32, {rows, 1});
    if (dnegative != nullptr) {
      dnegative->Resize(v1::FLOAT32, {rows, n});
    } else {
      unwanted.resize(static_cast<size_t>(n));
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float dloss = dout.data<float>()[r] * (weight == nullptr ? 1.0f : weight->data<float>()[r]);
      float* const dx = dnegative == nullptr ? unwanted.data() : dnegative->data<float>() + r * n;
      const float dp = loops_.Dx(n, positive.data<float>()[r], negative.data<float>() + r * n, dloss, dx);
      if (dpositive != nullptr) dpositive->data<float>()[r] = dp;
    }
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

}  // namespace weir

#endif  // WEIR_OPS_PAIR_LOSS_H_
