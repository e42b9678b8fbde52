#include "ops/outgoing_gradients.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"
#include "ops/channel_op.h"
#include "ops/finite.h"
#include "ops/fit.h"

namespace weir {

namespace {

// A thread takes some 20 us to wake, in which another one looks at as many.
constexpr int64_t kFloatsForThreads = int64_t{64} << 10;

}  // namespace

OutgoingGradients::OutgoingGradients(const KernelInit& init, std::vector<BlockRef> blocks, bool mean)
    : vars_(VarsOfInput(init.op, "X")),
      blocks_(std::move(blocks)),
      width_(init.attrs.Int("width")),
      bad_rows_(init.attrs.Bool("bad_rows")),
      measured_(init.attrs.Bool("measured")),
      mean_(mean),
      counts_(!VarsOfInput(init.op, "Counts").empty()) {
  CHECK_EQ(vars_.size(), blocks_.size());
}

absl::Status OutgoingGradients::Send(KernelContext& ctx) {
  ASSIGN_OR_RETURN(StepChannel * channel, ChannelOf(ctx));
  divided_.resize(vars_.size());
  for (std::vector<Variable>& of_lanes : divided_) of_lanes.resize(static_cast<size_t>(ctx.lanes()));
  for (size_t i = 0; i < vars_.size(); ++i) {
    RETURN_IF_ERROR(width_ > 0 ? SendRows(ctx, i, channel) : SendDense(ctx, i, channel));
  }
  return absl::OkStatus();
}

float OutgoingGradients::FactorOf(const KernelContext& ctx, int lane) const {
  const float factor = measured_ ? 1 : 1 / ctx.step->loss_scale;
  return mean_ ? factor / static_cast<float>(ctx.lane_batch[lane] * ctx.step->runs_per_step) : factor;
}

void OutgoingGradients::Inspect(const KernelContext& ctx, size_t i, const OfLane& gradient) const {
  const Tensor& value = *gradient.value;
  Tensor* const divided = gradient.divided;
  const bool looks = !bad_rows_ && ctx.step->health != nullptr;
  bool finite = true;
  if (value.size() == 0) {
    if (divided != nullptr) divided->CopyFrom(value);
  } else if (divided != nullptr) {
    divided->Resize(v1::FLOAT32, value.dims());
    finite = AllFiniteScaled(value.data<float>(), value.size(), gradient.factor, divided->data<float>());
  } else if (looks) {
    finite = AllFinite(value.data<float>(), value.size());
  }
  if (looks && !finite) ctx.step->health->ReportNonFinite(vars_[i]);
}

void OutgoingGradients::InspectAll(const KernelContext& ctx, size_t i, const std::vector<OfLane>& gradients) const {
  int64_t floats = 0;
  for (const OfLane& gradient : gradients) floats += gradient.value->size();
  if (ctx.step->pool != nullptr && floats >= kFloatsForThreads) {
    return ctx.step->pool->ParallelFor(static_cast<int64_t>(gradients.size()),
                                       [&](int64_t g) { Inspect(ctx, i, gradients[static_cast<size_t>(g)]); });
  }
  for (const OfLane& gradient : gradients) Inspect(ctx, i, gradient);
}

absl::Status OutgoingGradients::SendDense(KernelContext& ctx, size_t i, StepChannel* channel) {
  std::vector<StepChannel::LaneTensor> lanes;
  std::vector<OfLane> gradients;
  BlockRef block = blocks_[i];
  for (int lane = 0; lane < ctx.lanes(); ++lane) {
    const Tensor* grad = std::get_if<Tensor>(&ctx.lane_input(lane, 0, static_cast<int>(i)));
    if (ctx.lane_batch[lane] == 0 || grad == nullptr || !grad->initialized()) continue;
    if (!lanes.empty() && grad->size() != block.count) {
      return absl::InvalidArgumentError(
          absl::StrCat(vars_[i], " has ", block.count, " elements in one lane and ", grad->size(), " in another"));
    }
    block.count = grad->size();
    Tensor* const divided = Divides(ctx) ? DividedAs<Tensor>(i, lane) : nullptr;
    gradients.push_back({grad, FactorOf(ctx, lane), divided});
    lanes.push_back({.lane = ctx.step->first_lane + lane, .value = divided != nullptr ? divided : grad});
  }
  if (lanes.empty()) return absl::OkStatus();
  InspectAll(ctx, i, gradients);
  return channel->SendDense(block, lanes);
}

absl::Status OutgoingGradients::SendRows(KernelContext& ctx, size_t i, StepChannel* channel) {
  std::vector<StepChannel::LaneRows> lanes;
  std::vector<OfLane> gradients;
  BlockRef block = blocks_[i];
  for (int lane = 0; lane < ctx.lanes(); ++lane) {
    const SelectedRows* grad = std::get_if<SelectedRows>(&ctx.lane_input(lane, 0, static_cast<int>(i)));
    if (ctx.lane_batch[lane] == 0 || grad == nullptr || !grad->present) continue;
    const int64_t rows = static_cast<int64_t>(grad->ids.size());
    if (grad->values.size() != rows * width_) {
      return absl::InvalidArgumentError(absl::StrCat(vars_[i], " has ", grad->values.size(), " values; ", rows,
                                                     " rows of width ", width_, " need ", rows * width_));
    }
    if (grad->height > 0) block.count = grad->height * width_;
    SelectedRows* const divided = Divides(ctx) ? DividedAs<SelectedRows>(i, lane) : nullptr;
    if (divided != nullptr) divided->CopyRowsOf(*grad);
    gradients.push_back({&grad->values, FactorOf(ctx, lane), divided == nullptr ? nullptr : &divided->values});
    const Tensor* counts = nullptr;
    if (counts_) {
      const SelectedRows* const shows = std::get_if<SelectedRows>(&ctx.lane_input(lane, 1, 0));
      if (shows == nullptr || !shows->present || shows->ids != grad->ids) {
        return absl::InvalidArgumentError(absl::StrCat("Counts are not of the rows of ", vars_[i]));
      }
      RETURN_IF_ERROR(CheckTensor("Counts", shows->values, {rows, 2}));
      counts = &shows->values;
    }
    lanes.push_back(
        {.lane = ctx.step->first_lane + lane, .value = divided != nullptr ? divided : grad, .counts = counts});
  }
  if (lanes.empty()) return absl::OkStatus();
  InspectAll(ctx, i, gradients);
  return channel->SendRows(block, static_cast<int>(width_), lanes);
}

absl::Status CheckOutgoing(InferContext& ctx) {
  const int64_t width = ctx.attrs().Int("width");
  if (width < 0) return ctx.Error("width must not be negative, got " + std::to_string(width));
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    const v1::VarDesc& x = ctx.Input("X", i);
    if (x.dtype() != v1::FLOAT32) return ctx.Error(x.name() + " must be FLOAT32, got " + v1::DType_Name(x.dtype()));
    if ((x.kind() == v1::SELECTED_ROWS) != (width > 0)) {
      return ctx.Error(x.name() +
                       (width > 0 ? " is dense: width must be 0" : " is selected rows: width must be theirs"));
    }
    if (width > 0 && (x.dims_size() != 2 || x.dims(1) != width)) {
      return ctx.Error(x.name() + " is " + ShapeString(ctx.InputShape("X", i)) + ", width " + std::to_string(width));
    }
  }
  return absl::OkStatus();
}

Cost OutgoingCost(InferContext& ctx) {
  Cost cost;
  for (int i = 0; i < ctx.InputCount("X"); ++i) {
    double bytes = 4;
    for (int64_t d : ctx.InputShape("X", i)) bytes *= static_cast<double>(std::max<int64_t>(d, 1));
    cost.bytes += bytes;
  }
  return cost;
}

}  // namespace weir
