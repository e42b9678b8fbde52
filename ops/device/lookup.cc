#include "ops/device/lookup.h"

#include <cmath>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/host_work.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {

const v1::VarDesc* Described(const KernelInit& init, std::string_view name) {
  for (const v1::OpSlot& slot : init.op.inputs()) {
    if (slot.name() == name) return init.vars(slot.vars(0));
  }
  return nullptr;
}

absl::StatusOr<int64_t> SlotsOf(const KernelInit& init) {
  const v1::VarDesc* const ids = Described(init, "Ids");
  if (ids == nullptr || ids->dims_size() != 2) return absl::InvalidArgumentError("Ids is not described as [-1, slots]");
  return ids->dims(1);
}

absl::StatusOr<IdGroups> ReadGroups(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k) {
  IdGroups g;
  g.lane_group.push_back(0);
  g.lane_value.push_back(0);
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
    g.lane_group.push_back(g.lane_group.back() + GroupsOf(attrs, ids));
    g.lane_value.push_back(g.lane_value.back() + static_cast<int64_t>(ids.values.size()));
    g.weighted = g.weighted || !ids.weights.empty();
  }
  if (g.lane_value.back() > INT32_MAX || g.lane_group.back() >= INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat(g.lane_value.back(), " ids of one batch, in ", g.lane_group.back(),
                                                   " places, are too many for a device; at most ", INT32_MAX));
  }
  if (attrs.sequence > 0) return g;
  g.begin.resize(static_cast<size_t>(g.lane_group.back()) + 1);
  g.begin.back() = static_cast<int32_t>(g.lane_value.back());
  const bool divides = attrs.pooling == Pooling::kMean || attrs.pooling == Pooling::kSqrtN;
  if (divides) g.divisor.resize(static_cast<size_t>(g.lane_group.back()));
  RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
    const int64_t slots_a_group = BySlot(attrs) ? 1 : ids.slots;
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

absl::StatusOr<OutLayout> LayOut(const DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width,
                                 int k) {
  OutLayout out;
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
    if (ids.batch() > 0 && ids.slots != slots) {
      return absl::InvalidArgumentError(absl::StrCat("Ids have ", ids.slots, " slots; ", slots, " are described"));
    }
    out.rows.push_back(ids.batch());
  }
  out.row_dims = Shape{slots, width};
  if (!BySlot(attrs)) out.row_dims = {width};
  if (attrs.sequence > 0) out.row_dims = {attrs.sequence, width};
  out.rank = 1 + static_cast<int>(out.row_dims.size());
  return out;
}

absl::Status CheckOutGradient(const DeviceTensor& dout, const OutLayout& out) {
  RETURN_IF_ERROR(CheckThere("Out@GRAD", dout));
  if (dout.lane_rows() == out.rows && dout.row_dims() == absl::MakeConstSpan(out.row_dims)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Out@GRAD is ", ShapeString(dout.dims()), ", unlike what forward made of these ids"));
}

template <typename Index>
absl::Status PoolInto(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const float* rows,
                      const RowOf<Index>& row_of, DeviceLanding* landing, float* to, const GroupRows& places) {
  ASSIGN_OR_RETURN(const IdGroups g, ReadGroups(ctx, attrs, k));
  // Row of each value, or of each place of the sequences; -1 for none.
  const bool by_place = attrs.sequence > 0;
  std::vector<int32_t> row(static_cast<size_t>(by_place ? g.lane_group.back() : g.lane_value.back()), -1);
  std::vector<float> weight(g.weighted ? row.size() : 0, 1.0f);
  RETURN_IF_ERROR(ForLanes(ctx, [&](int lane) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
    const size_t first = static_cast<size_t>((by_place ? g.lane_group : g.lane_value)[static_cast<size_t>(lane)]);
    const auto* const from = row_of(lane);
    const auto read = [&](size_t i, size_t at) {
      row[at] = static_cast<int32_t>(from[i]);
      if (g.weighted && !ids.weights.empty()) weight[at] = ids.weights[i];
    };
    if (attrs.selection().all()) {
      for (size_t i = 0; i < ids.values.size(); ++i) read(i, first + i);
    } else {
      ForReadIds(attrs, ids,
                 [&](size_t i, int64_t group) { read(i, first + (by_place ? static_cast<size_t>(group) : i)); });
    }
    return absl::OkStatus();
  }));
  Staged staged;
  const size_t rows_at = staged.Add(row), begin_at = staged.Add(g.begin), weight_at = staged.Add(weight),
               divisor_at = staged.Add(g.divisor);
  RETURN_IF_ERROR(staged.Send(ctx, landing));
  const float* const weights = g.weighted ? staged.At<float>(weight_at) : nullptr;
  if (by_place) {
    return ForEach(
        ctx.runtime(), static_cast<int64_t>(row.size()) * width,
        PlaceAt{.row = staged.At<int32_t>(rows_at), .weight = weights, .rows = rows, .width = width, .out = to});
  }
  if (attrs.pooling == Pooling::kNone && !g.weighted && !attrs.has_padding) {
    return ForEach(ctx.runtime(), static_cast<int64_t>(row.size()) * width,
                   GatherAt{.row = staged.At<int32_t>(rows_at), .rows = rows, .width = width, .out = to, .to = places});
  }
  return ForEach(ctx.runtime(), g.lane_group.back() * width,
                 PoolAt{.begin = staged.At<int32_t>(begin_at),
                        .row = staged.At<int32_t>(rows_at),
                        .weight = weights,
                        .divisor = g.divisor.empty() ? nullptr : staged.At<float>(divisor_at),
                        .rows = rows,
                        .width = width,
                        .out = to,
                        .to = places});
}

template <typename Index>
absl::Status LookUp(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width, const float* rows,
                    const RowOf<Index>& row_of, DeviceLanding* landing) {
  ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs, slots, width));
  RETURN_IF_ERROR(ctx.Resize(0, out.rank, out.rows, out.row_dims));
  return PoolInto(ctx, attrs, 0, width, rows, row_of, landing, ctx.output(0).data<float>(), GroupRows());
}

template absl::Status PoolInto<int32_t>(DeviceKernelContext&, const LookupAttrs&, int, int64_t, const float*,
                                        const RowOf<int32_t>&, DeviceLanding*, float*, const GroupRows&);
template absl::Status LookUp<int32_t>(DeviceKernelContext&, const LookupAttrs&, int64_t, int64_t, const float*,
                                      const RowOf<int32_t>&, DeviceLanding*);
template absl::Status LookUp<int64_t>(DeviceKernelContext&, const LookupAttrs&, int64_t, int64_t, const float*,
                                      const RowOf<int64_t>&, DeviceLanding*);

absl::Status RowGradients::Sort(DeviceKernelContext& ctx, const LookupAttrs& attrs, const IdGroups& g,
                                const std::function<void(int, Lane*)>& number, int k) {
  lanes_.resize(static_cast<size_t>(ctx.lanes));
  return ForLanes(ctx, [&](int lane) {
    Lane& of = lanes_[static_cast<size_t>(lane)];
    number(lane, &of);
    Cut(attrs, g, ctx.host_input<IdBatch>(lane, kIds, k), g.lane_group[static_cast<size_t>(lane)], &of);
    return absl::OkStatus();
  });
}

absl::Status RowGradients::Sum(DeviceKernelContext& ctx, const IdGroups& g, const DeviceTensor& dout,
                               const std::vector<int64_t>& lane_rows, int64_t width, int k, const GroupRows& places) {
  // Joins the lanes: numbers of entries, runs and rows continue from lane to lane.
  std::vector<int32_t> group, begin, to, joined, joined_begin = {0};
  std::vector<float> weight;
  int32_t first_row = 0, partial = 0;
  for (int lane = 0; lane < ctx.lanes; ++lane) {
    const Lane& runs = lanes_[static_cast<size_t>(lane)];
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
  RETURN_IF_ERROR(partial_.Reserve(ctx.memory(), static_cast<size_t>(partial * width) * sizeof(float)));
  float* const grad = ctx.output(0, k).data<float>();
  RETURN_IF_ERROR(ForEach(ctx.runtime(), static_cast<int64_t>(to.size()) * width,
                          SegmentAt{.begin = staged.At<int32_t>(begin_at),
                                    .to = staged.At<int32_t>(to_at),
                                    .group = staged.At<int32_t>(group_at),
                                    .weight = g.weighted ? staged.At<float>(weight_at) : nullptr,
                                    .divisor = g.divisor.empty() ? nullptr : staged.At<float>(divisor_at),
                                    .dout = dout.data<float>(),
                                    .width = width,
                                    .grad = grad,
                                    .partial = partial_.data<float>(),
                                    .from_rows = places}));
  return Reduce(ctx.runtime(), static_cast<int64_t>(joined.size()) * width,
                JoinRuns{.begin = staged.At<int32_t>(joined_begin_at),
                         .row = staged.At<int32_t>(joined_at),
                         .partial = partial_.data<float>(),
                         .width = width,
                         .grad = grad});
}

void RowGradients::Cut(const LookupAttrs& attrs, const IdGroups& g, const IdBatch& ids, int64_t first_group,
                       Lane* runs) {
  std::vector<int32_t>& next = runs->next;
  next.assign(runs->count, 0);
  for (const int32_t place : runs->place) {
    if (place >= 0) ++next[static_cast<size_t>(place)];
  }
  runs->begin.clear();
  runs->to.clear();
  runs->joined.clear();
  runs->joined_runs.clear();
  int32_t entries = 0, partial = 0;
  // Turn counts into positions: next[row] becomes the place of the row's next entry.
  for (size_t i = 0; i < next.size(); ++i) {
    const int32_t count = next[i];
    const int32_t row = static_cast<int32_t>(runs->row.empty() ? static_cast<int64_t>(i) : runs->row[i]);
    const bool several = count > kRun;
    for (int32_t at = 0; at < count; at += static_cast<int32_t>(kRun)) {
      runs->begin.push_back(entries + at);
      runs->to.push_back(several ? -1 - partial++ : row);
    }
    if (several) {
      runs->joined.push_back(row);
      runs->joined_runs.push_back(static_cast<int32_t>((count + kRun - 1) / kRun));
    }
    next[i] = entries;
    entries += count;
  }
  runs->group.resize(static_cast<size_t>(entries));
  runs->weight.resize(g.weighted ? static_cast<size_t>(entries) : 0);
  ForReadIds(attrs, ids, [&](size_t i, int64_t group) {
    const size_t entry = static_cast<size_t>(next[static_cast<size_t>(runs->place[i])]++);
    runs->group[entry] = static_cast<int32_t>(first_group + group);
    if (g.weighted) runs->weight[entry] = ids.weights.empty() ? 1.0f : ids.weights[i];
  });
}

SelectedRows* FreshRows(const DeviceVariable& var, int lane, int64_t height) {
  Variable* const host = var.host[static_cast<size_t>(lane)];
  if (!std::holds_alternative<SelectedRows>(*host)) *host = SelectedRows();
  SelectedRows* const grad = &std::get<SelectedRows>(*host);
  grad->height = height;
  grad->merged = grad->present = true;
  grad->ids.clear();
  grad->step_rows.clear();
  return grad;
}

}  // namespace device
}  // namespace weir
