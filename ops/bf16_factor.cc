#include "ops/bf16_factor.h"

#include <immintrin.h>

#include <algorithm>
#include <cstddef>

// clang and gcc spell the sets alike. AVX512BW and VL come with every processor that has BF16.
#define WEIR_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace weir {
namespace {

constexpr int kSide = Bf16Factor::kSide, kDepth = Bf16Factor::kDepth;
constexpr int64_t kTileWords = Bf16Factor::kTileWords;

int64_t Tiles(int64_t count, int64_t side) { return (count + side - 1) / side; }
__mmask16 FirstOf(int64_t count) { return static_cast<__mmask16>(count >= kSide ? 0xFFFF : (1 << count) - 1); }

// A factor as stored: element (row, column) at data[row * stride + column].
struct Stored {
  const float* data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;
};

// Rounds 32 elements of a row from `column` on, those behind its end as 0: pairs of neighbours.
WEIR_BF16 inline __m512i PairsOfRow(const Stored& from, int64_t row, int64_t column) {
  if (row >= from.rows) return _mm512_setzero_si512();
  const float* const at = from.data + row * from.stride + column;
  const int64_t left = std::max<int64_t>(0, from.columns - column);
  const __m512 low = _mm512_maskz_loadu_ps(FirstOf(left), at);
  const __m512 high = _mm512_maskz_loadu_ps(FirstOf(std::max<int64_t>(0, left - kSide)), at + kSide);
  return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
}

// Rounds 16 columns of rows `row` and `row` + 1 from `column` on: pairs of what stands in one column.
WEIR_BF16 inline __m512i PairsOfColumns(const Stored& from, int64_t row, int64_t column) {
  if (row >= from.rows) return _mm512_setzero_si512();
  const __mmask16 there = FirstOf(std::max<int64_t>(0, from.columns - column));
  const float* const at = from.data + row * from.stride + column;
  const __m512 even = _mm512_maskz_loadu_ps(there, at);
  const __m512 odd = row + 1 < from.rows ? _mm512_maskz_loadu_ps(there, at + from.stride) : _mm512_setzero_ps();
  const __m512i apart = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even));
  const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6, 21,
                                         5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(order, apart);
}

// Swaps rows and columns of 16 x 16 words.
WEIR_BF16 inline void Transpose(__m512i (&r)[kSide]) {
  __m512i x[kSide];
#pragma GCC unroll 8
  for (size_t i = 0; i < kSide; i += 2) {
    x[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    x[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kSide; i += 4) {
    r[i] = _mm512_unpacklo_epi64(x[i], x[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(x[i], x[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(x[i + 1], x[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(x[i + 1], x[i + 3]);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    x[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
    x[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);
    x[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
    x[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(x[i], x[i + 8], 0x88);
    r[i + 4] = _mm512_shuffle_i32x4(x[i + 4], x[i + 12], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(x[i], x[i + 8], 0xDD);
    r[i + 12] = _mm512_shuffle_i32x4(x[i + 4], x[i + 12], 0xDD);
  }
}

// Packs a matrix. With `line_in_row`, word (i, p) of a tile is pair p of line i, as the left factor has it, else pair i
// of line p, as the right one. k_in_row: k runs along a stored row. The two agree without a transposition.
WEIR_BF16 void Pack(const Stored& from, bool k_in_row, bool line_in_row, Bf16Factor* factor) {
  uint32_t* const words = factor->Resize(k_in_row ? from.rows : from.columns, k_in_row ? from.columns : from.rows);
  const int64_t high = k_in_row ? kSide : kDepth, wide = k_in_row ? kDepth : kSide;
  // In the order of the matrix in memory.
  for (int64_t row = 0; row < from.rows; row += high) {
    for (int64_t column = 0; column < from.columns; column += wide) {
      __m512i tile[kSide];
#pragma GCC unroll 16
      for (int64_t i = 0; i < kSide; ++i) {
        tile[i] = k_in_row ? PairsOfRow(from, row + i, column) : PairsOfColumns(from, row + 2 * i, column);
      }
      if (k_in_row != line_in_row) Transpose(tile);
      const int64_t line = (k_in_row ? row : column) / kSide, at = (k_in_row ? column : row) / kDepth;
      uint32_t* const to = words + (line * factor->depth() + at) * kTileWords;
#pragma GCC unroll 16
      for (size_t i = 0; i < kSide; ++i) _mm512_store_si512(to + i * kSide, tile[i]);
    }
  }
}

// Where a block of kDepth x kDepth of a gradient goes; nullptr where it does not.
struct GradientBlock {
  uint32_t* left[2] = {};   // tiles of the upper and the lower rows
  uint32_t* right[2] = {};  // tiles of the first and the last columns
  float* sums = nullptr;
};

// Returns 16 elements of a row of the gradient, 0 where the mask is.
WEIR_BF16 inline __m512 Counted(const ResultGradient& from, int64_t at, __mmask16 there) {
  const __m512 d = _mm512_maskz_loadu_ps(there, from.d + at);
  if (from.relu == nullptr) return d;
  const __m512 out = _mm512_maskz_loadu_ps(there, from.relu + at);
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(out, _mm512_setzero_ps(), _CMP_GT_OQ), d);
}

WEIR_BF16 void PackBlock(const ResultGradient& from, int64_t row, int64_t column, const GradientBlock& to) {
  const __mmask16 there[2] = {FirstOf(from.columns - column),
                              FirstOf(std::max<int64_t>(0, from.columns - column - kSide))};
  const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i last = _mm512_add_epi16(first, _mm512_set1_epi16(kSide));
  __m512 sums[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
  if (to.sums != nullptr) {
    for (int half = 0; half < 2; ++half) sums[half] = _mm512_maskz_loadu_ps(there[half], to.sums + half * kSide);
  }
  for (int pair = 0; pair < kSide; ++pair) {
    __m512i rounded[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t i = 0; i < 2 && row + 2 * pair + i < from.rows; ++i) {
      const int64_t at = (row + 2 * pair + i) * from.columns + column;
      const __m512 low = Counted(from, at, there[0]), high = Counted(from, at + kSide, there[1]);
      sums[0] = _mm512_add_ps(sums[0], low);
      sums[1] = _mm512_add_ps(sums[1], high);
      rounded[i] = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    }
    if (uint32_t* const left = to.left[pair / 8]; left != nullptr) {
      _mm512_store_si512(left + (2 * pair % kSide) * kSide, rounded[0]);
      _mm512_store_si512(left + (2 * pair % kSide + 1) * kSide, rounded[1]);
    }
    if (to.right[0] != nullptr) {
      _mm512_store_si512(to.right[0] + pair * kSide, _mm512_permutex2var_epi16(rounded[0], first, rounded[1]));
    }
    if (to.right[1] != nullptr) {
      _mm512_store_si512(to.right[1] + pair * kSide, _mm512_permutex2var_epi16(rounded[0], last, rounded[1]));
    }
  }
  if (to.sums == nullptr) return;
  for (int half = 0; half < 2; ++half) _mm512_mask_storeu_ps(to.sums + half * kSide, there[half], sums[half]);
}

// Returns the tile of lines from `line` and elements of k from `k` on; nullptr if the factor does not have it.
uint32_t* TileAt(const Bf16Factor& factor, uint32_t* words, int64_t line, int64_t k) {
  if (words == nullptr || line >= factor.lines()) return nullptr;
  return words + (line / kSide * factor.depth() + k / kDepth) * kTileWords;
}

}  // namespace

uint32_t* Bf16Factor::Resize(int64_t lines, int64_t k) {
  lines_ = lines;
  depth_ = Tiles(k, kDepth);
  words_.Resize(v1::INT32, {Tiles(lines, kSide) * depth_ * kTileWords});
  return reinterpret_cast<uint32_t*>(words_.data<int32_t>());
}

void Bf16Factor::PackLeft(int64_t m, int64_t k, const float* a, int64_t lda, bool transpose) {
  Pack({a, transpose ? k : m, transpose ? m : k, lda}, /*k_in_row=*/!transpose, /*line_in_row=*/true, this);
}

void Bf16Factor::PackRight(int64_t k, int64_t n, const float* b, int64_t ldb, bool transpose) {
  Pack({b, transpose ? n : k, transpose ? k : n, ldb}, /*k_in_row=*/transpose, /*line_in_row=*/false, this);
}

void PackGradient(const ResultGradient& gradient, Bf16Factor* left, Bf16Factor* right, float* sums) {
  const int64_t rows = gradient.rows, columns = gradient.columns;
  uint32_t* const lefts = left == nullptr ? nullptr : left->Resize(rows, columns);
  uint32_t* const rights = right == nullptr ? nullptr : right->Resize(columns, rows);
  if (sums != nullptr) std::fill_n(sums, columns, 0.0f);
  for (int64_t row = 0; row < rows; row += kDepth) {
    for (int64_t column = 0; column < columns; column += kDepth) {
      GradientBlock to{.sums = sums == nullptr ? nullptr : sums + column};
      for (int half = 0; half < 2; ++half) {
        if (left != nullptr) to.left[half] = TileAt(*left, lefts, row + half * kSide, column);
        if (right != nullptr) to.right[half] = TileAt(*right, rights, column + half * kSide, row);
      }
      PackBlock(gradient, row, column, to);
    }
  }
}

Bf16Scratch& Bf16Scratch::OfThread() {
  static thread_local Bf16Scratch scratch;
  return scratch;
}

}  // namespace weir
