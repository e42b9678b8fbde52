// Shared code of look-ups (lookup_table, lookup_rows, lookup_concat): shape, pooling, and the gradient by occurrence.
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

// Longest sequence; a longer one is taken for a mistake. Lengths are exact as float32.
constexpr int64_t kLongestSequence = 1 << 20;

enum class Pooling { kNone, kSum, kMean, kSqrtN };
// Parses "none", "sum", "mean", "sqrt_n". InvalidArgument for another name.
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
// Reads the attributes. InvalidArgument for an unknown pooling, and for a sequence that is pooled or has an invalid
// length.
absl::StatusOr<LookupAttrs> ReadLookupAttrs(const AttrReader& attrs);
// Returns the attributes pooling, per_slot, has_padding, padding_id, sequence.
std::vector<AttrDef> LookupAttrDefs();

// Sets Out from Ids [-1, S] and the width.
absl::Status InferLookup(InferContext& ctx, int64_t width);
Cost LookupCost(InferContext& ctx, int64_t width);

// Checks ids. InvalidArgument if offsets, values and weights do not fit each other, if a slot with pooling none does
// not have exactly one id (names example and slot), or if a sequence has several slots.
absl::Status CheckIds(const IdBatch& ids, const LookupAttrs& attrs);

// Checks that ids are in [0, rows) or padding. InvalidArgument names id, example and slot.
absl::Status CheckRange(const IdBatch& ids, const LookupAttrs& attrs, int64_t rows);

// Returns the floats per example in out.
int64_t OutWidth(const LookupAttrs& attrs, int64_t slots, int64_t width);

// Computes out from rows; row[i] is the row of value i. Ids must have passed CheckIds.
template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              Tensor* out);
// Writes into columns of a matrix: the result of example b begins at out + b * stride.
template <typename Index>
void PoolRows(const LookupAttrs& attrs, const IdBatch& ids, const Index* row, const float* rows, int64_t width,
              float* out, int64_t stride);

// Adds the gradient of every id to grad[place[i]]; skips place[i] < 0 (padding). `fresh`: places are numbered in order
// of first appearance and the first gradient of a place is stored, not added; otherwise grad must be initialised. The
// gradient of example b begins at out_grad + b * stride.
template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const float* out_grad, int64_t stride, int64_t width, float* grad);
// Adds the gradient from a whole tensor out_grad, which has passed CheckOutGrad.
template <typename Index>
void ScatterGradient(const LookupAttrs& attrs, const IdBatch& ids, const Index* place, bool fresh,
                     const Tensor& out_grad, int64_t width, float* grad);

// Returns InvalidArgument if Out@GRAD does not have the shape of Out.
absl::Status CheckOutGrad(const LookupAttrs& attrs, const IdBatch& ids, int64_t width, const Tensor& out_grad);

// Look-ups in the rows that prefetch brought for the step.

// Checks that Ids, Index and the ids of Rows of a run fit each other, padding included. InvalidArgument names the slot.
absl::Status CheckStepIndex(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index,
                            const SelectedRows& rows);
// Also checks that Rows has values of that width.
absl::Status CheckStepRows(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                           int64_t width);

// Computes the gradient of Rows: merged rows of the lane in order of first appearance, with step_rows. The inputs have
// passed CheckStepRows; the gradient of example b begins at out_grad + b * stride.
void StepRowsGradient(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                      int64_t width, const float* out_grad, int64_t stride, SelectedRows* grad);

// Attributes of lookup_concat and lookup_concat_grad, for their kernels on every device.

// Description of one of several look-ups.
struct LookupPiece {
  LookupAttrs attrs;
  int64_t width = 0;
  int64_t slots = 0;
  // First column of the look-up in Out@GRAD; only for the gradient op.
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
