// Multiplies matrices on a device: by cuBLAS and cuBLASLt on CUDA (loaded at run time, see cublas.h), by ops/gemm.h in
// the emulation.
#ifndef WEIR_OPS_DEVICE_PRODUCT_H_
#define WEIR_OPS_DEVICE_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/device_kernel.h"

namespace weir {
namespace device {

enum class Activation { kIdentity, kRelu, kSigmoid, kTanh };

// c[i] [m, n] = op(a[i]) [m, k] * op(b[i]) [k, n] for i in [0, count), row-major without gaps; op transposes if the
// flag is set. Matrix i begins `stride` elements after matrix i - 1; 0: all use one matrix. Sizes may be 0; with k = 0
// c is 0.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t count = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  // Epilogue: bias [n], added to every row of every c[i], and the activation applied after it.
  const float* bias = nullptr;
  Activation activation = Activation::kIdentity;
  // Output [count, n] for the sums of the columns of each op(b)[i]; allowed only if SumsColumns returns true. b is not
  // transposed.
  float* column_sums = nullptr;
  // True if b does not change within a run of the program: with a precision of 16 bits it is rounded once.
  bool b_is_weight = false;
};
absl::Status Multiply(DeviceKernelContext& ctx, const Product& product);
// Returns true if Multiply can compute the product's column_sums in the same pass. The result is equal in every run.
absl::StatusOr<bool> SumsColumns(DeviceKernelContext& ctx, const Product& product);

// Multiplies each lane separately. A lane has rows[lane] rows; x has rows of k elements, c rows of n. Lanes with equal
// numbers of rows are one strided batch.
//   c = activation(x * op(w) + bias), w [k, n] or, transposed, [n, k], one for all lanes, which does not change within
//   a run; bias may be null
absl::Status MultiplyRows(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x, const float* w,
                          bool transpose_w, int64_t k, int64_t n, float* c, const float* bias = nullptr,
                          Activation activation = Activation::kIdentity);
//   c[lane] [k, n] = x^T * y over the lane's rows; y has rows of n elements. True: sums [lanes, n] has the sums of y's
//   columns, too, where it is not null
absl::StatusOr<bool> MultiplyColumns(DeviceKernelContext& ctx, const std::vector<int64_t>& rows, const float* x,
                                     const float* y, int64_t k, int64_t n, float* c, float* sums = nullptr);

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PRODUCT_H_
