// Macros for arithmetic shared by CPU and CUDA (ops/<name>_math.h): functions are inlined into the caller's loop, so
// that a loop compiled for AVX2 uses AVX2 throughout.
#ifndef WEIR_OPS_INLINE_H_
#define WEIR_OPS_INLINE_H_

#include <cmath>

#ifdef __CUDACC__
#define WEIR_MATH __host__ __device__ __forceinline__
#else
#define WEIR_MATH inline __attribute__((always_inline))
#endif

namespace weir {

// Returns the square root, correctly rounded on every machine. Compile files that include this with -fno-math-errno;
// otherwise it is a library call.
WEIR_MATH float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return __fsqrt_rn(x);
#else
  return __builtin_sqrtf(x);
#endif
}

WEIR_MATH float Absolute(float x) { return x < 0 ? -x : x; }

}  // namespace weir

#endif  // WEIR_OPS_INLINE_H_
