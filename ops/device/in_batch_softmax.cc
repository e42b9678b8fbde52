// in_batch_softmax and its gradient (ops/in_batch_softmax.cc).
//
// The scores of some rows of a lane are there at a time. A lane of a few thousand examples needs one such piece.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/in_batch_softmax_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"
#include "ops/device/product.h"
#include "ops/lookup.h"

namespace weir {
namespace device {
namespace {

constexpr int64_t kMostScores = int64_t{64} << 20;

// Rows [first, first + rows) of a lane, whose examples begin with `begin` among those of all lanes and are n.
struct Piece {
  int64_t begin, n, first, rows;
};

class InBatchSoftmaxBase : public OpDeviceKernel {
 protected:
  enum Input { kQuery, kItem, kProbability, kItemId, kWeight };

  explicit InBatchSoftmaxBase(const KernelInit& init)
      : factor_(1.0f / static_cast<float>(init.attrs.Float("temperature"))) {}

  // Checks the inputs of both kernels, and brings the ids to the device. Probabilities of the data are checked where
  // they are read (trainer/data/data_spec.h); those that a layer makes are not checked on a device.
  absl::Status Read(DeviceKernelContext& ctx) {
    const DeviceTensor& query = ctx.input(kQuery);
    RETURN_IF_ERROR(CheckRank("Query", query, 2));
    RETURN_IF_ERROR(CheckLike("Item", ctx.input(kItem), query));
    for (const auto& [slot, name] : {std::pair(kProbability, "Probability"), std::pair(kWeight, "Weight")}) {
      if (ctx.has_input(slot)) RETURN_IF_ERROR(CheckRows(name, ctx.input(slot), query, {1}));
    }
    ids_ = nullptr;
    if (!ctx.has_input(kItemId)) return absl::OkStatus();
    host_ids_.clear();
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      const IdBatch& ids = ctx.host_input<IdBatch>(lane, kItemId);
      if (ids.batch() != query.rows(lane)) {
        return absl::InvalidArgumentError(
            absl::StrCat("ItemId has ", ids.batch(), " examples, Query ", query.rows(lane)));
      }
      RETURN_IF_ERROR(CheckIds(ids, {.pooling = Pooling::kNone}));
      host_ids_.insert(host_ids_.end(), ids.values.begin(), ids.values.end());
    }
    if (host_ids_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(
        const std::shared_ptr<DeviceBlock> block,
        ctx.transfers->Land(&landing_, {{.data = host_ids_.data(), .bytes = host_ids_.size() * sizeof(int64_t)}},
                            "kernels", "item ids"));
    ids_ = static_cast<const int64_t*>(block->data());
    RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
    ctx.transfers->AfterCompute();
    return absl::OkStatus();
  }

  // Calls fn for the pieces of all lanes, with their scores on the device, [rows, n].
  absl::Status ForPieces(DeviceKernelContext& ctx, const std::function<absl::Status(const Piece&, float*)>& fn) {
    const DeviceTensor &query = ctx.input(kQuery), &item = ctx.input(kItem);
    const int64_t w = query.width();
    const LaneRows lanes = RowsOf(query);
    int64_t most = 0;
    for (int lane = 0; lane < lanes.lanes; ++lane) most = std::max(most, RowsOfPiece(lanes.count(lane)));
    int64_t scores = 0;
    for (int lane = 0; lane < lanes.lanes; ++lane) {
      scores = std::max(scores, RowsOfPiece(lanes.count(lane)) * lanes.count(lane));
    }
    RETURN_IF_ERROR(scores_.Reserve(ctx.memory(), static_cast<size_t>(scores) * sizeof(float)));
    const float* log_probability = nullptr;
    if (ctx.has_input(kProbability) && query.rows() > 0) {
      RETURN_IF_ERROR(logs_.Reserve(ctx.memory(), static_cast<size_t>(query.rows()) * sizeof(float)));
      RETURN_IF_ERROR(ForEach(ctx.runtime(), query.rows(),
                              LogAt{.x = ctx.input(kProbability).data<float>(), .y = logs_.data<float>()}));
      log_probability = logs_.data<float>();
    }
    float* const s = scores_.data<float>();
    for (int lane = 0; lane < lanes.lanes; ++lane) {
      const int64_t begin = lanes.begin[lane], n = lanes.count(lane), rows = RowsOfPiece(n);
      for (int64_t first = 0; first < n; first += rows) {
        const Piece piece = {.begin = begin, .n = n, .first = first, .rows = std::min(rows, n - first)};
        RETURN_IF_ERROR(Multiply(ctx, {.m = piece.rows,
                                       .n = n,
                                       .k = w,
                                       .a = query.data<float>() + (begin + first) * w,
                                       .b = item.data<float>() + begin * w,
                                       .c = s,
                                       .transpose_b = true}));
        RETURN_IF_ERROR(
            ForEach(ctx.runtime(), piece.rows * n,
                    InBatchScoreAt{.n = n,
                                   .first = first,
                                   .factor = factor_,
                                   .log_probability = log_probability == nullptr ? nullptr : log_probability + begin,
                                   .id = ids_ == nullptr ? nullptr : ids_ + begin,
                                   .s = s}));
        RETURN_IF_ERROR(fn(piece, s));
      }
    }
    return absl::OkStatus();
  }
  // Weights of a lane's examples, or null.
  static const float* WeightOf(DeviceKernelContext& ctx, const Piece& piece) {
    return ctx.has_input(kWeight) ? ctx.input(kWeight).data<float>() + piece.begin : nullptr;
  }

  const float factor_;

 private:
  static int64_t RowsOfPiece(int64_t n) { return n == 0 ? 0 : std::clamp<int64_t>(kMostScores / n, 1, n); }

  std::vector<int64_t> host_ids_;
  DeviceLanding landing_;
  const int64_t* ids_ = nullptr;
  DeviceArray scores_{"scores of in_batch_softmax"};
  DeviceArray logs_{"scores of in_batch_softmax"};
};

class InBatchSoftmaxKernel : public InBatchSoftmaxBase {
  enum Output { kLogSum, kOut };

 public:
  explicit InBatchSoftmaxKernel(const KernelInit& init) : InBatchSoftmaxBase(init) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(Read(ctx));
    const DeviceTensor& query = ctx.input(kQuery);
    for (const Output output : {kLogSum, kOut}) RETURN_IF_ERROR(ctx.Resize(output, 2, query.lane_rows(), {1}));
    RETURN_IF_ERROR(largest_.Reserve(ctx.memory(), static_cast<size_t>(query.rows()) * sizeof(float)));
    return ForPieces(ctx, [&](const Piece& piece, float* s) -> absl::Status {
      float* const largest = largest_.data<float>();
      RETURN_IF_ERROR(Reduce(ctx.runtime(), piece.rows, InBatchLargest{.n = piece.n, .s = s, .largest = largest}));
      const int64_t at = piece.begin + piece.first;
      return Reduce(ctx.runtime(), piece.rows,
                    InBatchLoss{.n = piece.n,
                                .first = piece.first,
                                .s = s,
                                .largest = largest,
                                .weight = WeightOf(ctx, piece),
                                .log_sum = ctx.output(kLogSum).data<float>() + at,
                                .out = ctx.output(kOut).data<float>() + at});
    });
  }

 private:
  DeviceArray largest_{"scores of in_batch_softmax"};
};

class InBatchSoftmaxGradKernel : public InBatchSoftmaxBase {
  enum Input { kLogSum = 5, kOutGrad };
  enum Output { kQueryGrad, kItemGrad };

 public:
  explicit InBatchSoftmaxGradKernel(const KernelInit& init) : InBatchSoftmaxBase(init) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(Read(ctx));
    const DeviceTensor& query = ctx.input(kQuery);
    RETURN_IF_ERROR(CheckRows("LogSum", ctx.input(kLogSum), query, {1}));
    RETURN_IF_ERROR(CheckRows("Out@GRAD", ctx.input(kOutGrad), query, {1}));
    for (const Output output : {kQueryGrad, kItemGrad}) {
      if (ctx.has_output(output)) RETURN_IF_ERROR(ctx.ResizeLike(output, query));
    }
    return ForPieces(ctx, [&](const Piece& piece, float* s) -> absl::Status {
      RETURN_IF_ERROR(ForEach(ctx.runtime(), piece.rows * piece.n,
                              InBatchGradAt{.n = piece.n,
                                            .first = piece.first,
                                            .factor = factor_,
                                            .log_sum = ctx.input(kLogSum).data<float>() + piece.begin,
                                            .dout = ctx.input(kOutGrad).data<float>() + piece.begin,
                                            .weight = WeightOf(ctx, piece),
                                            .s = s}));
      const int64_t w = query.width(), at = (piece.begin + piece.first) * w;
      if (ctx.has_output(kQueryGrad)) {
        RETURN_IF_ERROR(Multiply(ctx, {.m = piece.rows,
                                       .n = w,
                                       .k = piece.n,
                                       .a = s,
                                       .b = ctx.input(kItem).data<float>() + piece.begin * w,
                                       .c = ctx.output(kQueryGrad).data<float>() + at}));
      }
      return ctx.has_output(kItemGrad) ? AddItems(ctx, piece, s) : absl::OkStatus();
    });
  }

 private:
  // Adds what the rows give to the gradients of all items of the lane.
  absl::Status AddItems(DeviceKernelContext& ctx, const Piece& piece, const float* s) {
    const int64_t w = ctx.input(kQuery).width(), size = piece.n * w;
    float* const ditem = ctx.output(kItemGrad).data<float>() + piece.begin * w;
    float* to = ditem;
    if (piece.first > 0) {
      RETURN_IF_ERROR(part_.Reserve(ctx.memory(), static_cast<size_t>(size) * sizeof(float)));
      to = part_.data<float>();
    }
    RETURN_IF_ERROR(Multiply(ctx, {.m = piece.n,
                                   .n = w,
                                   .k = piece.rows,
                                   .a = s,
                                   .b = ctx.input(kQuery).data<float>() + (piece.begin + piece.first) * w,
                                   .c = to,
                                   .transpose_a = true}));
    if (piece.first == 0) return absl::OkStatus();
    return ForEach(ctx.runtime(), size, SumAt{.count = 2, .x = {ditem, to}, .out = ditem});
  }

  DeviceArray part_{"scores of in_batch_softmax"};
};

REGISTER_DEVICE_KERNEL(in_batch_softmax, MakeDeviceKernel<InBatchSoftmaxKernel>, {"ItemId"});
REGISTER_DEVICE_KERNEL(in_batch_softmax_grad, MakeDeviceKernel<InBatchSoftmaxGradKernel>, {"ItemId"});

}  // namespace
}  // namespace device
}  // namespace weir
