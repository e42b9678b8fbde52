// Macros for loops that run at the vector width of the machine and give equal bits at every width.
//
//   WEIR_VECTORIZED void ReluForward(int64_t n, const float* x, float* y) {
//     WEIR_INDEPENDENT
//     for (int64_t i = 0; i < n; ++i) y[i] = Relu(x[i]);
//   }
//
// The compiler makes a copy of the function for the base instruction set, AVX2 and AVX-512, and the loader takes the
// best one that the processor has. The bits are the same in all of them, in vector body and tail, because ops/ is
// compiled without contraction of a * b + c (-ffp-contract=off) and without reassociation (no -ffast-math): each
// element sees the same IEEE operations in the same order. Such a function must therefore not add up adjacent elements,
// except in an explicit order, and all functions that it calls must be inline.
//
// Products of matrices, where a fused multiply-add is worth having, are in ops/gemm.h.
#ifndef WEIR_OPS_VECTORIZED_H_
#define WEIR_OPS_VECTORIZED_H_

// clang 14 and sanitizers (whose runtime is not up when the loader asks for the copy) take the base instruction set.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(WEIR_ASAN) && !defined(WEIR_TSAN) && !defined(__CUDACC__)
#define WEIR_VECTORIZED __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEIR_VECTORIZED
#endif

// Precedes a loop whose iterations access only their own element of each array; an output may be the same array as an
// input.
#if defined(__clang__)
#define WEIR_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define WEIR_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif  // WEIR_OPS_VECTORIZED_H_
