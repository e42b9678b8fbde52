// Products of matrices on a device: cuBLAS on CUDA (loaded at run time, see cublas.h), ops/gemm.h in the emulation.
#ifndef WEIR_OPS_DEVICE_PRODUCT_H_
#define WEIR_OPS_DEVICE_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "framework/runtime/device_kernel.h"

namespace weir {
namespace device {

// c[i] [m, n] = op(a[i]) [m, k] * op(b[i]) [k, n] for i in [0, count), row-major without gaps; op is the transpose when
// asked for. Matrix i begins `stride` elements after matrix i - 1; 0: the same one. Sizes may be 0; with k = 0 c is 0.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t count = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};
absl::Status Multiply(DeviceKernelContext& ctx, const Product& product);

// Of each lane by itself, rows[lane] rows: x has rows of k elements, c gets rows of n. Lanes with as many rows as one
// another are one strided batch.
//   c = x * op(w), w [k, n] or, transposed, [n, k], one for all lanes
absl::Status MultiplyRows(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* w,
                          bool transpose_w, int64_t k, int64_t n, float* c);
//   c[lane] [k, n] = x^T * y over the lane's rows; y has rows of n elements
absl::Status MultiplyColumns(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* y,
                             int64_t k, int64_t n, float* c);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PRODUCT_H_
