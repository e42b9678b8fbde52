// Kernels of a loss with one number per example, built from two loops; applies the weights.
#ifndef WEIR_OPS_COLUMN_LOSS_H_
#define WEIR_OPS_COLUMN_LOSS_H_

#include <cstdint>

#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"

namespace weir {

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
