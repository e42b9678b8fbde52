// Selects the compilation of a hot loop that runs: plain (any x86-64), AVX2 or AVX-512. The three give equal bits (no
// fused products, no reordered sums), so the selection affects only speed and is independent of the job's `arithmetic`.
#ifndef WEIR_OPS_VECTOR_UNIT_H_
#define WEIR_OPS_VECTOR_UNIT_H_

// Compiles a function template whose body is inlined (WEIR_MATH and its lambdas) for the unit. Call the function only
// if CurrentVectorUnit() returns that unit.
#define WEIR_FOR_AVX2 __attribute__((target("avx2")))
#define WEIR_FOR_AVX512 __attribute__((target("avx2,avx512f,avx512bw,avx512dq,avx512vl")))

namespace weir {

enum class VectorUnit { kPlain = 0, kAvx2 = 1, kAvx512 = 2 };

// Returns the best unit of this machine, unless SetVectorUnitForTest has lowered it.
VectorUnit CurrentVectorUnit();

// Returns false, and changes nothing, if the machine lacks the unit. Must not be called while kernels run.
bool SetVectorUnitForTest(VectorUnit unit);

}  // namespace weir

#endif  // WEIR_OPS_VECTOR_UNIT_H_
