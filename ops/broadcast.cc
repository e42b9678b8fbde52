#include "ops/broadcast.h"

#include <vector>

#include "absl/strings/str_cat.h"

namespace weir {

Broadcast::Broadcast(absl::Span<const int64_t> x, absl::Span<const int64_t> y) {
  CHECK_EQ(x.size(), y.size());
  // Join neighbours that both move or both stand still. A dim of 1 joins anything.
  Shape dims;
  std::vector<bool> moves;
  for (size_t d = 0; d < x.size(); ++d) {
    CHECK(y[d] == x[d] || y[d] == 1) << ShapeString(y) << " against " << ShapeString(x);
    if (x[d] == 1) continue;
    const bool move = y[d] == x[d];
    if (!dims.empty() && moves.back() == move) {
      dims.back() *= x[d];
    } else {
      dims.push_back(x[d]);
      moves.push_back(move);
    }
  }
  if (dims.empty()) return;
  inner_ = dims.back();
  inner_moves_ = moves.back();
  dims.pop_back();
  int64_t stride = inner_moves_ ? inner_ : 1;
  outer_ = dims;
  stride_.assign(dims.size(), 0);
  for (int d = static_cast<int>(dims.size()) - 1; d >= 0; --d) {
    runs_ *= dims[d];
    if (!moves[d]) continue;
    stride_[d] = stride;
    stride *= dims[d];
  }
}

absl::StatusOr<Shape> AlignDims(absl::Span<const int64_t> x, absl::Span<const int64_t> y, int64_t axis) {
  const int64_t rank = static_cast<int64_t>(x.size()), y_rank = static_cast<int64_t>(y.size());
  const int64_t from = axis < 0 ? rank - y_rank : axis;
  if (from < 0 || from > rank - y_rank) {
    return absl::InvalidArgumentError(absl::StrCat("Y has dims ", ShapeString(y), ", which from axis ", axis,
                                                   " on do not fit into X's ", ShapeString(x),
                                                   "; Y must be the smaller one"));
  }
  Shape aligned(rank, 1);
  for (int64_t d = 0; d < y_rank; ++d) {
    if (y[d] != 1 && y[d] != x[from + d]) {
      return absl::InvalidArgumentError(absl::StrCat("X has dims ", ShapeString(x), ", Y ", ShapeString(y),
                                                     " from axis ", from, " on; they must be equal there, or 1 in Y"));
    }
    aligned[from + d] = y[d];
  }
  return aligned;
}

}  // namespace weir
