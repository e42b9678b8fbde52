// What lookup_table and lookup_rows share: shape, pooling, and the gradient by occurrence.
//
// Ids of one lane in S slots; rows [*, W]. With pooling none every slot has exactly one id and
//   out [B, S, W]: row of the id, times its weight.
// Otherwise a group is all ids of an example, out [B, W], or with per_slot all ids of a slot, out [B, S, W]:
//   out = sum_i weight_i row_i / d,   d = 1 (sum), sum_i weight_i (mean), sqrt(sum_i weight_i^2) (sqrt_n)
// over the group's ids in their order; without weights each weight is 1. A padding id counts as absent. A group without ids,
// or with d = 0, is zero.
//
// A sequence is pooling none of any number of ids in one slot: out [B, T, W] has the rows of the last T of them that are no
// padding, from the left, each times its weight, and zeros behind them.
//
// Gradient of the row of id i: weight_i dout / d, summed in the order in which ids stand in the batch.
#ifndef WEIR_OPS_LOOKUP_H_
#define WEIR_OPS_LOOKUP_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/graph/op_registry.h"
#include "framework/tensor/id_selection.h"
#include "framework/tensor/tensor.h"

namespace weir {

// More would be a mistake; and a length is exact as float32.
constexpr int64_t kLongestSequence = 1 << 20;

enum class Pooling { kNone, kSum, kMean, kSqrtN };

struct LookupAttrs {
  Pooling pooling = Pooling::kNone;
  bool per_slot = false;
  bool has_padding = false;
  int64_t padding_id = 0;
  int64_t sequence = 0;  // T; 0 is no sequence

  IdSelection selection() const { return {.has_padding = has_padding, .padding_id = padding_id, .sequence = sequence}; }
};
// InvalidArgument for an unknown pooling, and for a sequence that is pooled or of no known length.
absl::StatusOr<LookupAttrs> ReadLookupAttrs(const AttrReader& attrs);
// pooling, per_slot, has_padding, padding_id, sequence.
std::vector<AttrDef> LookupAttrDefs();

// Sets Out from Ids [-1, S] and the width.
absl::Status InferLookup(InferContext& ctx, int64_t width);
Cost LookupCost(InferContext& ctx, int64_t width);

// InvalidArgument when offsets, values and weights do not belong together, pooling none meets a slot without exactly one
// id (names example and slot), or a sequence several slots.
absl::Status CheckIds(const IdBatch& ids, const LookupAttrs& attrs);

// InvalidArgument when an id is not in [0, rows) and no padding (names id, example and slot).
absl::Status CheckRange(const IdBatch& ids, const LookupAttrs& attrs, int64_t rows);

// out from rows; row[i] is the row of value i. Ids must have passed CheckIds.
template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width, Tensor* out);

// Adds the gradient of every id to grad[place[i]]; place[i] < 0 is left out (padding). `fresh`: places are numbered in order of
// first appearance and the first gradient of a place is stored, not added; otherwise grad holds numbers already.
template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh, const Tensor& out_grad,
                     int64_t width, float* grad);

// InvalidArgument when Out@GRAD does not have the shape that forward gave Out.
absl::Status CheckOutGrad(const LookupAttrs& attrs, const IdBatch& ids, int64_t width, const Tensor& out_grad);

}  // namespace weir

#endif  // WEIR_OPS_LOOKUP_H_
