// Which compilation of a hot loop runs: plain (any x86-64), or for AVX2 or AVX-512. The three give the same bits (no
// fused products, no reordered sums), so this is a matter of speed alone and independent of the job's `arithmetic`.
#ifndef WEIR_OPS_VECTOR_UNIT_H_
#define WEIR_OPS_VECTOR_UNIT_H_

// On a function template whose body is inlined (WEIR_MATH and lambdas of it): compile it for the unit. Call it only
// when CurrentVectorUnit() says so.
#define WEIR_FOR_AVX2 __attribute__((target("avx2")))
#define WEIR_FOR_AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))

namespace weir {

enum class VectorUnit { kPlain = 0, kAvx2 = 1, kAvx512 = 2 };

// The best this machine has. Lowered by SetVectorUnitForTest.
VectorUnit CurrentVectorUnit();

// Returns false, and changes nothing, when the machine lacks it. Not while kernels run.
bool SetVectorUnitForTest(VectorUnit unit);

}  // namespace weir

#endif  // WEIR_OPS_VECTOR_UNIT_H_
