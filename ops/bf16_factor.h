// Factors of products of matrices in bfloat16, rounded and packed as the units of ops/gemm_bf16.h read them.
//
// A line is a row of the left factor or a column of the right one. A tile has 16 lines and 16 pairs of neighbours along
// k, 32 bits each: 64 bytes a line on the left, 64 bytes a pair on the right. The tiles of 16 lines stand one after the
// other along k; what is behind the borders of the matrix is 0. Elements are rounded to nearest, ties to even.
//
// Packing needs a processor with AVX512_BF16 (HasBf16Unit).
#ifndef WEIR_OPS_BF16_FACTOR_H_
#define WEIR_OPS_BF16_FACTOR_H_

#include <cstdint>

#include "framework/tensor/tensor.h"

namespace weir {

// A packed factor. Owns its memory and keeps it from one matrix to the next. Not thread-safe.
class Bf16Factor {
 public:
  static constexpr int kSide = 16;                      // lines and pairs of a tile
  static constexpr int kDepth = 2 * kSide;              // elements of k in a tile
  static constexpr int64_t kTileWords = kSide * kSide;  // of 32 bits

  // Packs op(a) [m, k] as the left factor, or op(b) [k, n] as the right one, where op transposes if asked to. lda and
  // ldb are the lengths of the rows as stored (ops/gemm.h).
  void PackLeft(int64_t m, int64_t k, const float* a, int64_t lda, bool transpose);
  void PackRight(int64_t k, int64_t n, const float* b, int64_t ldb, bool transpose);
  // Sets the size; the contents are undefined. Returns the words.
  uint32_t* Resize(int64_t lines, int64_t k);

  int64_t lines() const { return lines_; }
  // Tiles along k.
  int64_t depth() const { return depth_; }
  const uint32_t* words() const { return reinterpret_cast<const uint32_t*>(words_.data<int32_t>()); }

 private:
  int64_t lines_ = 0, depth_ = 0;
  Tensor words_;
};

// Gradient of a product's result, which comes into it row by row.
struct ResultGradient {
  int64_t rows = 0, columns = 0;
  // [rows, columns], without gaps.
  const float* d = nullptr;
  // The result [rows, columns] after relu: d counts where it is positive. nullptr: all of d counts.
  const float* relu = nullptr;
};

// Packs the gradient in one pass, with the bits of a pass for each: as the left factor [rows, columns] of the gradient
// of the product's left factor, as the right factor [rows, columns] of that of its right one, and adds up each column
// in the order of rows into `sums`. Any of the three may be nullptr.
void PackGradient(const ResultGradient& gradient, Bf16Factor* left, Bf16Factor* right, float* sums);

// Factors for products that no one else uses. Kernels run on several lanes at once, so they are owned by the thread;
// each is valid until the next product that packs it on this thread.
struct Bf16Scratch {
  Bf16Factor left, right;
  Bf16Factor gradient_left, gradient_right;

  static Bf16Scratch& OfThread();
};

}  // namespace weir

#endif  // WEIR_OPS_BF16_FACTOR_H_
