// lookup_rows, lookup_concat, lookup_table and their gradients (files of the same names in ops/).
//
// Ids and their places are the host's: data, and what prefetch has put beside them. The host also sorts the places by
// row, lane by lane in parallel, counting: that needs two passes and no comparison; so the device sums segments and
// needs no atomics. Which rows a lane's gradient has, and in which order, is what the CPU says.
#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/device/elementwise_functors.h"
#include "ops/device/host_work.h"
#include "ops/device/launch.h"
#include "ops/device/lookup_functors.h"
#include "ops/device/operands.h"
#include "ops/id_deduper.h"
#include "ops/lookup.h"

namespace weir {
namespace device {
namespace {

constexpr int kIds = 0;

bool IsPadding(const LookupAttrs& attrs, const IdBatch& ids, size_t i) {
  return attrs.has_padding && ids.values[i] == attrs.padding_id;
}

// Each example or slot is a group whose ids become one row of Out; of a sequence each place is.
bool BySlot(const LookupAttrs& attrs) { return attrs.pooling == Pooling::kNone || attrs.per_slot; }

int64_t GroupsOf(const LookupAttrs& attrs, const IdBatch& ids) {
  if (attrs.sequence > 0) return ids.batch() * attrs.sequence;
  return ids.batch() * (BySlot(attrs) ? ids.slots : 1);
}

// Calls fn(value, group) for the values that are read, in their order.
template <typename Fn>
void ForReadIds(const LookupAttrs& attrs, const IdBatch& ids, Fn fn) {
  if (attrs.sequence > 0) {
    for (int64_t b = 0; b < ids.batch(); ++b) {
      const int64_t end = ids.offsets[static_cast<size_t>(b) + 1];
      int64_t group = b * attrs.sequence;
      for (int64_t i = SequenceBegin(ids, attrs.selection(), ids.offsets[static_cast<size_t>(b)], end); i < end; ++i) {
        if (!IsPadding(attrs, ids, static_cast<size_t>(i))) fn(static_cast<size_t>(i), group++);
      }
    }
    return;
  }
  const int64_t slots_a_group = BySlot(attrs) ? 1 : ids.slots;
  const int64_t groups = GroupsOf(attrs, ids);
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t end = ids.offsets[static_cast<size_t>((g + 1) * slots_a_group)];
    for (int64_t i = ids.offsets[static_cast<size_t>(g * slots_a_group)]; i < end; ++i) {
      if (!IsPadding(attrs, ids, static_cast<size_t>(i))) fn(static_cast<size_t>(i), g);
    }
  }
}

// What forward and backward need of the ids of all lanes.
struct Groups {
  std::vector<int32_t> begin;                   // of the values of each group, and their number; not of a sequence
  std::vector<float> divisor;                   // of each group; empty: 1
  std::vector<int64_t> lane_group, lane_value;  // where each lane begins, and the ends
  bool weighted = false;
};

// Of look-up k of the op. Ids have passed their checks.
absl::StatusOr<Groups> ReadGroups(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k = 0) {
  Groups g;
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

// Rows and dims of Out.
struct OutLayout {
  int rank = 2;
  std::vector<int64_t> rows;
  Shape row_dims;
};
absl::StatusOr<OutLayout> LayOut(const DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots,
                                 int64_t width, int k = 0) {
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

// The rows of the groups of look-up k, into `to` at `places`, from `rows` on the device; row_of(lane)[i] is that of the lane's value
// i.
template <typename RowOf>
absl::Status PoolInto(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const float* rows,
                      RowOf row_of, DeviceLanding* landing, float* to, const GroupRows& places) {
  ASSIGN_OR_RETURN(const Groups g, ReadGroups(ctx, attrs, k));
  // Of each value, or of each place of the sequences; -1 for none.
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

// Out, of one look-up alone.
template <typename RowOf>
absl::Status LookUp(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width, const float* rows,
                    RowOf row_of, DeviceLanding* landing) {
  ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs, slots, width));
  RETURN_IF_ERROR(ctx.Resize(0, out.rank, out.rows, out.row_dims));
  return PoolInto(ctx, attrs, 0, width, rows, row_of, landing, ctx.output(0).data<float>(), GroupRows());
}

// Gradients of rows from that of Out: values by row, in runs.
class RowGradients {
 public:
  // Of a lane: which row of its gradient each value is, numbered in the order of first appearance; and how many there
  // are.
  struct Lane {
    std::vector<int32_t> place;  // -1: not read
    size_t count = 0;
    // Where in W@GRAD each row is; empty: its number.
    std::vector<int64_t> row;

   private:
    friend class RowGradients;
    std::vector<int32_t> group, begin, to;  // of entries, of runs, of runs
    std::vector<float> weight;
    std::vector<int32_t> joined, joined_runs;  // rows of several runs, and how many
    std::vector<int32_t> next;
  };

  // Of look-up k. Calls number(lane, &Lane) for each lane, in parallel, which fills what is public.
  absl::Status Sort(DeviceKernelContext& ctx, const LookupAttrs& attrs, const Groups& g,
                    const std::function<void(int, Lane*)>& number, int k = 0) {
    lanes_.resize(static_cast<size_t>(ctx.lanes));
    return ForLanes(ctx, [&](int lane) {
      Lane& of = lanes_[static_cast<size_t>(lane)];
      number(lane, &of);
      Cut(attrs, g, ctx.host_input<IdBatch>(lane, kIds, k), g.lane_group[static_cast<size_t>(lane)], &of);
      return absl::OkStatus();
    });
  }
  int64_t rows(int lane) const { return static_cast<int64_t>(lanes_[static_cast<size_t>(lane)].count); }

  // Into output k of slot 0, which has lane_rows[lane] rows in each lane; the gradients of groups lie in dout at `places`.
  absl::Status Sum(DeviceKernelContext& ctx, const Groups& g, const DeviceTensor& dout,
                   const std::vector<int64_t>& lane_rows, int64_t width, int k = 0, const GroupRows& places = {}) {
    // All lanes in one: entries, runs and rows are counted on.
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

 private:
  static void Cut(const LookupAttrs& attrs, const Groups& g, const IdBatch& ids, int64_t first_group, Lane* runs) {
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
    // From here on next[row] is where its next entry goes.
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

  // Kept from step to step.
  std::vector<Lane> lanes_;
  DeviceLanding staged_;
  DeviceArray partial_;
};

absl::Status CheckOutGradient(const DeviceTensor& dout, const OutLayout& out) {
  RETURN_IF_ERROR(CheckThere("Out@GRAD", dout));
  if (dout.lane_rows() == out.rows && dout.row_dims() == absl::MakeConstSpan(out.row_dims)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Out@GRAD is ", ShapeString(dout.dims()), ", unlike what forward made of these ids"));
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

// lookup_rows: slots Ids, Index, Rows

constexpr int kIndex = 1, kRows = 2;

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
  if (n == 0) return absl::OkStatus();
  uint64_t used = 0;
  const int32_t* const place = index.data<int32_t>();
  ForSelectedIds(ids, attrs.selection(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) used = std::max(used, uint64_t{static_cast<uint32_t>(place[i])} + 1);
  });
  if (used <= static_cast<uint64_t>(count)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Index has ", static_cast<int32_t>(static_cast<uint32_t>(used - 1)), "; Rows has ", count, " rows"));
}

absl::Status CheckRowInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t width, int k = 0) {
  const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows, k);
  return ForLanes(ctx, [&](int lane) {
    return CheckLane(attrs, ctx.host_input<IdBatch>(lane, kIds, k), ctx.host_input<Tensor>(lane, kIndex, k), rows,
                     ctx.input(kRows, k), width);
  });
}

// Places in Rows of look-up k's values, by lane.
auto PlacesOf(const DeviceKernelContext& ctx, int k) {
  return [&ctx, k](int lane) -> const int32_t* {
    const Tensor& index = ctx.host_input<Tensor>(lane, kIndex, k);
    return index.size() == 0 ? nullptr : index.data<int32_t>();
  };
}

class LookupRowsKernel : public OpDeviceKernel {
 public:
  LookupRowsKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckRowInputs(ctx, attrs_, width_));
    return LookUp(ctx, attrs_, slots_, width_, ctx.input(kRows).data<float>(), PlacesOf(ctx, 0), &staged_);
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  DeviceLanding staged_;
};

// The gradient of the rows of look-up k, into output k of slot 0.
class StepRowsGradient {
 public:
  // Inputs have passed their checks; the gradients of groups lie in dout at `places`.
  absl::Status Run(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const DeviceTensor& dout,
                   const GroupRows& places) {
    ASSIGN_OR_RETURN(const Groups g, ReadGroups(ctx, attrs, k));
    row_places_.resize(static_cast<size_t>(ctx.lanes));
    RETURN_IF_ERROR(gradients_.Sort(
        ctx, attrs, g, [&](int lane, RowGradients::Lane* of) { Number(ctx, attrs, k, lane, of); }, k));
    std::vector<int64_t> lane_rows;
    for (int lane = 0; lane < ctx.lanes; ++lane) lane_rows.push_back(gradients_.rows(lane));
    RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows, {width}, k));
    return gradients_.Sum(ctx, g, dout, lane_rows, width, k, places);
  }

 private:
  void Number(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int lane, RowGradients::Lane* of) {
    const SelectedRows& rows = ctx.host_input<SelectedRows>(0, kRows, k);
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds, k);
    SelectedRows* const grad = FreshRows(ctx.output_var(0, k), lane, rows.height);
    of->place.assign(ids.values.size(), -1);
    // Of the rows of the step, among this lane's.
    std::vector<int32_t>& places = row_places_[static_cast<size_t>(lane)];
    places.assign(rows.ids.size(), -1);
    const Tensor& given = ctx.host_input<Tensor>(lane, kIndex, k);
    const int32_t* const index = ids.values.empty() ? nullptr : given.data<int32_t>();
    ForReadIds(attrs, ids, [&](size_t i, int64_t) {
      int32_t& place = places[static_cast<size_t>(index[i])];
      if (place < 0) {
        place = static_cast<int32_t>(grad->ids.size());
        grad->ids.push_back(rows.ids[static_cast<size_t>(index[i])]);
        grad->step_rows.push_back(index[i]);
      }
      of->place[i] = place;
    });
    of->count = grad->ids.size();
  }

  std::vector<std::vector<int32_t>> row_places_;  // by lane
  RowGradients gradients_;
};

class LookupRowsGradKernel : public OpDeviceKernel {
 public:
  LookupRowsGradKernel(LookupAttrs attrs, int64_t slots, int64_t width) : attrs_(attrs), slots_(slots), width_(width) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckRowInputs(ctx, attrs_, width_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, width_));
    const DeviceTensor& dout = ctx.input(3);
    RETURN_IF_ERROR(CheckOutGradient(dout, out));
    return gradient_.Run(ctx, attrs_, 0, width_, dout, GroupRows());
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_, width_;
  StepRowsGradient gradient_;
};

// lookup_concat: slots Ids, Index, Rows, and X, or of the gradient Out@GRAD

constexpr int kDense = 3, kJoinedGrad = 3;

int64_t ColumnsOf(const LookupPiece& piece) { return OutWidth(piece.attrs, piece.slots, piece.width); }

// Inputs of look-up k belong together, and its lanes have the rows given.
absl::Status CheckPiece(DeviceKernelContext& ctx, const LookupPiece& piece, int k, absl::Span<const int64_t> rows) {
  RETURN_IF_ERROR(CheckRowInputs(ctx, piece.attrs, piece.width, k));
  ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, piece.attrs, piece.slots, piece.width, k));
  if (absl::MakeConstSpan(out.rows) == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("Ids[", k, "] are of other numbers of examples"));
}

GroupRows ColumnsFrom(const LookupPiece& piece, int64_t columns, int64_t begin) {
  return {.stride = columns, .first = begin, .groups = BySlot(piece.attrs) ? piece.slots : 1};
}

// The columns [begin, begin + size) of a matrix, of all lanes, from a matrix of their own or into one.
absl::Status CopyColumns(DeviceKernelContext& ctx, const DeviceTensor& whole, int64_t begin, int64_t size, float* piece,
                         bool into_whole) {
  const int64_t rows = whole.rows();
  return ForEach(ctx.runtime(), rows * size,
                 PieceAt{.whole = whole.data<float>(),
                         .piece = piece,
                         .stride = whole.width(),
                         .first = begin,
                         .length = size,
                         .into_whole = into_whole});
}

class LookupConcatKernel : public OpDeviceKernel {
 public:
  explicit LookupConcatKernel(LookupConcat pieces)
      : pieces_(std::move(pieces)), staged_(pieces_.lookups.size()) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    std::vector<int64_t> rows;
    for (int lane = 0; lane < ctx.lanes; ++lane) rows.push_back(ctx.host_input<IdBatch>(lane, kIds).batch());
    int64_t columns = 0;
    for (const int piece : pieces_.order) {
      if (piece >= 0) {
        RETURN_IF_ERROR(CheckPiece(ctx, pieces_.lookups[static_cast<size_t>(piece)], piece, rows));
        columns += ColumnsOf(pieces_.lookups[static_cast<size_t>(piece)]);
        continue;
      }
      const DeviceTensor& x = ctx.input(kDense, -1 - piece);
      const std::string name = absl::StrCat("X[", -1 - piece, "]");
      RETURN_IF_ERROR(CheckRank(name, x, 2));
      if (x.lane_rows() != rows) {
        return absl::InvalidArgumentError(absl::StrCat(name, " is ", ShapeString(x.dims()), " in ", x.lanes(),
                                                       " lanes, of other numbers of examples than Ids[0]"));
      }
      columns += x.width();
    }
    RETURN_IF_ERROR(ctx.Resize(0, 2, rows, {columns}));
    const DeviceTensor& out = ctx.output(0);
    int64_t begin = 0;
    for (const int piece : pieces_.order) {
      if (piece < 0) {
        const DeviceTensor& x = ctx.input(kDense, -1 - piece);
        RETURN_IF_ERROR(CopyColumns(ctx, out, begin, x.width(), x.data<float>(), /*into_whole=*/true));
        begin += x.width();
        continue;
      }
      const LookupPiece& of = pieces_.lookups[static_cast<size_t>(piece)];
      RETURN_IF_ERROR(PoolInto(ctx, of.attrs, piece, of.width, ctx.input(kRows, piece).data<float>(), PlacesOf(ctx, piece),
                               &staged_[static_cast<size_t>(piece)], out.data<float>(), ColumnsFrom(of, columns, begin)));
      begin += ColumnsOf(of);
    }
    return absl::OkStatus();
  }

 private:
  const LookupConcat pieces_;
  std::vector<DeviceLanding> staged_;  // one for each look-up
};

class LookupConcatGradKernel : public OpDeviceKernel {
 public:
  explicit LookupConcatGradKernel(LookupConcatGrad pieces)
      : pieces_(std::move(pieces)), gradients_(pieces_.lookups.size()) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& dout = ctx.input(kJoinedGrad);
    RETURN_IF_ERROR(CheckRank("Out@GRAD", dout, 2));
    const std::vector<int64_t> rows = dout.lane_rows();
    for (size_t k = 0; k < pieces_.lookups.size(); ++k) {
      const LookupPiece& piece = pieces_.lookups[k];
      RETURN_IF_ERROR(CheckPiece(ctx, piece, static_cast<int>(k), rows));
      RETURN_IF_ERROR(CheckColumns(dout, piece.begin, ColumnsOf(piece)));
      RETURN_IF_ERROR(gradients_[k].Run(ctx, piece.attrs, static_cast<int>(k), piece.width, dout,
                                        ColumnsFrom(piece, dout.width(), piece.begin)));
    }
    for (size_t j = 0; j < pieces_.dense_begins.size(); ++j) {
      const int64_t begin = pieces_.dense_begins[j], size = pieces_.dense_sizes[j];
      RETURN_IF_ERROR(CheckColumns(dout, begin, size));
      RETURN_IF_ERROR(ctx.Resize(1, 2, rows, {size}, static_cast<int>(j)));
      RETURN_IF_ERROR(CopyColumns(ctx, dout, begin, size, ctx.output(1, static_cast<int>(j)).data<float>(),
                                  /*into_whole=*/false));
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status CheckColumns(const DeviceTensor& dout, int64_t begin, int64_t size) {
    if (begin >= 0 && size >= 0 && begin <= dout.width() && size <= dout.width() - begin) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(size, " columns from ", begin, " on; Out@GRAD is ", ShapeString(dout.dims())));
  }

  const LookupConcatGrad pieces_;
  std::vector<StepRowsGradient> gradients_;  // one for each look-up
};

// lookup_table: slots Ids, W

constexpr int kW = 1;

// W is one matrix for all lanes, and ids are rows of it.
absl::Status CheckTableInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs) {
  const DeviceTensor& w = ctx.input(kW);
  RETURN_IF_ERROR(CheckRank("W", w, 2));
  if (w.lanes() != 1 || w.rows() > INT32_MAX) {
    return absl::InvalidArgumentError(absl::StrCat("W must be one matrix for all lanes of at most ", INT32_MAX,
                                                   " rows, got ", ShapeString(w.dims()), " in ", w.lanes(), " lanes"));
  }
  return ForLanes(ctx, [&](int lane) -> absl::Status {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    RETURN_IF_ERROR(CheckIds(ids, attrs));
    return CheckRange(ids, attrs, w.rows());
  });
}

class LookupTableKernel : public OpDeviceKernel {
 public:
  LookupTableKernel(LookupAttrs attrs, int64_t slots) : attrs_(attrs), slots_(slots) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckTableInputs(ctx, attrs_));
    const DeviceTensor& w = ctx.input(kW);
    const auto ids = [&](int lane) { return ctx.host_input<IdBatch>(lane, kIds).values.data(); };
    return LookUp(ctx, attrs_, slots_, w.width(), w.data<float>(), ids, &staged_);
  }

 private:
  const LookupAttrs attrs_;
  const int64_t slots_;
  DeviceLanding staged_;
};

// Selected rows when is_sparse, else a matrix like W in each lane.
class LookupTableGradKernel : public OpDeviceKernel {
 public:
  LookupTableGradKernel(LookupAttrs attrs, int64_t slots, bool is_sparse)
      : attrs_(attrs), slots_(slots), is_sparse_(is_sparse) {}

  absl::Status Run(DeviceKernelContext& ctx) override {
    RETURN_IF_ERROR(CheckTableInputs(ctx, attrs_));
    const DeviceTensor& w = ctx.input(kW);
    ASSIGN_OR_RETURN(const Groups g, ReadGroups(ctx, attrs_));
    ASSIGN_OR_RETURN(const OutLayout out, LayOut(ctx, attrs_, slots_, w.width()));
    const DeviceTensor& dout = ctx.input(2);
    RETURN_IF_ERROR(CheckOutGradient(dout, out));
    if (!is_sparse_ && w.rows() > INT32_MAX / ctx.lanes) {
      return absl::InvalidArgumentError(absl::StrCat("gradients of ", w.rows(), " rows in each of ", ctx.lanes,
                                                     " lanes are too many for a device; set is_sparse"));
    }
    numbers_.resize(static_cast<size_t>(ctx.lanes));
    RETURN_IF_ERROR(
        gradients_.Sort(ctx, attrs_, g, [&](int lane, RowGradients::Lane* of) { Number(ctx, w.rows(), lane, of); }));
    std::vector<int64_t> lane_rows(static_cast<size_t>(ctx.lanes), w.rows());
    for (int lane = 0; is_sparse_ && lane < ctx.lanes; ++lane) {
      lane_rows[static_cast<size_t>(lane)] = gradients_.rows(lane);
    }
    RETURN_IF_ERROR(ctx.Resize(0, 2, lane_rows, {w.width()}));
    const DeviceTensor& grad = ctx.output(0);
    if (!is_sparse_ && grad.size() > 0) {
      RETURN_IF_ERROR(
          ctx.runtime().Zero(DeviceQueue::kCompute, grad.raw(), static_cast<size_t>(grad.size()) * sizeof(float)));
    }
    return gradients_.Sum(ctx, g, dout, lane_rows, w.width());
  }

 private:
  void Number(DeviceKernelContext& ctx, int64_t height, int lane, RowGradients::Lane* of) {
    const IdBatch& ids = ctx.host_input<IdBatch>(lane, kIds);
    IdDeduper& numbers = numbers_[static_cast<size_t>(lane)];
    std::vector<int64_t>* distinct = &of->row;
    if (is_sparse_) distinct = &FreshRows(ctx.output_var(0), lane, height)->ids;
    distinct->clear();
    of->place.assign(ids.values.size(), -1);
    numbers.Start(static_cast<int64_t>(ids.values.size()));
    ForSelectedIds(ids, attrs_.selection(), [&](int64_t begin, int64_t end) {
      numbers.Add(ids.values.data() + begin, end - begin, of->place.data() + begin, distinct);
    });
    of->count = distinct->size();
  }

  const LookupAttrs attrs_;
  const int64_t slots_;
  const bool is_sparse_;
  std::vector<IdDeduper> numbers_;  // by lane
  RowGradients gradients_;
};

// How the op's input of that name is described; null when it is not.
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

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeOfRows(const KernelInit& init) {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  const v1::VarDesc* const rows = Described(init, "Rows");
  if (rows == nullptr || rows->dims_size() != 2)
    return absl::InvalidArgumentError("Rows is not described as [-1, width]");
  ASSIGN_OR_RETURN(const int64_t slots, SlotsOf(init));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(attrs, slots, rows->dims(1)));
}

template <typename Kernel, typename... Rest>
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeOfTable(const KernelInit& init, Rest... rest) {
  if (init.attrs.Bool("is_distributed")) {
    return absl::InvalidArgumentError("W is distributed: its rows are on servers; transpile the program first");
  }
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  ASSIGN_OR_RETURN(const int64_t slots, SlotsOf(init));
  return std::unique_ptr<OpDeviceKernel>(new Kernel(attrs, slots, rest...));
}

absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeTable(const KernelInit& init) {
  return MakeOfTable<LookupTableKernel>(init);
}
absl::StatusOr<std::unique_ptr<OpDeviceKernel>> MakeTableGrad(const KernelInit& init) {
  return MakeOfTable<LookupTableGradKernel>(init, init.attrs.Bool("is_sparse"));
}

REGISTER_DEVICE_KERNEL(lookup_rows, MakeOfRows<LookupRowsKernel>, {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(lookup_rows_grad, MakeOfRows<LookupRowsGradKernel>, {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(
    lookup_concat,
    [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpDeviceKernel>> {
      ASSIGN_OR_RETURN(LookupConcat pieces, ReadLookupConcat(init));
      return std::unique_ptr<OpDeviceKernel>(new LookupConcatKernel(std::move(pieces)));
    },
    {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(
    lookup_concat_grad,
    [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpDeviceKernel>> {
      ASSIGN_OR_RETURN(LookupConcatGrad pieces, ReadLookupConcatGrad(init));
      return std::unique_ptr<OpDeviceKernel>(new LookupConcatGradKernel(std::move(pieces)));
    },
    {"Ids", "Index"});
REGISTER_DEVICE_KERNEL(lookup_table, MakeTable, {"Ids"});
REGISTER_DEVICE_KERNEL(lookup_table_grad, MakeTableGrad, {"Ids"});

}  // namespace
}  // namespace device
}  // namespace weir
