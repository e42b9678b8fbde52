// sequence_pool, attention_pairs, attention_pool, add_positions and their gradients (files of the same names in ops/).
#include <memory>
#include <vector>

#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/sequence_operands.h"
#include "ops/device/sequences_functors.h"
#include "ops/sequence_pool.h"

namespace weir {
namespace device {
namespace {

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

// Inputs X, W, Length.
class AddPositionsKernel : public OpDeviceKernel {
 public:
  explicit AddPositionsKernel(const KernelInit& init) : from_end_(init.attrs.Bool("from_end")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(sequences_.Read(ctx, "X", x, 2));
    RETURN_IF_ERROR(CheckShared("W", ctx.input(1), {sequences_.most, sequences_.width}));
    // Out may be X.
    const float* const from = x.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(0, x));
    return ForEach(ctx.runtime(), x.size(),
                   AddPositionsAt{.x = from,
                                  .w = ctx.input(1).data<float>(),
                                  .length = sequences_.lengths(),
                                  .most = sequences_.most,
                                  .width = sequences_.width,
                                  .from_end = from_end_,
                                  .out = ctx.output(0).data<float>()});
  }

 private:
  const bool from_end_;
  Sequences sequences_;
};

class AddPositionsGradKernel : public OpDeviceKernel {
  enum Input { kW, kLength, kOutGrad };
  enum Output { kXGrad, kWGrad };

 public:
  explicit AddPositionsGradKernel(const KernelInit& init) : from_end_(init.attrs.Bool("from_end")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& dout = ctx.input(kOutGrad);
    const Sequences& s = sequences_;
    RETURN_IF_ERROR(sequences_.Read(ctx, "Out@GRAD", dout, kLength));
    RETURN_IF_ERROR(CheckShared("W", ctx.input(kW), {s.most, s.width}));
    if (ctx.has_output(kWGrad)) {
      const size_t lanes = static_cast<size_t>(dout.lanes());
      RETURN_IF_ERROR(ctx.Resize(kWGrad, 2, std::vector<int64_t>(lanes, s.most), {s.width}));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), dout.lanes() * s.most * s.width,
                              PositionGradAt{.examples = RowsOf(dout),
                                             .length = s.lengths(),
                                             .dout = dout.data<float>(),
                                             .most = s.most,
                                             .width = s.width,
                                             .from_end = from_end_,
                                             .dw = ctx.output(kWGrad).data<float>()}));
    }
    if (!ctx.has_output(kXGrad)) return absl::OkStatus();
    // X@GRAD may be Out@GRAD.
    const float* const from = dout.data<float>();
    RETURN_IF_ERROR(ctx.ResizeLike(kXGrad, dout));
    return ForEach(ctx.runtime(), dout.size(),
                   ElementsAt{.x = from,
                              .length = s.lengths(),
                              .most = s.most,
                              .width = s.width,
                              .out = ctx.output(kXGrad).data<float>()});
  }

 private:
  const bool from_end_;
  Sequences sequences_;
};

REGISTER_DEVICE_KERNEL(sequence_pool, MakePool<SequencePoolKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(sequence_pool_grad, MakePool<SequencePoolGradKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pairs, MakeDeviceKernel<AttentionPairsKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pairs_grad, MakeDeviceKernel<AttentionPairsGradKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pool, MakeDeviceKernel<AttentionPoolKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(attention_pool_grad, MakeDeviceKernel<AttentionPoolGradKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(add_positions, MakeDeviceKernel<AddPositionsKernel>, {"Length"});
REGISTER_DEVICE_KERNEL(add_positions_grad, MakeDeviceKernel<AddPositionsGradKernel>, {"Length"});

}  // namespace
}  // namespace device
}  // namespace weir
