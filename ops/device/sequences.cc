// sequence_pool, attention_pairs, attention_pool and their gradients (files of the same names in ops/).
//
// How long sequences are is known on the host, which has their ids: it is checked there, and goes to the device as
// whole numbers.
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/sequences_functors.h"
#include "ops/sequence.h"
#include "ops/sequence_pool.h"

namespace weir {
namespace device {
namespace {

// Sequences x [.., T, W] of the slot named, and their lengths, which the slot `length` has on the host.
class Sequences {
 public:
  absl::Status Read(DeviceKernelContext& ctx, std::string_view slot, const DeviceTensor& x, int length) {
    RETURN_IF_ERROR(CheckRank(slot, x, 3));
    host_.clear();
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      const Tensor& given = ctx.host_input<Tensor>(lane, length);
      RETURN_IF_ERROR(CheckLengths(slot, x.dims(lane), given));
      for (int64_t b = 0; b < x.rows(lane); ++b) host_.push_back(static_cast<int32_t>(LengthOf(given, b)));
    }
    batch = x.rows();
    most = x.row_dims()[0];
    width = x.row_dims()[1];
    lengths_ = nullptr;
    if (host_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> block,
                     ctx.transfers->Land(&landing_, {{.data = host_.data(), .bytes = host_.size() * sizeof(int32_t)}},
                                         "kernels", "lengths"));
    lengths_ = static_cast<const int32_t*>(block->data());
    RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
    ctx.transfers->AfterCompute();
    return absl::OkStatus();
  }
  const int32_t* lengths() const { return lengths_; }

  int64_t batch = 0, most = 0, width = 0;

 private:
  std::vector<int32_t> host_;
  DeviceLanding landing_;
  const int32_t* lengths_ = nullptr;
};

// Inputs X, Length.
class SequencePoolKernel : public OpDeviceKernel {
 public:
  explicit SequencePoolKernel(SequencePooling type) : type_(type) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(sequences_.Read(ctx, "X", x, 1));
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {sequences_.width}));
    return ForEach(ctx.runtime(), sequences_.batch * sequences_.width,
                   SequencePoolAt{.type = type_,
                                  .x = x.data<float>(),
                                  .length = sequences_.lengths(),
                                  .most = sequences_.most,
                                  .width = sequences_.width,
                                  .out = ctx.output(0).data<float>()});
  }

 private:
  const SequencePooling type_;
  Sequences sequences_;
};

// Inputs X, Length, Out@GRAD.
class SequencePoolGradKernel : public OpDeviceKernel {
 public:
  explicit SequencePoolGradKernel(SequencePooling type) : type_(type) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    const DeviceTensor& dout = ctx.input(2);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "X", x, 1));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.width}));
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    float* const dx = ctx.output(0).data<float>();
    if (type_ == SequencePooling::kMax) {
      return ForEach(ctx.runtime(), s.batch * s.width,
                     LargestGradAt{.x = x.data<float>(),
                                   .length = s.lengths(),
                                   .dout = dout.data<float>(),
                                   .most = s.most,
                                   .width = s.width,
                                   .dx = dx});
    }
    return ForEach(ctx.runtime(), x.size(),
                   SequencePoolGradAt{.type = type_,
                                      .length = s.lengths(),
                                      .dout = dout.data<float>(),
                                      .most = s.most,
                                      .width = s.width,
                                      .dx = dx});
  }

 private:
  const SequencePooling type_;
  Sequences sequences_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakePool(const KernelInit& init) {
  ASSIGN_OR_RETURN(const SequencePooling type, ParseSequencePooling(init.attrs.String("type")));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(type));
}

// Inputs Query, Sequence, Length.
class AttentionPairsKernel : public OpDeviceKernel {
 public:
  explicit AttentionPairsKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& query = ctx.input(0);
    const DeviceTensor& x = ctx.input(1);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Query", query, x, {s.width}));
    RETURN_IF_ERROR(ctx.Resize(0, 3, x.lane_rows(), {s.most, 4 * s.width}));
    return ForEach(ctx.runtime(), x.size(),
                   AttentionPairsAt{.query = query.data<float>(),
                                    .x = x.data<float>(),
                                    .length = s.lengths(),
                                    .most = s.most,
                                    .width = s.width,
                                    .out = ctx.output(0).data<float>()});
  }

 private:
  Sequences sequences_;
};

// Inputs Query, Sequence, Length, Out@GRAD; outputs Query@GRAD?, Sequence@GRAD?.
class AttentionPairsGradKernel : public OpDeviceKernel {
 public:
  explicit AttentionPairsGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& query = ctx.input(0);
    const DeviceTensor& x = ctx.input(1);
    const DeviceTensor& dout = ctx.input(3);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Query", query, x, {s.width}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.most, 4 * s.width}));
    if (ctx.has_output(0)) {
      RETURN_IF_ERROR(ctx.ResizeLike(0, query));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), query.size(),
                              QueryGradAt{.x = x.data<float>(),
                                          .length = s.lengths(),
                                          .dout = dout.data<float>(),
                                          .most = s.most,
                                          .width = s.width,
                                          .dquery = ctx.output(0).data<float>()}));
    }
    if (!ctx.has_output(1)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(1, x));
    return ForEach(ctx.runtime(), x.size(),
                   ElementGradAt{.query = query.data<float>(),
                                 .length = s.lengths(),
                                 .dout = dout.data<float>(),
                                 .most = s.most,
                                 .width = s.width,
                                 .dx = ctx.output(1).data<float>()});
  }

 private:
  Sequences sequences_;
};

// Inputs Score, Sequence, Length; outputs Out, Weight.
class AttentionPoolKernel : public OpDeviceKernel {
 public:
  explicit AttentionPoolKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& score = ctx.input(0);
    const DeviceTensor& x = ctx.input(1);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Score", score, x, {s.most, 1}));
    // Weights may stand in the place of scores.
    const float* const scores = score.data<float>();
    RETURN_IF_ERROR(ctx.Resize(0, 2, x.lane_rows(), {s.width}));
    RETURN_IF_ERROR(ctx.Resize(1, 3, x.lane_rows(), {s.most, 1}));
    float* const weight = ctx.output(1).data<float>();
    RETURN_IF_ERROR(
        ForEach(ctx.runtime(), s.batch,
                AttentionWeightsAt{
                    .score = scores, .length = s.lengths(), .most = s.most, .softmax = softmax_, .weight = weight}));
    return ForEach(ctx.runtime(), s.batch * s.width,
                   WeighedSumAt{.weight = weight,
                                .x = x.data<float>(),
                                .length = s.lengths(),
                                .most = s.most,
                                .width = s.width,
                                .out = ctx.output(0).data<float>()});
  }

 private:
  const bool softmax_;
  Sequences sequences_;
};

// Inputs Weight, Sequence, Length, Out@GRAD; outputs Score@GRAD?, Sequence@GRAD?.
class AttentionPoolGradKernel : public OpDeviceKernel {
 public:
  explicit AttentionPoolGradKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& weight = ctx.input(0);
    const DeviceTensor& x = ctx.input(1);
    const DeviceTensor& dout = ctx.input(3);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Weight", weight, x, {s.most, 1}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.width}));
    if (ctx.has_output(0)) RETURN_IF_ERROR(OfScores(ctx));
    if (!ctx.has_output(1)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(1, x));
    return ForEach(ctx.runtime(), x.size(),
                   WeighedElementGradAt{.weight = weight.data<float>(),
                                        .length = s.lengths(),
                                        .dout = dout.data<float>(),
                                        .most = s.most,
                                        .width = s.width,
                                        .dx = ctx.output(1).data<float>()});
  }

 private:
  absl::Status OfScores(DeviceKernelContext& ctx) {
    const DeviceTensor& weight = ctx.input(0);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(ctx.ResizeLike(0, weight));
    float* const grad = ctx.output(0).data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), weight.size(),
                            WeightGradAt{.x = ctx.input(1).data<float>(),
                                         .length = s.lengths(),
                                         .dout = ctx.input(3).data<float>(),
                                         .most = s.most,
                                         .width = s.width,
                                         .dweight = grad}));
    if (!softmax_) return absl::OkStatus();
    return ForEach(
        ctx.runtime(), s.batch,
        SoftmaxScoresGradAt{.weight = weight.data<float>(), .length = s.lengths(), .most = s.most, .grad = grad});
  }

  const bool softmax_;
  Sequences sequences_;
};

REGISTER_DEVICE_KERNEL(sequence_pool, MakePool<SequencePoolKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(sequence_pool_grad, MakePool<SequencePoolGradKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pairs, MakeDeviceKernel<AttentionPairsKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pairs_grad, MakeDeviceKernel<AttentionPairsGradKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pool, MakeDeviceKernel<AttentionPoolKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pool_grad, MakeDeviceKernel<AttentionPoolGradKernel>, {"Length"});

}  // namespace
}  // namespace device
}  // namespace weir
