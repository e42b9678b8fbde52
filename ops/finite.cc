#include "ops/finite.h"

#include <algorithm>
#include <cstring>

#include "ops/vectorized.h"

namespace weir {
namespace {

// Elements between two checks: enough for the vector units, and few enough to find an early bad number early.
constexpr int64_t kBlock = 4096;

// Infinities and NaNs have all exponent bits set. Integer arithmetic: order does not matter.
WEIR_VECTORIZED uint32_t CountNonFinite(const float* x, int64_t n) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bad += (bits & 0x7f800000u) == 0x7f800000u ? 1 : 0;
  }
  return bad;
}

WEIR_VECTORIZED uint32_t ScaleAndCountNonFinite(const float* x, int64_t n, float factor, float* out) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    bad += (bits & 0x7f800000u) == 0x7f800000u ? 1 : 0;
    out[i] = x[i] * factor;
  }
  return bad;
}

}  // namespace

bool AllFinite(const float* x, int64_t n) {
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    if (CountNonFinite(x + begin, std::min(kBlock, n - begin)) != 0) return false;
  }
  return true;
}

bool AllFiniteScaled(const float* x, int64_t n, float factor, float* out) {
  bool finite = true;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    if (ScaleAndCountNonFinite(x + begin, std::min(kBlock, n - begin), factor, out + begin) != 0) finite = false;
  }
  return finite;
}

}  // namespace weir
