// Shared code of update ops whose step depends on norms of the whole parameter (lars_momentum, lamb): their norm
// inputs, and the two forms of their loops. They have no row form, because the norm of a table whose rows are created
// on use is not defined.
#ifndef WEIR_OPS_NORM_UPDATE_H_
#define WEIR_OPS_NORM_UPDATE_H_

#include <string>
#include <utility>
#include <vector>

#include "ops/update_op.h"

namespace weir {

// Adds required inputs [1] float64 after the states.
inline OpDef WithNorms(OpDef def, std::vector<std::string> norms) {
  for (const std::string& norm : norms) def.inputs.push_back({.name = norm});
  def.shape = [shape = std::move(def.shape), norms = std::move(norms)](InferContext& ctx) -> absl::Status {
    if (ctx.Input("Param").kind() == v1::TABLE) {
      return ctx.Error("cannot update rows of a table: it needs the norm of the whole parameter");
    }
    for (const std::string& norm : norms) {
      if (ctx.Input(norm).dtype() != v1::FLOAT64 || ctx.InputShape(norm) != Shape{1}) {
        return ctx.Error(absl::StrCat(norm, " must be FLOAT64 [1], the output of whole_norm"));
      }
    }
    return shape(ctx);
  };
  return def;
}

// Returns the norm in an input slot; FailedPrecondition if it has not been computed.
inline absl::StatusOr<double> ReadNorm(const KernelContext& ctx, int slot, std::string_view name) {
  const Tensor& norm = ctx.input(slot);
  if (!norm.initialized() || norm.dtype() != v1::FLOAT64 || norm.size() != 1) {
    return absl::FailedPreconditionError(absl::StrCat(std::string(name), " has no value; whole_norm makes it"));
  }
  return norm.data<double>()[0];
}

// Runs fn(begin, elements, row or -1) over the elements that an update changes: [begin, begin + elements) of Param in
// pieces if the gradient is dense, row by row (row: its index in the gradient) if it is selected rows.
template <typename Fn>
void ForUpdated(const UpdateArgs& a, ThreadPool* pool, const Fn& fn) {
  constexpr int64_t kPiece = int64_t{1} << 15;
  if (a.dense != nullptr) {
    ForPieces(pool, a.size, kPiece, [&](int64_t begin, int64_t end) { fn(begin, end - begin, int64_t{-1}); });
    return;
  }
  const std::vector<int64_t>& ids = a.selected->ids;
  ForPieces(pool, static_cast<int64_t>(ids.size()), std::max<int64_t>(1, kPiece / std::max<int64_t>(1, a.width)),
            [&](int64_t begin, int64_t end) {
              for (int64_t i = begin; i < end; ++i) fn(ids[static_cast<size_t>(i)] * a.width, a.width, i);
            });
}

}  // namespace weir

#endif  // WEIR_OPS_NORM_UPDATE_H_
