// What look-ups share (lookup_table, lookup_rows, lookup_concat): shape, pooling, and the gradient by occurrence.
//
// Ids of one lane in S slots; rows [*, W]. With pooling none every slot has exactly one id and
//   out [B, S, W]: row of the id, times its weight.
// Otherwise a group is all ids of an example, out [B, W], or with per_slot all ids of a slot, out [B, S, W]:
//   out = sum_i weight_i row_i / d,   d = 1 (sum), sum_i weight_i (mean), sqrt(sum_i weight_i^2) (sqrt_n)
// over the group's ids in their order; without weights each weight is 1. A padding id counts as absent. A group without
// ids, or with d = 0, is zero.
//
// A sequence is pooling none of any number of ids in one slot: out [B, T, W] has the rows of the last T of them that
// are no padding, from the left, each times its weight, and zeros behind them.
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
#include "framework/runtime/kernel.h"
#include "framework/tensor/id_selection.h"
#include "framework/tensor/tensor.h"

namespace weir {

// More would be a mistake; and a length is exact as float32.
constexpr int64_t kLongestSequence = 1 << 20;

enum class Pooling { kNone, kSum, kMean, kSqrtN };
// "none", "sum", "mean", "sqrt_n". InvalidArgument for another name.
absl::StatusOr<Pooling> PoolingOf(std::string_view name);
std::string_view PoolingName(Pooling pooling);

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

// InvalidArgument when offsets, values and weights do not belong together, pooling none meets a slot without exactly
// one id (names example and slot), or a sequence several slots.
absl::Status CheckIds(const IdBatch& ids, const LookupAttrs& attrs);

// InvalidArgument when an id is not in [0, rows) and no padding (names id, example and slot).
absl::Status CheckRange(const IdBatch& ids, const LookupAttrs& attrs, int64_t rows);

// Floats that out has of each example.
int64_t OutWidth(const LookupAttrs& attrs, int64_t slots, int64_t width);

// out from rows; row[i] is the row of value i. Ids must have passed CheckIds.
template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              Tensor* out);
// The same into part of a matrix: what is of example b begins at out + b * stride.
template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              float* out, int64_t stride);

// Adds the gradient of every id to grad[place[i]]; place[i] < 0 is left out (padding). `fresh`: places are numbered in
// order of first appearance and the first gradient of a place is stored, not added; otherwise grad holds numbers
// already. What is of example b begins at out_grad + b * stride.
template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const float* out_grad, int64_t stride, int64_t width, float* grad);
// The same from a gradient of its own, which has passed CheckOutGrad.
template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const Tensor& out_grad, int64_t width, float* grad);

// InvalidArgument when Out@GRAD does not have the shape that forward gave Out.
absl::Status CheckOutGrad(const LookupAttrs& attrs, const IdBatch& ids, int64_t width, const Tensor& out_grad);

// Look-ups in the rows that prefetch brought for the step.

// Ids, Index and the ids of Rows of a run belong together, and where padding stands. InvalidArgument names the slot.
absl::Status CheckStepIndex(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index,
                            const SelectedRows& rows);
// The same, and Rows has values of that width.
absl::Status CheckStepRows(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                           int64_t width);

// The gradient of Rows: merged rows of the lane in order of first appearance, with step_rows. What passed
// CheckStepRows; the gradient of example b begins at out_grad + b * stride.
void StepRowsGradient(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                      int64_t width, const float* out_grad, int64_t stride, SelectedRows* grad);

// What the attributes of lookup_concat and lookup_concat_grad say, for their kernels on every device.

// One look-up of several, as it is described.
struct LookupPiece {
  LookupAttrs attrs;
  int64_t width = 0;
  int64_t slots = 0;
  // Of the gradient: its first column in Out@GRAD.
  int64_t begin = 0;
};

struct LookupConcat {
  std::vector<LookupPiece> lookups;
  // Pieces of Out from the left: look-up p, or dense input -1 - p.
  std::vector<int> order;
};
absl::StatusOr<LookupConcat> ReadLookupConcat(const KernelInit& init);

struct LookupConcatGrad {
  std::vector<LookupPiece> lookups;
  // First columns and widths of the dense inputs' pieces.
  std::vector<int64_t> dense_begins, dense_sizes;
};
absl::StatusOr<LookupConcatGrad> ReadLookupConcatGrad(const KernelInit& init);

}  // namespace weir

#endif  // WEIR_OPS_LOOKUP_H_
