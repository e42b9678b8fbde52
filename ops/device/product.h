// Multiplies matrices on a device: by cuBLAS and cuBLASLt on CUDA (loaded at run time, see cublas.h), by ops/gemm.h in
// the emulation.
#ifndef WEIR_OPS_DEVICE_PRODUCT_H_
#define WEIR_OPS_DEVICE_PRODUCT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/device/device_kernel.h"
#include "ops/device/product_spec.h"

namespace weir {
namespace device {

// Computes the product. All its matrices are on the device.
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
