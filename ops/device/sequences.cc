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

class SequencePoolGradKernel : public OpDeviceKernel {
  enum Input { kX, kLength, kOutGrad };
  enum Output { kXGrad };

 public:
  explicit SequencePoolGradKernel(SequencePooling type) : type_(type) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(kX);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "X", x, 1));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.width}));
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, x));
    float* const dx = ctx.output(kXGrad).data<float>();
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

class AttentionPairsKernel : public OpDeviceKernel {
  enum Input { kQuery, kSequence, kLength };
  enum Output { kOut };

 public:
  explicit AttentionPairsKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& query = ctx.input(kQuery);
    const DeviceTensor& x = ctx.input(kSequence);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Query", query, x, {s.width}));
    RETURN_IF_ERROR(ctx.Resize(kOut, 3, x.lane_rows(), {s.most, 4 * s.width}));
    return ForEach(ctx.runtime(), x.size(),
                   AttentionPairsAt{.query = query.data<float>(),
                                    .x = x.data<float>(),
                                    .length = s.lengths(),
                                    .most = s.most,
                                    .width = s.width,
                                    .out = ctx.output(kOut).data<float>()});
  }

 private:
  Sequences sequences_;
};

class AttentionPairsGradKernel : public OpDeviceKernel {
  enum Input { kQuery, kSequence, kLength, kOutGrad };
  enum Output { kQueryGrad, kSequenceGrad };

 public:
  explicit AttentionPairsGradKernel(const KernelInit&) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& query = ctx.input(kQuery);
    const DeviceTensor& x = ctx.input(kSequence);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Query", query, x, {s.width}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.most, 4 * s.width}));
    if (ctx.has_output(kQueryGrad)) {
      RETURN_IF_ERROR(ctx.ResizeLike(kQueryGrad, query));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), query.size(),
                              QueryGradAt{.x = x.data<float>(),
                                          .length = s.lengths(),
                                          .dout = dout.data<float>(),
                                          .most = s.most,
                                          .width = s.width,
                                          .dquery = ctx.output(kQueryGrad).data<float>()}));
    }
    if (!ctx.has_output(kSequenceGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kSequenceGrad, x));
    return ForEach(ctx.runtime(), x.size(),
                   ElementGradAt{.query = query.data<float>(),
                                 .length = s.lengths(),
                                 .dout = dout.data<float>(),
                                 .most = s.most,
                                 .width = s.width,
                                 .dx = ctx.output(kSequenceGrad).data<float>()});
  }

 private:
  Sequences sequences_;
};

class AttentionPoolKernel : public OpDeviceKernel {
  enum Input { kScore, kSequence, kLength };
  enum Output { kOut, kWeight };

 public:
  explicit AttentionPoolKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& score = ctx.input(kScore);
    const DeviceTensor& x = ctx.input(kSequence);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Score", score, x, {s.most, 1}));
    // Weights may stand in the place of scores.
    const float* const scores = score.data<float>();
    RETURN_IF_ERROR(ctx.Resize(kOut, 2, x.lane_rows(), {s.width}));
    RETURN_IF_ERROR(ctx.Resize(kWeight, 3, x.lane_rows(), {s.most, 1}));
    float* const weight = ctx.output(kWeight).data<float>();
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
                                .out = ctx.output(kOut).data<float>()});
  }

 private:
  const bool softmax_;
  Sequences sequences_;
};

class AttentionPoolGradKernel : public OpDeviceKernel {
  enum Input { kWeight, kSequence, kLength, kOutGrad };
  enum Output { kScoreGrad, kSequenceGrad };

 public:
  explicit AttentionPoolGradKernel(const KernelInit& init) : softmax_(init.attrs.Bool("softmax")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& weight = ctx.input(kWeight);
    const DeviceTensor& x = ctx.input(kSequence);
    const DeviceTensor& dout = ctx.input(kOutGrad);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Sequence", x, 2));
    RETURN_IF_ERROR(CheckRows("Weight", weight, x, {s.most, 1}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", dout, x, {s.width}));
    if (ctx.has_output(kScoreGrad)) RETURN_IF_ERROR(OfScores(ctx));
    if (!ctx.has_output(kSequenceGrad)) return absl::OkStatus();
    RETURN_IF_ERROR(ctx.ResizeLike(kSequenceGrad, x));
    return ForEach(ctx.runtime(), x.size(),
                   WeighedElementGradAt{.weight = weight.data<float>(),
                                        .length = s.lengths(),
                                        .dout = dout.data<float>(),
                                        .most = s.most,
                                        .width = s.width,
                                        .dx = ctx.output(kSequenceGrad).data<float>()});
  }

 private:
  absl::Status OfScores(DeviceKernelContext& ctx) {
    const DeviceTensor& weight = ctx.input(kWeight);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(ctx.ResizeLike(kScoreGrad, weight));
    float* const grad = ctx.output(kScoreGrad).data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), weight.size(),
                            WeightGradAt{.x = ctx.input(kSequence).data<float>(),
                                         .length = s.lengths(),
                                         .dout = ctx.input(kOutGrad).data<float>(),
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
