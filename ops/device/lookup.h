// Shared code of lookup_rows, lookup_table, lookup_concat and their gradients on a device: groups of ids, pooling, and
// the gradient by row. ops/lookup.h defines the results.
//
// Ids and the row indices that prefetch computes for them are on the host. The host also sorts the indices by row with
// a counting sort in two passes, lanes in parallel; the device then sums segments and needs no atomics. The rows of a
// lane's gradient, and their order, equal the CPU's.
#ifndef WEIR_OPS_DEVICE_LOOKUP_H_
#define WEIR_OPS_DEVICE_LOOKUP_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"
#include "ops/device/lookup_functors.h"
#include "ops/lookup.h"

namespace weir {
namespace device {

// The first slots of lookup_rows and lookup_concat; lookup_table shares the first. lookup_concat has one variable per
// look-up in every slot: k, here and below, is the index of the look-up.
inline constexpr int kIds = 0, kIndex = 1, kRows = 2;

// Returns the description of the op's input of that name; null if there is none.
const v1::VarDesc* Described(const KernelInit& init, std::string_view name);
// Returns the number of slots of the input Ids. InvalidArgument if its description has none.
absl::StatusOr<int64_t> SlotsOf(const KernelInit& init);

// Returns true if each slot is a group of ids that become one row of Out, false if each example is. In a sequence each
// position is a group.
inline bool BySlot(const LookupAttrs& attrs) { return attrs.pooling == Pooling::kNone || attrs.per_slot; }
// Returns the number of groups of one lane.
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

// Groups of the ids of all lanes, for forward and backward.
struct IdGroups {
  std::vector<int32_t> begin;  // first value of each group, then the number of values; empty for a sequence
  std::vector<float> divisor;  // of each group; empty: 1
  std::vector<int64_t> lane_group, lane_value;  // first group and value of each lane, then the total
  bool weighted = false;
};

// Reads the groups of look-up k. Ids must have passed their checks. InvalidArgument if there are too many for the
// device.
absl::StatusOr<IdGroups> ReadGroups(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k = 0);

// Rows and dims of Out.
struct OutLayout {
  int rank = 2;
  std::vector<int64_t> rows;
  Shape row_dims;
};
// Returns the layout of Out. InvalidArgument if the number of slots of Ids differs from its description.
absl::StatusOr<OutLayout> LayOut(const DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width,
                                 int k = 0);
// Returns InvalidArgument if the layout of Out@GRAD differs from that of Out.
absl::Status CheckOutGradient(const DeviceTensor& dout, const OutLayout& out);

// Returns the row of each value of a lane: an int32_t index of the rows that prefetch pulled, or an int64_t id. May
// return null for a lane without values.
template <typename Index>
using RowOf = std::function<const Index*(int lane)>;

// Writes the pooled rows of the groups of look-up k to `to` at `places`, from `rows` on the device. The kernel owns
// `landing`, one for each look-up.
template <typename Index>
absl::Status PoolInto(DeviceKernelContext& ctx, const LookupAttrs& attrs, int k, int64_t width, const float* rows,
                      const RowOf<Index>& row_of, DeviceLanding* landing, float* to, const GroupRows& places);

// Computes Out of an op with one look-up.
template <typename Index>
absl::Status LookUp(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t slots, int64_t width, const float* rows,
                    const RowOf<Index>& row_of, DeviceLanding* landing);

// Computes gradients of rows from that of Out, by runs of values with equal row.
class RowGradients {
 public:
  // Numbering of a lane: row of the lane's gradient for each value, in the order of first appearance, and number of
  // rows.
  struct Lane {
    std::vector<int32_t> place;  // -1: not read
    size_t count = 0;
    // Row of W@GRAD for each row; empty: equal to its number.
    std::vector<int64_t> row;

   private:
    friend class RowGradients;
    std::vector<int32_t> group, begin, to;  // of entries, of runs, of runs
    std::vector<float> weight;
    std::vector<int32_t> joined, joined_runs;  // rows of several runs, and how many
    std::vector<int32_t> next;
  };

  // Sorts the values of look-up k by row. Calls number(lane, &Lane) for each lane, in parallel, which must fill the
  // public fields.
  absl::Status Sort(DeviceKernelContext& ctx, const LookupAttrs& attrs, const IdGroups& g,
                    const std::function<void(int, Lane*)>& number, int k = 0);
  int64_t rows(int lane) const { return static_cast<int64_t>(lanes_[static_cast<size_t>(lane)].count); }

  // Writes the sums to output k of slot 0, with lane_rows[lane] rows in each lane; the gradients of groups are in dout
  // at `places`.
  absl::Status Sum(DeviceKernelContext& ctx, const IdGroups& g, const DeviceTensor& dout,
                   const std::vector<int64_t>& lane_rows, int64_t width, int k = 0, const GroupRows& places = {});

 private:
  static void Cut(const LookupAttrs& attrs, const IdGroups& g, const IdBatch& ids, int64_t first_group, Lane* runs);

  // Memory that is kept from step to step.
  std::vector<Lane> lanes_;
  DeviceLanding staged_;
  DeviceArray partial_;
};

// Prepares the host value of a lane's gradient by row before its ids are numbered: merged, with height `height`.
SelectedRows* FreshRows(const DeviceVariable& var, int lane, int64_t height);

// Look-ups in the rows that prefetch pulled for the step (lookup_rows.cc).

// Returns InvalidArgument unless Ids, Index and Rows of look-up k fit each other in every lane.
absl::Status CheckRowInputs(DeviceKernelContext& ctx, const LookupAttrs& attrs, int64_t width, int k = 0);

// Returns the row indices of look-up k's values in Rows, by lane. Borrows ctx.
RowOf<int32_t> PlacesOf(const DeviceKernelContext& ctx, int k);

// Computes the gradient of the rows of look-up k, into output k of slot 0.
class StepRowsGradient {
 public:
  // Inputs must have passed their checks; the gradients of groups are in dout at `places`.
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
