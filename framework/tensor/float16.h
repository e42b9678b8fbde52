// 16-bit floats: FLOAT16 is IEEE binary16, BFLOAT16 the upper half of a float32. Each of their values is a float32.
#ifndef WEIR_FRAMEWORK_TENSOR_FLOAT16_H_
#define WEIR_FRAMEWORK_TENSOR_FLOAT16_H_

#include <cstdint>

#include "framework/tensor/dtype.h"

namespace weir {

inline constexpr float kMostFloat16 = 65504;
inline constexpr float kMostBFloat16 = 0x1.fep127f;  // 3.39e38

// The nearest, of two the even one. What is beyond the greatest and finite becomes the greatest of its sign; Inf and
// NaN stay what they are.
uint16_t Float16Of(float value);
float OfFloat16(uint16_t bits);
uint16_t BFloat16Of(float value);
float OfBFloat16(uint16_t bits);

// The value of FLOAT32 (itself), FLOAT16 or BFLOAT16 that the functions above give.
float ToNearest(DType dtype, float value);
// The least value of the type that is not below a number, and the greatest that is not above it: infinite where there
// is no finite one. NaN of NaN.
float NotBelow(DType dtype, double number);
float NotAbove(DType dtype, double number);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_FLOAT16_H_
