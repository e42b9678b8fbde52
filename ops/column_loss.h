// Operators of a loss with one number per example: a file gives the arithmetic (ops/loss_math.h), the rest is here.
//
//   HuberLossMath MakeMath(const KernelInit& init) { return {static_cast<float>(init.attrs.Float("delta"))}; }
//   WEIR_COLUMN_LOSS_LOOPS(HuberLossMath)
//   ColumnLoss Def() { return {.type = "huber_loss", ...}; }
//   REGISTER_OP(huber_loss)(ColumnLossOp(Def()));
//   REGISTER_OP(huber_loss_grad)(ColumnLossGradOp(Def()));
//   REGISTER_KERNEL(huber_loss, MakeKernel<ColumnLossKernel<Loops>>);
//   REGISTER_KERNEL(huber_loss_grad, MakeKernel<ColumnLossGradKernel<Loops>>);
#ifndef WEIR_OPS_COLUMN_LOSS_H_
#define WEIR_OPS_COLUMN_LOSS_H_

#include <cstdint>

#include <functional>
#include <string>
#include <vector>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/vectorized.h"

namespace weir {

// A loss and its gradient op, "<type>_grad". Slots: `x`, Label, Weight? -> `out`, all [B, 1] f32; the gradient op has
// the same inputs and "<out>@GRAD", and writes "<x>@GRAD".
struct ColumnLoss {
  std::string type;
  std::string summary, grad_summary;
  std::string x = "X", out = "Out";
  std::vector<AttrDef> attrs = {};
  // Checks the attributes. May be empty.
  std::function<absl::Status(const InferContext&)> check = {};
  double flops = 0, grad_flops = 0;  // per example
};
OpDef ColumnLossOp(ColumnLoss loss);
OpDef ColumnLossGradOp(ColumnLoss loss);

// Defines Loops for the kernels below, from arithmetic that MakeMath(const KernelInit&) returns: at the vector width of
// the machine.
#define WEIR_COLUMN_LOSS_LOOPS(Math)                                                                              \
  WEIR_VECTORIZED void LossForward(Math math, int64_t n, const float* x, const float* label, float* loss) {       \
    WEIR_INDEPENDENT                                                                                              \
    for (int64_t i = 0; i < n; ++i) loss[i] = math.Loss(x[i], label[i]);                                          \
  }                                                                                                               \
  WEIR_VECTORIZED void LossBackward(Math math, int64_t n, const float* x, const float* label, const float* dloss, \
                                    float* dx) {                                                                  \
    WEIR_INDEPENDENT                                                                                              \
    for (int64_t i = 0; i < n; ++i) dx[i] = math.Dx(x[i], label[i], dloss[i]);                                    \
  }                                                                                                               \
  struct Loops {                                                                                                  \
    explicit Loops(const KernelInit& init) : math(MakeMath(init)) {}                                              \
    void Forward(int64_t n, const float* x, const float* label, float* loss) const {                              \
      LossForward(math, n, x, label, loss);                                                                       \
    }                                                                                                             \
    void Backward(int64_t n, const float* x, const float* label, const float* dloss, float* dx) const {           \
      LossBackward(math, n, x, label, dloss, dx);                                                                 \
    }                                                                                                             \
    const Math math;                                                                                              \
  };

// Checks that Label, Weight and the gradient of the output (null if the op does not have them) have the dims of X.
absl::Status CheckColumnLoss(const Tensor& x, const Tensor& label, const Tensor* weight, const Tensor* out_grad);

// Computes values[i] *= weight[i]. CheckColumnLoss must have passed.
void Weigh(const Tensor& weight, Tensor* values);

// The loss of each example. `Loops` has the constructor Loops(KernelInit) and
//   void Forward(int64_t n, const float* x, const float* label, float* loss) const;
template <typename Loops>
class ColumnLossKernel : public OpKernel {
  enum Input { kX, kLabel, kWeight };
  enum Output { kOut };

 public:
  explicit ColumnLossKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& label = ctx.input(kLabel);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    RETURN_IF_ERROR(CheckColumnLoss(x, label, weight, nullptr));
    Tensor* out = ctx.output(kOut);
    out->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    loops_.Forward(x.size(), x.data<float>(), label.data<float>(), out->data<float>());
    if (weight != nullptr) Weigh(*weight, out);
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

// The gradient of the loss. `Loops` has
//   void Backward(int64_t n, const float* x, const float* label, const float* dloss, float* dx) const;
template <typename Loops>
class ColumnLossGradKernel : public OpKernel {
  enum Input { kX, kLabel, kWeight, kOutGrad };
  enum Output { kXGrad };

 public:
  explicit ColumnLossGradKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(kX);
    const Tensor& label = ctx.input(kLabel);
    const Tensor* const weight = ctx.has_input(kWeight) ? &ctx.input(kWeight) : nullptr;
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckColumnLoss(x, label, weight, &dout));
    Tensor* dx = ctx.output(kXGrad);
    dx->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    loops_.Backward(x.size(), x.data<float>(), label.data<float>(), dout.data<float>(), dx->data<float>());
    if (weight != nullptr) Weigh(*weight, dx);
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

}  // namespace weir

#endif  // WEIR_OPS_COLUMN_LOSS_H_
