// Loops around an optimizer's arithmetic (ops/<name>_math.h), compiled three times (ops/vector_unit.h).
//
// Every element is computed by itself, so a dense parameter, a row of one and a row of a table get the same bits from
// the same values, on every vector unit.
#ifndef WEIR_OPS_UPDATE_LOOPS_H_
#define WEIR_OPS_UPDATE_LOOPS_H_

#include <bit>
#include <concepts>
#include <cstdint>
#include <utility>

#include "ops/fixed_sum.h"
#include "ops/inline.h"
#include "ops/vector_unit.h"
#include "ops/vectorized.h"

namespace weir {

// Rule with one state for a whole row: At(lr, state, mean of g^2) updates the state and returns the row's Step. It has
// no other state.
template <typename Math>
concept PerRow = requires(const Math& math, float& state) {
  { math.At(1.0f, state, 1.0f) } -> std::same_as<typename Math::Step>;
};

// Rows prefetched ahead: their cache lines are scattered.
inline constexpr int64_t kRowsAhead = 8;

// How the gradient comes from the sum over samples: as it is, by sum / scale, or by sum * scale. Divisions and roots
// are most of what a rule like Adagrad takes, so a division less is a third of it.
enum class Scaling { kNone, kDivide, kMultiply };

template <Scaling kScaling>
WEIR_MATH float GradientOf(float sum, float scale) {
  if constexpr (kScaling == Scaling::kDivide) return sum / scale;
  if constexpr (kScaling == Scaling::kMultiply) return sum * scale;
  return sum;
}

// Returns whether x / divisor and x * (1 / divisor) are the same bits for every x. So it is for powers of two, whose
// reciprocal is exact: both are the same real number, rounded once. Those near the ends of the range are left out.
WEIR_MATH bool HasExactReciprocal(float divisor) {
  const uint32_t bits = std::bit_cast<uint32_t>(divisor), exponent = bits >> 23 & 255;
  return (bits & 0x7fffff) == 0 && exponent >= 1 && exponent <= 253;
}

// Updates elements [0, n). kWidth: n when it is a constant, else 0. state[s]: the elements' s-th state.
template <typename Math, int kWidth, Scaling kScaling>
WEIR_MATH void UpdateElements(const typename Math::Step& c, float scale, int64_t n, const float* __restrict g,
                              float* __restrict w, float* __restrict state0, float* __restrict state1,
                              float* __restrict state2) {
  const int64_t count = kWidth > 0 ? kWidth : n;
  // Unrolled before it is vectorised, a short loop would stay scalar.
#pragma GCC unroll 1
  WEIR_INDEPENDENT
  for (int64_t j = 0; j < count; ++j) {
    const float gradient = GradientOf<kScaling>(g[j], scale);
    if constexpr (Math::kStates == 0) {
      Math::Element(c, gradient, w[j]);
    } else if constexpr (Math::kStates == 1) {
      Math::Element(c, gradient, w[j], state0[j]);
    } else if constexpr (Math::kStates == 2) {
      Math::Element(c, gradient, w[j], state0[j], state1[j]);
    } else {
      static_assert(Math::kStates == 3);
      Math::Element(c, gradient, w[j], state0[j], state1[j], state2[j]);
    }
  }
}

// One row of a PerRow rule. The mean of squares adds in the order of ops/fixed_sum.h, whatever the unit.
template <typename Math, int kWidth, Scaling kScaling>
WEIR_MATH void UpdatePerRow(const Math& math, int64_t width, float lr, float scale, const float* g, float* w,
                            float* state) {
  if constexpr (kWidth == 0) {
    const float sum = FixedSum(width, [&](int64_t j) {
      const float gradient = GradientOf<kScaling>(g[j], scale);
      return gradient * gradient;
    });
    UpdateElements<Math, 0, kScaling>(math.At(lr, *state, sum / static_cast<float>(width)), scale, width, g, w, state,
                                      state, state);
  } else {
    // Adds in the order of FixedSum, without empty partial sums, and scales the gradient once.
    constexpr int kSums = kWidth < kPartialSums ? kWidth : kPartialSums;
    float gradient[kWidth], sum[kSums];
    for (int j = 0; j < kWidth; ++j) gradient[j] = GradientOf<kScaling>(g[j], scale);
    for (int j = 0; j < kSums; ++j) sum[j] = gradient[j] * gradient[j];
    for (int i = kSums; i < kWidth; i += kSums) {
      for (int j = 0; j < kSums; ++j) sum[j] += gradient[i + j] * gradient[i + j];
    }
    for (int half = kSums / 2; half > 0; half /= 2) {
      for (int j = 0; j < half; ++j) sum[j] += sum[j + half];
    }
    UpdateElements<Math, kWidth, Scaling::kNone>(math.At(lr, *state, sum[0] / static_cast<float>(kWidth)), 1, kWidth,
                                                 gradient, w, state, state, state);
  }
}

// Updates rows w whose state [state0 | state1 | state2 | count], as far as the rule has them, begins `state_at` floats
// after the begin of w.
template <typename Math, int kWidth, Scaling kScaling>
WEIR_MATH void UpdateTableRows(const Math& math, int64_t width, int64_t state_at, float lr, float scale, int64_t n,
                               float* const* rows, const float* const* grads) {
  if (kWidth > 0) width = kWidth;
  const int64_t states = width * Math::kStates + (Math::kCounts || PerRow<Math> ? 1 : 0);
  typename Math::Step c;
  if constexpr (!PerRow<Math>) c = math.At(lr, 1);
  for (int64_t i = 0; i < n; ++i) {
    if (i + kRowsAhead < n) {
      const float* ahead = rows[i + kRowsAhead];
      for (int64_t j = 0; j < width; j += 16) __builtin_prefetch(ahead + j, 1);
      for (int64_t j = 0; j < states; j += 16) __builtin_prefetch(ahead + state_at + j, 1);
    }
    float* const w = rows[i];
    float* const state = w + state_at;
    if constexpr (PerRow<Math>) {
      UpdatePerRow<Math, kWidth, kScaling>(math, width, lr, scale, grads[i], w, state);
      continue;
    }
    if constexpr (Math::kCounts) {
      float* count = state + states - 1;
      *count += 1;
      c = math.At(lr, *count);
    }
    UpdateElements<Math, kWidth, kScaling>(c, scale, width, grads[i], w, state, state + width, state + 2 * width);
  }
}

template <typename Math, Scaling kScaling>
WEIR_MATH void UpdateTableRowsOfAnyWidth(const Math& math, int64_t width, int64_t state_at, float lr, float scale,
                                         int64_t n, float* const* rows, const float* const* grads) {
  switch (width) {
    case 1:
      return UpdateTableRows<Math, 1, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    case 4:
      return UpdateTableRows<Math, 4, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    case 8:
      return UpdateTableRows<Math, 8, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    case 16:
      return UpdateTableRows<Math, 16, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    case 32:
      return UpdateTableRows<Math, 32, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    case 64:
      return UpdateTableRows<Math, 64, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
    default:
      return UpdateTableRows<Math, 0, kScaling>(math, width, state_at, lr, scale, n, rows, grads);
  }
}

template <typename Math>
WEIR_MATH void UpdateAnyTableRows(const Math& math, int64_t width, int64_t state_at, float lr, float divisor, int64_t n,
                                  float* const* rows, const float* const* grads) {
  if (HasExactReciprocal(divisor)) {
    UpdateTableRowsOfAnyWidth<Math, Scaling::kMultiply>(math, width, state_at, lr, 1 / divisor, n, rows, grads);
  } else {
    UpdateTableRowsOfAnyWidth<Math, Scaling::kDivide>(math, width, state_at, lr, divisor, n, rows, grads);
  }
}

// A compilation of the loops for each unit.
template <typename Math>
struct UpdateLoops {
  using Step = typename Math::Step;

  static void Dense(const Step& c, int64_t n, const float* g, float* w, float* state0, float* state1, float* state2) {
    switch (CurrentVectorUnit()) {
      case VectorUnit::kAvx512:
        return DenseAvx512(c, n, g, w, state0, state1, state2);
      case VectorUnit::kAvx2:
        return DenseAvx2(c, n, g, w, state0, state1, state2);
      case VectorUnit::kPlain:
        return UpdateElements<Math, 0, Scaling::kNone>(c, 1, n, g, w, state0, state1, state2);
    }
  }
  static void TableRows(const Math& math, int64_t width, int64_t state_at, float lr, float divisor, int64_t n,
                        float* const* rows, const float* const* grads) {
    switch (CurrentVectorUnit()) {
      case VectorUnit::kAvx512:
        return TableRowsAvx512(math, width, state_at, lr, divisor, n, rows, grads);
      case VectorUnit::kAvx2:
        return TableRowsAvx2(math, width, state_at, lr, divisor, n, rows, grads);
      case VectorUnit::kPlain:
        return UpdateAnyTableRows(math, width, state_at, lr, divisor, n, rows, grads);
    }
  }

 private:
  WEIR_FOR_AVX2 static void DenseAvx2(const Step& c, int64_t n, const float* g, float* w, float* state0, float* state1,
                                      float* state2) {
    UpdateElements<Math, 0, Scaling::kNone>(c, 1, n, g, w, state0, state1, state2);
  }
  WEIR_FOR_AVX512 static void DenseAvx512(const Step& c, int64_t n, const float* g, float* w, float* state0,
                                          float* state1, float* state2) {
    UpdateElements<Math, 0, Scaling::kNone>(c, 1, n, g, w, state0, state1, state2);
  }
  WEIR_FOR_AVX2 static void TableRowsAvx2(const Math& math, int64_t width, int64_t state_at, float lr, float divisor,
                                          int64_t n, float* const* rows, const float* const* grads) {
    UpdateAnyTableRows(math, width, state_at, lr, divisor, n, rows, grads);
  }
  WEIR_FOR_AVX512 static void TableRowsAvx512(const Math& math, int64_t width, int64_t state_at, float lr,
                                              float divisor, int64_t n, float* const* rows, const float* const* grads) {
    UpdateAnyTableRows(math, width, state_at, lr, divisor, n, rows, grads);
  }
};

}  // namespace weir

#endif  // WEIR_OPS_UPDATE_LOOPS_H_
