// self_attention and its gradient (ops/self_attention.cc).
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/self_attention_functors.h"
#include "ops/device/sequence_operands.h"

namespace weir {
namespace device {
namespace {

class SelfAttentionBase : public OpDeviceKernel {
 protected:
  explicit SelfAttentionBase(const KernelInit& init)
      : heads_(init.attrs.Int("heads")), causal_(init.attrs.Bool("causal")) {}

  // Checks Q, K, V and Length, the first inputs of both kernels.
  absl::StatusOr<AttentionDims> Read(DeviceKernelContext& ctx) {
    const DeviceTensor& q = ctx.input(0);
    RETURN_IF_ERROR(sequences_.Read(ctx, "Q", q, 3));
    RETURN_IF_ERROR(CheckLike("K", ctx.input(1), q));
    RETURN_IF_ERROR(CheckLike("V", ctx.input(2), q));
    const int64_t size = sequences_.width;
    if (sequences_.most < 1 || size < 1 || heads_ < 1 || size % heads_ != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("Q ", ShapeString(q.dims()), " has no ", heads_, " heads of equal, positive size"));
    }
    return AttentionDims{.length = sequences_.lengths(),
                         .most = sequences_.most,
                         .heads = heads_,
                         .width = size / heads_,
                         .causal = causal_,
                         .scale = 1.0f / std::sqrt(static_cast<float>(size / heads_))};
  }

  const int64_t heads_;
  const bool causal_;
  Sequences sequences_;
};

class SelfAttentionKernel : public SelfAttentionBase {
  enum Input { kQ, kK, kV, kLength };
  enum Output { kOut, kWeight };

 public:
  explicit SelfAttentionKernel(const KernelInit& init) : SelfAttentionBase(init) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& q = ctx.input(kQ);
    ASSIGN_OR_RETURN(const AttentionDims d, Read(ctx));
    RETURN_IF_ERROR(ctx.ResizeLike(kOut, q));
    RETURN_IF_ERROR(ctx.Resize(kWeight, 3, q.lane_rows(), {d.heads * d.most, d.most}));
    const DeviceTensor& weight = ctx.output(kWeight);
    RETURN_IF_ERROR(ForEach(ctx.runtime(), weight.size(),
                            AttentionProductAt{.d = d,
                                               .a = q.data<float>(),
                                               .b = ctx.input(kK).data<float>(),
                                               .scaled = true,
                                               .weight = ctx.output(kWeight).data<float>()}));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), q.rows() * d.heads * d.most,
                            AttentionSoftmaxAt{.d = d, .weight = ctx.output(kWeight).data<float>()}));
    return ForEach(ctx.runtime(), q.size(),
                   AttentionRowSumAt{.d = d,
                                     .factor = weight.data<float>(),
                                     .x = ctx.input(kV).data<float>(),
                                     .out = ctx.output(kOut).data<float>()});
  }
};

class SelfAttentionGradKernel : public SelfAttentionBase {
  enum Input { kQ, kK, kV, kLength, kWeight, kOutGrad };
  enum Output { kQGrad, kKGrad, kVGrad };

 public:
  explicit SelfAttentionGradKernel(const KernelInit& init) : SelfAttentionBase(init) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& q = ctx.input(kQ);
    const DeviceTensor& weight = ctx.input(kWeight);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    ASSIGN_OR_RETURN(const AttentionDims d, Read(ctx));
    RETURN_IF_ERROR(CheckRows("Weight", weight, q, {d.heads * d.most, d.most}));
    RETURN_IF_ERROR(CheckLike("Out@GRAD", dout, q));
    if (ctx.has_output(kVGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kVGrad, q));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), q.size(),
                              AttentionColumnSumAt{.d = d,
                                                   .factor = weight.data<float>(),
                                                   .x = dout.data<float>(),
                                                   .out = ctx.output(kVGrad).data<float>()}));
    }
    if (!ctx.has_output(kQGrad) && !ctx.has_output(kKGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(grads_.Reserve(ctx.memory(), static_cast<size_t>(weight.size()) * sizeof(float)));
    float* const grads = grads_.data<float>();
    RETURN_IF_ERROR(ForEach(
        ctx.runtime(), weight.size(),
        AttentionProductAt{
            .d = d, .a = dout.data<float>(), .b = ctx.input(kV).data<float>(), .scaled = false, .weight = grads}));
    RETURN_IF_ERROR(ForEach(ctx.runtime(), q.rows() * d.heads * d.most,
                            AttentionScoreGradAt{.d = d, .weight = weight.data<float>(), .grad = grads}));
    if (ctx.has_output(kQGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kQGrad, q));
      RETURN_IF_ERROR(ForEach(
          ctx.runtime(), q.size(),
          AttentionRowSumAt{
              .d = d, .factor = grads, .x = ctx.input(kK).data<float>(), .out = ctx.output(kQGrad).data<float>()}));
    }
    if (!ctx.has_output(kKGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kKGrad, q));
    return ForEach(
        ctx.runtime(), q.size(),
        AttentionColumnSumAt{.d = d, .factor = grads, .x = q.data<float>(), .out = ctx.output(kKGrad).data<float>()});
  }

 private:
  DeviceArray grads_{"weights of attention"};
};

REGISTER_DEVICE_KERNEL(self_attention, MakeDeviceKernel<SelfAttentionKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(self_attention_grad, MakeDeviceKernel<SelfAttentionGradKernel>, {"Length"});

}  // namespace
}  // namespace device
}  // namespace weir
