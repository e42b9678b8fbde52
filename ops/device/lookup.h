// What lookup_rows, lookup_table, lookup_concat and their gradients share on a device: groups of ids, pooling, and the
// gradient by row. ops/lookup.h says what is computed.
//
// Ids and their places are the host's: data, and what prefetch has put beside them. The host also sorts the places by
// row, lane by lane in parallel, counting: that needs two passes and no comparison; so the device sums segments and
// needs no atomics. Which rows a lane's gradient has, and in which order, is what the CPU says.
#ifndef WEIR_OPS_DEVICE_LOOKUP_H_
#define WEIR_OPS_DEVICE_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/device_kernel.h"
#include "ops/device/lookup_functors.h"
#include "ops/lookup.h"

namespace weir {
namespace device {

// The first slots of lookup_rows and lookup_concat; lookup_table shares the first. lookup_concat has a variable for
// each look-up in every slot: k, here and below, says of which.
inline constexpr int kIds = 0, kIndex = 1, kRows = 2;

// How the op's input of that name is described; null when it is not.
const v1::VarDesc* Described(const KernelInit& init, std::string_view name);
// The slots of the input Ids. InvalidArgument when its description has none.
absl::StatusOr<int64_t> SlotsOf(const KernelInit& init);

// Each example or slot is a group whose ids become one row of Out; of a sequence each place is.
inline bool BySlot(const LookupAttrs& attrs) { return attrs.pooling == Pooling::kNone || attrs.per_slot; }
// Of one lane.
inline int64_t GroupsOf(const LookupAttrs& attrs, const IdBatch& ids) {
  if (attrs.sequence > 0) return ids.batch() * attrs.sequence;
  return ids.batch() * (BySlot(attrs) ? ids.slots : 1);
}

inline bool IsPadding(const LookupAttrs& attrs, const IdBatch& ids, size_t i) {
  return attrs.has_padding && ids.values[i] == attrs.padding_id;
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
struct IdGroups {
  std::vector<int32_t> begin;                   // of the values of each group, and their number; not of a sequence
  std::vector<float> divisor;                   // of each group; empty: 1
  std::vector<int64_t> lane_group, lane_value;  // where each lane begins, and the ends
  bool weighted = false;
};

// Of look-up k. Ids have passed their checks. InvalidArgument when a device cannot count them.
absl::StatusOr<IdGroups> ReadGroups(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k = 0);

// Rows and dims of Out.
struct OutLayout {
  int rank = 2;
  std::vector<int64_t> rows;
  Shape row_dims;
};
// InvalidArgument when Ids have other slots than are described.
absl::StatusOr<OutLayout> LayOut(const DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width,
                                 int k = 0);
// InvalidArgument when Out@GRAD is not laid out as forward's Out.
absl::Status CheckOutGradient(const DeviceTensor& dout, const OutLayout& out);

// The row of each value of a lane: an int32_t place in the rows that prefetch brought, or an int64_t id. May give null
// for a lane without values.
template <typename Index>
using RowOf = std::function<const Index*(int lane)>;

// The pooled rows of the groups of look-up k, into `to` at `places`, from `rows` on the device. `landing` is the
// kernel's own, one for each look-up.
template <typename Index>
absl::Status PoolInto(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const float* rows,
                      const RowOf<Index>& row_of, DeviceLanding* landing, float* to, const GroupRows& places);

// Out, of an op of one look-up.
template <typename Index>
absl::Status LookUp(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width, const float* rows,
                    const RowOf<Index>& row_of, DeviceLanding* landing);

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
  absl::Status Sort(DeviceKernelContext& ctx, const LookupAttrs& attrs, const IdGroups& g,
                    const std::function<void(int, Lane*)>& number, int k = 0);
  int64_t rows(int lane) const { return static_cast<int64_t>(lanes_[static_cast<size_t>(lane)].count); }

  // Into output k of slot 0, which has lane_rows[lane] rows in each lane; the gradients of groups lie in dout at
  // `places`.
  absl::Status Sum(DeviceKernelContext& ctx, const IdGroups& g, const DeviceTensor& dout,
                   const std::vector<int64_t>& lane_rows, int64_t width, int k = 0, const GroupRows& places = {});

 private:
  static void Cut(const LookupAttrs& attrs, const IdGroups& g, const IdBatch& ids, int64_t first_group, Lane* runs);

  // Kept from step to step.
  std::vector<Lane> lanes_;
  DeviceLanding staged_;
  DeviceArray partial_;
};

// What the host knows of a lane's gradient by row before its ids are numbered: merged, of `height` rows in all.
SelectedRows* FreshRows(const DeviceVariable& var, int lane, int64_t height);

// Look-ups in the rows that prefetch brought for the step (lookup_rows.cc).

// Ids, Index and Rows of look-up k belong together in every lane; else InvalidArgument.
absl::Status CheckRowInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t width, int k = 0);

// Places in Rows of look-up k's values, by lane. Borrows ctx.
RowOf<int32_t> PlacesOf(const DeviceKernelContext& ctx, int k);

// The gradient of the rows of look-up k, into output k of slot 0.
class StepRowsGradient {
 public:
  // Inputs have passed their checks; the gradients of groups lie in dout at `places`.
  absl::Status Run(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const DeviceTensor& dout,
                   const GroupRows& places);

 private:
  void Number(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int lane, RowGradients::Lane* of);

  std::vector<std::vector<int32_t>> row_places_;  // by lane
  RowGradients gradients_;
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_LOOKUP_H_
