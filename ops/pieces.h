// Pieces of a tensor along one axis, for concat and split.
#ifndef WEIR_OPS_PIECES_H_
#define WEIR_OPS_PIECES_H_

#include <cstdint>
#include <cstring>

#include "absl/types/span.h"

namespace weir {

// Returns the axis in [0, rank); a negative `axis` counts from the end. -1 if it is out of range.
inline int64_t NormalAxis(int64_t axis, size_t rank) {
  const int64_t r = static_cast<int64_t>(rank);
  const int64_t normal = axis < 0 ? axis + r : axis;
  return normal >= 0 && normal < r ? normal : -1;
}

// Layout of the piece [begin, begin + size) along `axis` of a tensor of dims `whole`: `outer` stretches of `length`
// floats, `stride` apart, the first at `first`.
struct PieceLayout {
  int64_t outer = 1, stride = 1, first = 0, length = 1;
  PieceLayout(absl::Span<const int64_t> whole, int64_t axis, int64_t begin, int64_t size) {
    int64_t inner = 1;
    for (int64_t d = 0; d < axis; ++d) outer *= whole[d];
    for (int64_t d = axis + 1; d < static_cast<int64_t>(whole.size()); ++d) inner *= whole[d];
    stride = whole[axis] * inner;
    first = begin * inner;
    length = size * inner;
  }
};

inline void CopyIntoPiece(absl::Span<const int64_t> whole, int64_t axis, int64_t begin, int64_t size,
                          const float* piece, float* out) {
  const PieceLayout at(whole, axis, begin, size);
  if (at.length == 0) return;
  for (int64_t o = 0; o < at.outer; ++o) {
    std::memcpy(out + o * at.stride + at.first, piece + o * at.length, at.length * sizeof(float));
  }
}

inline void CopyFromPiece(absl::Span<const int64_t> whole, int64_t axis, int64_t begin, int64_t size, const float* in,
                          float* piece) {
  const PieceLayout at(whole, axis, begin, size);
  if (at.length == 0) return;
  for (int64_t o = 0; o < at.outer; ++o) {
    std::memcpy(piece + o * at.length, in + o * at.stride + at.first, at.length * sizeof(float));
  }
}

}  // namespace weir

#endif  // WEIR_OPS_PIECES_H_
