#include "ops/gemm_bf16.h"

#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "glog/logging.h"

// clang and gcc spell the sets alike. AVX512BW and VL come with every processor that has BF16.
#define WEIR_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))
#define WEIR_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16")))

namespace weir {
namespace {

constexpr int kSide = Bf16Factor::kSide;
constexpr int64_t kTileWords = Bf16Factor::kTileWords;

int64_t Tiles(int64_t count) { return (count + kSide - 1) / kSide; }
__mmask16 FirstOf(int64_t count) { return static_cast<__mmask16>(count >= kSide ? 0xFFFF : (1 << count) - 1); }

// Destination of the sums of a part of the result.
struct Target {
  float* c = nullptr;
  int64_t m = 0, n = 0, stride = 0;
  float alpha = 1, beta = 0;

  bool Takes(int64_t row, int64_t column, int64_t rows, int64_t columns) const {
    return alpha == 1 && beta == 0 && row + rows <= m && column + columns <= n;
  }
};

// Writes rows of 16 sums to the result, as far as it goes.
WEIR_BF16 inline void Write(const Target& to, int64_t row, int64_t column, int64_t rows, const float* sums) {
  const __mmask16 there = FirstOf(to.n - column);
  for (int64_t i = 0; i < rows && row + i < to.m; ++i) {
    float* const out = to.c + (row + i) * to.stride + column;
    __m512 sum = _mm512_loadu_ps(sums + i * kSide);
    if (to.alpha != 1) sum = _mm512_mul_ps(sum, _mm512_set1_ps(to.alpha));
    if (to.beta != 0) {
      const __m512 before = _mm512_maskz_loadu_ps(there, out);
      sum = _mm512_add_ps(sum, _mm512_mul_ps(before, _mm512_set1_ps(to.beta)));
    }
    _mm512_mask_storeu_ps(out, there, sum);
  }
}

// ------------------------------------------------------------------------------------------------------------ AVX-512

// Rows of a block: with 3 tiles of columns 24 sums, 3 factors and a pair of each row fit the 32 registers.
constexpr int kRows = 8;

// Computes kRows rows of `Columns` tiles. a: words of the first row, b: tiles of the first columns; the others follow
// after `b_stride` words.
template <int Columns>
WEIR_BF16 void BlockAvx512(int64_t depth, const uint32_t* a, const uint32_t* b, int64_t b_stride, const Target& to,
                           int64_t row, int64_t column) {
  __m512 sums[kRows][Columns];
#pragma GCC unroll 8
  for (auto& of_row : sums) {
#pragma GCC unroll 3
    for (__m512& sum : of_row) sum = _mm512_setzero_ps();
  }
  for (int64_t t = 0; t < depth; ++t, a += kTileWords, b += kTileWords) {
    for (int p = 0; p < kSide; ++p) {
      __m512bh right[Columns];
#pragma GCC unroll 3
      for (int j = 0; j < Columns; ++j) {
        right[j] = reinterpret_cast<__m512bh>(_mm512_load_si512(b + j * b_stride + p * kSide));
      }
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) {
        const __m512bh left = reinterpret_cast<__m512bh>(_mm512_set1_epi32(static_cast<int>(a[i * kSide + p])));
#pragma GCC unroll 3
        for (int j = 0; j < Columns; ++j) sums[i][j] = _mm512_dpbf16_ps(sums[i][j], left, right[j]);
      }
    }
  }
  alignas(64) float of_tile[kRows][kSide];
  for (int j = 0; j < Columns; ++j) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) _mm512_store_ps(of_tile[i], sums[i][j]);
    Write(to, row, column + j * kSide, kRows, of_tile[0]);
  }
}

void MultiplyAvx512(int64_t depth, const uint32_t* a, const uint32_t* b, const Target& to) {
  const int64_t line = depth * kTileWords, columns = Tiles(to.n);
  for (int64_t j = 0; j < columns; j += 3) {
    const uint32_t* const right = b + j * line;
    for (int64_t row = 0; row < to.m; row += kRows) {
      const uint32_t* const left = a + row / kSide * line + row % kSide * kSide;
      const int64_t at = j * kSide;
      if (columns - j >= 3) {
        BlockAvx512<3>(depth, left, right, line, to, row, at);
      } else if (columns - j == 2) {
        BlockAvx512<2>(depth, left, right, line, to, row, at);
      } else {
        BlockAvx512<1>(depth, left, right, line, to, row, at);
      }
    }
  }
}

// ---------------------------------------------------------------------------------------------------------------- AMX

// Argument of LDTILECFG: all eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

// Stores tile T of sums. A macro makes it of the intrinsic, which wants a literal.
#define WEIR_STORE_TILE(T, row, column)                                              \
  do {                                                                               \
    if (to.Takes(row, column, kSide, kSide)) {                                       \
      _tile_stored(T, to.c + (row)*to.stride + (column), to.stride * sizeof(float)); \
    } else {                                                                         \
      alignas(64) float sums[kSide][kSide];                                          \
      _tile_stored(T, sums, sizeof(sums[0]));                                        \
      Write(to, row, column, kSide, sums[0]);                                        \
    }                                                                                \
  } while (false)

// Computes Rows x Columns tiles: sums in tiles 0 to 3, left factors in 4 and 5, right ones in 6 and 7.
template <int Rows, int Columns>
WEIR_AMX void BlockAmx(int64_t depth, const uint32_t* a, const uint32_t* b, const Target& to, int64_t row,
                       int64_t column) {
  const int64_t line = depth * kTileWords;
  _tile_zero(0);
  if constexpr (Columns == 2) _tile_zero(1);
  if constexpr (Rows == 2) _tile_zero(2);
  if constexpr (Rows == 2 && Columns == 2) _tile_zero(3);
  for (int64_t t = 0; t < depth; ++t, a += kTileWords, b += kTileWords) {
    _tile_loadd(4, a, 64);
    // Past the first level of the cache, which keeps the left tiles for the next columns.
    _tile_stream_loadd(6, b, 64);
    if constexpr (Columns == 2) _tile_stream_loadd(7, b + line, 64);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (Rows == 2) _tile_loadd(5, a + line, 64);
    if constexpr (Columns == 2) _tile_dpbf16ps(1, 4, 7);
    if constexpr (Rows == 2) _tile_dpbf16ps(2, 5, 6);
    if constexpr (Rows == 2 && Columns == 2) _tile_dpbf16ps(3, 5, 7);
  }
  WEIR_STORE_TILE(0, row, column);
  if constexpr (Columns == 2) WEIR_STORE_TILE(1, row, column + kSide);
  if constexpr (Rows == 2) WEIR_STORE_TILE(2, row + kSide, column);
  if constexpr (Rows == 2 && Columns == 2) WEIR_STORE_TILE(3, row + kSide, column + kSide);
}

WEIR_AMX void MultiplyAmx(int64_t depth, const uint32_t* a, const uint32_t* b, const Target& to) {
  static constexpr TileConfig kConfig;
  _tile_loadconfig(&kConfig);
  const int64_t line = depth * kTileWords, rows = Tiles(to.m), columns = Tiles(to.n);
  for (int64_t i = 0; i < rows; i += 2) {
    const uint32_t* const left = a + i * line;
    for (int64_t j = 0; j < columns; j += 2) {
      const uint32_t* const right = b + j * line;
      const bool two = columns - j >= 2;
      const int64_t row = i * kSide, column = j * kSide;
      if (rows - i >= 2) {
        two ? BlockAmx<2, 2>(depth, left, right, to, row, column) : BlockAmx<2, 1>(depth, left, right, to, row, column);
      } else {
        two ? BlockAmx<1, 2>(depth, left, right, to, row, column) : BlockAmx<1, 1>(depth, left, right, to, row, column);
      }
    }
  }
  // The system need not save the tiles of this thread any more.
  _tile_release();
}

// Neither compiler's __builtin_cpu_supports knows AMX yet.
bool HasAmxBf16() {
  unsigned int eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned int kBf16 = 1u << 22, kTile = 1u << 24;
  return (edx & kBf16) != 0 && (edx & kTile) != 0;
}

bool MayUseTiles() {
  // Linux gives a process the registers of AMX when it asks for them (arch/x86/xstate of its documentation).
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

bool HasBf16Unit(Bf16Unit unit) {
  static const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bf16");
  static const bool amx = avx512 && HasAmxBf16() && MayUseTiles();
  return unit == Bf16Unit::kAmx ? amx : avx512;
}

void MultiplyBf16(Bf16Unit unit, const Bf16Factor& left, const Bf16Factor& right, float* c, int64_t ldc, float alpha,
                  float beta) {
  CHECK(HasBf16Unit(unit));
  CHECK_EQ(left.depth(), right.depth());
  const Target to{c, left.lines(), right.lines(), ldc, alpha, beta};
  if (to.m == 0 || to.n == 0) return;
  unit == Bf16Unit::kAmx ? MultiplyAmx(left.depth(), left.words(), right.words(), to)
                         : MultiplyAvx512(left.depth(), left.words(), right.words(), to);
}

void GemmBf16(Bf16Unit unit, int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb,
              float* c, int64_t ldc, const GemmOptions& options) {
  CHECK(HasBf16Unit(unit));
  if (m == 0 || n == 0) return;
  Bf16Scratch& factors = Bf16Scratch::OfThread();
  factors.left.PackLeft(m, k, a, lda, options.transpose_a);
  factors.right.PackRight(k, n, b, ldb, options.transpose_b);
  MultiplyBf16(unit, factors.left, factors.right, c, ldc, options.alpha, options.beta);
}

}  // namespace weir
