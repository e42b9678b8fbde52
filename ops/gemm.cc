#include "ops/gemm.h"

#include <dnnl.h>

#include <algorithm>

#include "glog/logging.h"
#include "ops/arithmetic.h"
#include "ops/gemm_bf16.h"

// Function of OpenMP's run-time library, which gives oneDNN its threads. Declared here because not every supported
// compiler has omp.h.
extern "C" void omp_set_num_threads(int threads);

namespace weir {
namespace {

// Sets the number of threads once for every calling thread: OpenMP keeps it per thread.
void PrepareThread() {
  static const bool arithmetic_chosen = !ResolvedArithmetic().empty();
  static thread_local const bool alone = [] {
    omp_set_num_threads(1);
    return true;
  }();
  CHECK(arithmetic_chosen && alone);
}

}  // namespace

void Gemm(int64_t m, int64_t n, int64_t k, const float* a, int64_t lda, const float* b, int64_t ldb, float* c,
          int64_t ldc, const GemmOptions& options) {
  if (m == 0 || n == 0) return;
  if (options.precision == ProductPrecision::kBf16) {
    static const Bf16Unit unit = ResolvedBf16Unit();
    return GemmBf16(unit, m, n, k, a, lda, b, ldb, c, ldc, options);
  }
  DCHECK(options.precision == ProductPrecision::kFp32);
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) {
      for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = options.beta == 0 ? 0 : options.beta * c[i * ldc + j];
    }
    return;
  }
  PrepareThread();
  const dnnl_status_t status =
      dnnl_sgemm(options.transpose_a ? 'T' : 'N', options.transpose_b ? 'T' : 'N', m, n, k, options.alpha, a,
                 std::max<int64_t>(lda, 1), b, std::max<int64_t>(ldb, 1), options.beta, c, std::max<int64_t>(ldc, 1));
  CHECK(status == dnnl_success) << "dnnl_sgemm " << m << " x " << n << " x " << k << ": status " << status;
}

void Gemm(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float* c, const GemmOptions& options) {
  Gemm(m, n, k, a, options.transpose_a ? m : k, b, options.transpose_b ? k : n, c, n, options);
}

}  // namespace weir
