// Converts 16-bit floats: FLOAT16 is IEEE binary16, BFLOAT16 the upper half of a float32. Every value of either is also
// a float32.
#ifndef WEIR_FRAMEWORK_TENSOR_FLOAT16_H_
#define WEIR_FRAMEWORK_TENSOR_FLOAT16_H_

#include <cstdint>

#include "framework/tensor/dtype.h"

namespace weir {

inline constexpr float kMostFloat16 = 65504;
inline constexpr float kMostBFloat16 = 0x1.fep127f;  // 3.39e38

// Convert to the nearest value, ties to even. Finite values beyond the greatest become the greatest of their sign; Inf
// and NaN are preserved.
uint16_t Float16Of(float value);
float OfFloat16(uint16_t bits);
uint16_t BFloat16Of(float value);
float OfBFloat16(uint16_t bits);

// Rounds to FLOAT32 (no change), FLOAT16 or BFLOAT16 as the functions above.
float ToNearest(DType dtype, float value);
// Return the least value of the type that is not below `number`, and the greatest that is not above it: infinite if
// there is no finite one, NaN for NaN.
float NotBelow(DType dtype, double number);
float NotAbove(DType dtype, double number);

// Returns whether this processor has AVX2 and F16C, whose instructions convert eight values at a time.
bool HasFloat16Vectors();

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_FLOAT16_H_
