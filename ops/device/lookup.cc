// lookup_rows and its gradient (ops/lookup_rows.cc).
//
// Ids and their places are the host's: prefetch has put them there. The host also sorts the places by row, lane by lane
// in parallel, counting: that needs two passes and no comparison; so the device sums segments and needs no atomics.
// Which rows a lane's gradient has, and in which order, is what the CPU says.
#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/launch.h"
#include "ops/device/lookup_functors.h"
#include "ops/device/operands.h"
#include "ops/lookup.h"

namespace weir {
namespace device {
namespace {

constexpr int kIds = 0, kIndex = 1, kRows = 2, kOutGrad = 3;

// Ids, Index and Rows of a lane belong together.
absl::Status CheckLane(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                       const DeviceTensor& values, int64_t width) {
  RETURN_IF_ERROR(CheckIds(ids, attrs));
  if (rows.height >= 0) RETURN_IF_ERROR(CheckRange(ids, attrs, rows.height));
  const int64_t n = static_cast<int64_t>(ids.values.size());
  if (index.size() != n || (n > 0 && (!index.initialized() || index.dtype() != v1::INT32))) {
    return absl::InvalidArgumentError(absl::StrCat("Index has ", index.size(), " entries for ", n, " ids"));
  }
  const int64_t count = static_cast<int64_t>(rows.ids.size());
  if (!values.initialized() || values.dtype() != v1::FLOAT32 || values.rank() != 2 || values.rows() != count ||
      values.width() != width) {
    return absl::InvalidArgumentError(
        absl::StrCat("Rows has values ", ShapeString(values.dims()), " for ", count, " ids of width ", width));
  }
  uint32_t most = 0;
  if (n == 0) return absl::OkStatus();
  const int32_t* const place = index.data<int32_t>();
  for (int64_t i = 0; i < n; ++i) most = std::max(most, static_cast<uint32_t>(place[i]));
  if (most < static_cast<uint64_t>(count)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Index has ", static_cast<int32_t>(most), "; Rows has ", count, " rows"));
}

bool IsPadding(const LookupAttrs& attrs, const IdBatch& ids, size_t i) {
  return attrs.has_padding && ids.values[i] == attrs.padding_id;
}

// Runs fn(lane) for every lane, on the pool where there is one.
absl::Status ForLanes(DeviceKernelContext& ctx, const std::function<absl::Status(int)>& fn) {
  std::vector<absl::Status> each(static_cast<size_t>(ctx.lanes));
  const auto run = [&](int64_t lane) { each[static_cast<size_t>(lane)] = fn(static_cast<int>(lane)); };
  if (ctx.step->pool != nullptr && ctx.lanes > 1) {
    ctx.step->pool->ParallelFor(ctx.lanes, run);
  } else {
    for (int lane = 0; lane < ctx.lanes; ++lane) run(lane);
  }
  for (const absl::Status& status : each) RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

// Arrays that go to the device together, one after the other.
class Staged {
 public:
  // What At gives is valid after Send.
  template <typename T>
  size_t Add(const std::vector<T>& values) {
    static_assert(sizeof(T) == 4);
    begins_.push_back(words_);
    pieces_.push_back({.data = values.data(), .bytes = values.size() * sizeof(T)});
    words_ += values.size();
    return begins_.size() - 1;
  }
  absl::Status Send(DeviceKernelContext& ctx, DeviceLanding* landing) {
    if (words_ == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> block,
                     ctx.transfers->Land(landing, pieces_, "kernels", "places"));
    base_ = static_cast<char*>(block->data());
    RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
    ctx.transfers->AfterCompute();
    return absl::OkStatus();
  }
  template <typename T>
  const T* At(size_t array) const {
    return reinterpret_cast<const T*>(base_ + begins_[array] * 4);
  }

 private:
  std::vector<size_t> begins_;
  std::vector<DeviceTransfers::Piece> pieces_;
  size_t words_ = 0;
  char* base_ = nullptr;
};

// What forward and backward need of the ids of all lanes.
struct Groups {
  std::vector<int32_t> begin;                   // of the values of each group, and their number
  std::vector<float> divisor;                   // of each group; empty: 1
  std::vector<int64_t> lane_group, lane_value;  // where each lane begins, and the ends
  bool weighted = false;
};

absl::StatusOr<Groups> ReadGroups(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t width) {
  const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows);
  Groups g;
  RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
    return CheckLane(attrs, ctx.host_input<IdBatch>(lane, kIds), ctx.host_input<Tensor>(lane, kIndex), rows,
                     ctx.input(kRows), width);
  }));
  const bool by_slot = attrs.pooling == Pooling::kNone || attrs.per_slot;
  g.lane_group.push_back(0);
  g.lane_value.push_back(0);
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    g.lane_group.push_back(g.lane_group.back() + ids.batch() * (by_slot ? ids.slots : 1));
    g.lane_value.push_back(g.lane_value.back() + static_cast<int64_t>(ids.values.size()));
    g.weighted = g.weighted || !ids.weights.empty();
  }
  if (g.lane_value.back() > INT32_MAX || g.lane_group.back() >= INT32_MAX) {
    return absl::InvalidArgumentError(
        absl::StrCat(g.lane_value.back(), " ids of one batch are too many for a device; at most ", INT32_MAX));
  }
  g.begin.resize(static_cast<size_t>(g.lane_group.back()) + 1);
  g.begin.back() = static_cast<int32_t>(g.lane_value.back());
  const bool divides = attrs.pooling == Pooling::kMean || attrs.pooling == Pooling::kSqrtN;
  if (divides) g.divisor.resize(static_cast<size_t>(g.lane_group.back()));
  RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    const int64_t slots_a_group = by_slot ? 1 : ids.slots;
    const int64_t groups = g.lane_group[static_cast<size_t>(lane) + 1] - g.lane_group[static_cast<size_t>(lane)];
    for (int64_t i = 0; i < groups; ++i) {
      const size_t at = static_cast<size_t>(g.lane_group[static_cast<size_t>(lane)] + i);
      const int64_t from = ids.offsets[static_cast<size_t>(i * slots_a_group)],
                    to = ids.offsets[static_cast<size_t>((i + 1) * slots_a_group)];
      g.begin[at] = static_cast<int32_t>(g.lane_value[static_cast<size_t>(lane)] + from);
      if (!divides) continue;
      float sum = 0;
      for (int64_t v = from; v < to; ++v) {
        if (IsPadding(attrs, ids, static_cast<size_t>(v))) continue;
        const float weight = ids.weights.empty() ? 1.0f : ids.weights[static_cast<size_t>(v)];
        sum += attrs.pooling == Pooling::kMean ? weight : weight * weight;
      }
      g.divisor[at] = attrs.pooling == Pooling::kMean ? sum : std::sqrt(sum);
    }
    return absl::OkStatus();
  }));
  return g;
}

// Rows and dims of Out.
struct OutLayout {
  int rank = 2;
  std::vector<int64_t> rows;
  Shape row_dims;
};
absl::StatusOr<OutLayout> LayOut(const DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots,
                                 int64_t width) {
  OutLayout out;
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    if (ids.batch() > 0 && ids.slots != slots) {
      return absl::InvalidArgumentError(absl::StrCat("Ids have ", ids.slots, " slots; ", slots, " are described"));
    }
    out.rows.push_back(ids.batch());
  }
  out.row_dims = attrs.pooling != Pooling::kNone && !attrs.per_slot ? Shape{width} : Shape{slots, width};
  out.rank = 1 + static_cast<int>(out.row_dims.size());
  return out;
}

class LookupRowsKernel : public OpDeviceKernel {
 public:
  LookupRowsKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Groups g, ReadGroups(ctx, attrs_, width_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, width_));
    RETURN_IF_ERROR(ctx.Resize(0, out.rank, out.rows, out.row_dims));
    std::vector<int32_t> row(static_cast<size_t>(g.lane_value.back()));
    std::vector<float> weight(g.weighted ? row.size() : 0);
    RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
      const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
      if (ids.values.empty()) return absl::OkStatus();
      const int32_t* const place = ctx.host_input<Tensor>(lane, kIndex).data<int32_t>();
      const size_t begin = static_cast<size_t>(g.lane_value[static_cast<size_t>(lane)]);
      for (size_t i = 0; i < ids.values.size(); ++i) {
        row[begin + i] = IsPadding(attrs_, ids, i) ? -1 : place[i];
        if (g.weighted) weight[begin + i] = ids.weights.empty() ? 1.0f : ids.weights[i];
      }
      return absl::OkStatus();
    }));
    Staged staged;
    const size_t rows_at = staged.Add(row), begin_at = staged.Add(g.begin), weight_at = staged.Add(weight),
                 divisor_at = staged.Add(g.divisor);
    RETURN_IF_ERROR(staged.Send(ctx, &staged_));
    const float* const rows = ctx.input(kRows).data<float>();
    float* const to = ctx.output(0).data<float>();
    if (attrs_.pooling == Pooling::kNone && !g.weighted && !attrs_.has_padding) {
      return ForEach(ctx.runtime(), static_cast<int64_t>(row.size()) * width_,
                     GatherAt{.row = staged.At<int32_t>(rows_at), .rows = rows, .width = width_, .out = to});
    }
    return ForEach(ctx.runtime(), g.lane_group.back() * width_,
                   PoolAt{.begin = staged.At<int32_t>(begin_at),
                          .row = staged.At<int32_t>(rows_at),
                          .weight = g.weighted ? staged.At<float>(weight_at) : nullptr,
                          .divisor = g.divisor.empty() ? nullptr : staged.At<float>(divisor_at),
                          .rows = rows,
                          .width = width_,
                          .out = to});
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  DeviceLanding staged_;
};

// The values of one lane by row, in runs.
struct LaneRuns {
  std::vector<int32_t> group, begin, to;  // of entries, of runs, of runs
  std::vector<float> weight;
  std::vector<int32_t> joined, joined_runs;  // rows of several runs, and how many
  // Place of a row of the step among this lane's; -1: none.
  std::vector<int32_t> place;
  std::vector<int32_t> count;
};

class LookupRowsGradKernel : public OpDeviceKernel {
 public:
  LookupRowsGradKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    ASSIGN_OR_RETURN(const Groups g, ReadGroups(ctx, attrs_, width_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, width_));
    const DeviceTensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckThere("Out@GRAD", dout));
    if (dout.lane_rows() != out.rows || dout.row_dims() != absl::MakeConstSpan(out.row_dims)) {
      return absl::InvalidArgumentError(
          absl::StrCat("Out@GRAD is ", ShapeString(dout.dims()), ", unlike what forward made of these ids"));
    }
    lanes_.resize(static_cast<size_t>(ctx.lanes));
    const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows);
    RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
      Sort(ctx, g, rows, lane);
      return absl::OkStatus();
    }));
    std::vector<int64_t> lane_rows;
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      lane_rows.push_back(
          static_cast<int64_t>(std::get<SelectedRows>(*ctx.output_var(0).host[static_cast<size_t>(lane)]).ids.size()));
    }
    RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows, {width_}));

    // All lanes in one: entries, runs and rows are counted on.
    std::vector<int32_t> group, begin, to, joined, joined_begin = {0};
    std::vector<float> weight;
    int32_t first_row = 0, partial = 0;
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      const LaneRuns& runs = lanes_[static_cast<size_t>(lane)];
      const int32_t entries = static_cast<int32_t>(group.size());
      for (int32_t b : runs.begin) begin.push_back(entries + b);
      for (int32_t t : runs.to) to.push_back(t >= 0 ? first_row + t : t - partial);
      for (int32_t r : runs.joined) joined.push_back(first_row + r);
      for (int32_t n : runs.joined_runs) {
        joined_begin.push_back(joined_begin.back() + n);
        partial += n;
      }
      group.insert(group.end(), runs.group.begin(), runs.group.end());
      if (g.weighted) weight.insert(weight.end(), runs.weight.begin(), runs.weight.end());
      first_row += static_cast<int32_t>(lane_rows[static_cast<size_t>(lane)]);
    }
    begin.push_back(static_cast<int32_t>(group.size()));

    Staged staged;
    const size_t group_at = staged.Add(group), begin_at = staged.Add(begin), to_at = staged.Add(to),
                 weight_at = staged.Add(weight), divisor_at = staged.Add(g.divisor), joined_at = staged.Add(joined),
                 joined_begin_at = staged.Add(joined_begin);
    RETURN_IF_ERROR(staged.Send(ctx, &staged_));
    RETURN_IF_ERROR(partial_.Reserve(ctx.memory(), static_cast<size_t>(partial * width_) * sizeof(float)));
    float* const grad = ctx.output(0).data<float>();
    RETURN_IF_ERROR(ForEach(ctx.runtime(), static_cast<int64_t>(to.size()) * width_,
                            SegmentAt{.begin = staged.At<int32_t>(begin_at),
                                      .to = staged.At<int32_t>(to_at),
                                      .group = staged.At<int32_t>(group_at),
                                      .weight = g.weighted ? staged.At<float>(weight_at) : nullptr,
                                      .divisor = g.divisor.empty() ? nullptr : staged.At<float>(divisor_at),
                                      .dout = dout.data<float>(),
                                      .width = width_,
                                      .grad = grad,
                                      .partial = partial_.data<float>()}));
    return Reduce(ctx.runtime(), static_cast<int64_t>(joined.size()) * width_,
                  JoinRuns{.begin = staged.At<int32_t>(joined_begin_at),
                           .row = staged.At<int32_t>(joined_at),
                           .partial = partial_.data<float>(),
                           .width = width_,
                           .grad = grad});
  }

 private:
  // Fills the lane's rows (ids and step_rows of the output) and its runs.
  void Sort(DeviceKernelContext& ctx, const Groups& g, const SelectedRows& rows, int lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    const size_t n = ids.values.size();
    const int32_t* const index = n == 0 ? nullptr : ctx.host_input<Tensor>(lane, kIndex).data<int32_t>();
    LaneRuns& runs = lanes_[static_cast<size_t>(lane)];
    Variable* const var = ctx.output_var(0).host[static_cast<size_t>(lane)];
    if (!std::holds_alternative<SelectedRows>(*var)) *var = SelectedRows();
    SelectedRows& grad = std::get<SelectedRows>(*var);
    grad.height = rows.height;
    grad.merged = grad.present = true;
    grad.ids.clear();
    grad.step_rows.clear();
    runs.place.assign(rows.ids.size(), -1);
    runs.count.clear();
    for (size_t i = 0; i < n; ++i) {
      if (IsPadding(attrs_, ids, i)) continue;
      int32_t& place = runs.place[static_cast<size_t>(index[i])];
      if (place < 0) {
        place = static_cast<int32_t>(grad.ids.size());
        grad.ids.push_back(rows.ids[static_cast<size_t>(index[i])]);
        grad.step_rows.push_back(index[i]);
        runs.count.push_back(0);
      }
      ++runs.count[static_cast<size_t>(place)];
    }
    runs.begin.clear();
    runs.to.clear();
    runs.joined.clear();
    runs.joined_runs.clear();
    int32_t entries = 0, partial = 0;
    // From here on count[row] is where its next entry goes.
    for (size_t row = 0; row < runs.count.size(); ++row) {
      const int32_t count = runs.count[row];
      const bool several = count > kRun;
      for (int32_t at = 0; at < count; at += static_cast<int32_t>(kRun)) {
        runs.begin.push_back(entries + at);
        runs.to.push_back(several ? -1 - partial++ : static_cast<int32_t>(row));
      }
      if (several) {
        runs.joined.push_back(static_cast<int32_t>(row));
        runs.joined_runs.push_back(static_cast<int32_t>((count + kRun - 1) / kRun));
      }
      runs.count[row] = entries;
      entries += count;
    }
    runs.group.resize(static_cast<size_t>(entries));
    runs.weight.resize(g.weighted ? static_cast<size_t>(entries) : 0);
    const int32_t value = static_cast<int32_t>(g.lane_value[static_cast<size_t>(lane)]);
    int32_t group = static_cast<int32_t>(g.lane_group[static_cast<size_t>(lane)]);
    for (size_t i = 0; i < n; ++i) {
      while (g.begin[static_cast<size_t>(group) + 1] <= value + static_cast<int32_t>(i)) ++group;
      if (IsPadding(attrs_, ids, i)) continue;
      const size_t entry =
          static_cast<size_t>(runs.count[static_cast<size_t>(runs.place[static_cast<size_t>(index[i])])]++);
      runs.group[entry] = group;
      if (g.weighted) runs.weight[entry] = ids.weights.empty() ? 1.0f : ids.weights[i];
    }
  }

  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  // Of each lane, kept from step to step.
  std::vector<LaneRuns> lanes_;
  DeviceLanding staged_;
  DeviceArray partial_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> Make(const KernelInit& init) {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  const v1::VarDesc* rows = nullptr;
  const v1::VarDesc* ids = nullptr;
  for (const v1::OpSlot& slot : init.op.inputs()) {
    if (slot.name() == "Rows") rows = init.vars(slot.vars(0));
    if (slot.name() == "Ids") ids = init.vars(slot.vars(0));
  }
  if (rows == nullptr || rows->dims_size() != 2)
    return absl::InvalidArgumentError("Rows is not described as [-1, width]");
  if (ids == nullptr || ids->dims_size() != 2) return absl::InvalidArgumentError("Ids is not described as [-1, slots]");
  return std::unique_ptr<OpDeviceKernel>(new Kernel(attrs, ids->dims(1), rows->dims(1)));
}

REGISTER_DEVICE_KERNEL(lookup_rows, Make<LookupRowsKernel>, {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(lookup_rows_grad, Make<LookupRowsGradKernel>, {"Ids", "Index"});

}  // namespace
}  // namespace device
}  // namespace weir
