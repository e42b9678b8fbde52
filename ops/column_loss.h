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

// Slots X, Label, Weight? -> Out. `Loops` has the constructor Loops(KernelInit) and
//   void Forward(int64_t n, const float* x, const float* label, float* loss) const;
template <typename Loops>
class ColumnLossKernel : public OpKernel {
 public:
  explicit ColumnLossKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckColumnLoss(x, ctx.input(1), ctx.has_input(2) ? &ctx.input(2) : nullptr, nullptr));
    Tensor* out = ctx.output(0);
    out->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    loops_.Forward(x.size(), x.data<float>(), ctx.input(1).data<float>(), out->data<float>());
    if (ctx.has_input(2)) Weigh(ctx.input(2), out);
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

// Slots X, Label, Weight?, Out@GRAD -> X@GRAD. `Loops` has
//   void Backward(int64_t n, const float* x, const float* label, const float* dloss, float* dx) const;
template <typename Loops>
class ColumnLossGradKernel : public OpKernel {
 public:
  explicit ColumnLossGradKernel(const KernelInit& init) : loops_(init) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckColumnLoss(x, ctx.input(1), ctx.has_input(2) ? &ctx.input(2) : nullptr, &ctx.input(3)));
    Tensor* dx = ctx.output(0);
    dx->Resize(v1::FLOAT32, Shape(x.dims().begin(), x.dims().end()));
    loops_.Backward(x.size(), x.data<float>(), ctx.input(1).data<float>(), ctx.input(3).data<float>(),
                    dx->data<float>());
    if (ctx.has_input(2)) Weigh(ctx.input(2), dx);
    return absl::OkStatus();
  }

 private:
  const Loops loops_;
};

}  // namespace weir

#endif  // WEIR_OPS_COLUMN_LOSS_H_
