// Converts between Weir's types and those of cuBLAS and cuBLASLt. Only for builds with CUDA.
#ifndef WEIR_OPS_DEVICE_CUBLAS_TYPES_H_
#define WEIR_OPS_DEVICE_CUBLAS_TYPES_H_

#include <cublas_v2.h>

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/string_views.h"
#include "framework/runtime/product_precision.h"

namespace weir {
namespace device {

inline cudaDataType FactorType(ProductPrecision precision) {
  return precision == ProductPrecision::kBf16   ? CUDA_R_16BF
         : precision == ProductPrecision::kFp16 ? CUDA_R_16F
                                                : CUDA_R_32F;
}
inline cublasComputeType_t ComputeType(ProductPrecision precision) {
  return precision == ProductPrecision::kTf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

// Converts the status of a call, which `text` describes. `what`: the library and what was asked of it.
inline absl::Status ToStatus(cublasStatus_t status, std::string_view what, const char* (*text)(cublasStatus_t)) {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  const std::string message = absl::StrCat(Av(what), ": ", text(status));
  return status == CUBLAS_STATUS_ALLOC_FAILED ? absl::ResourceExhaustedError(message)
         : status == CUBLAS_STATUS_EXECUTION_FAILED
             ? absl::UnavailableError(
                   absl::StrCat(message, "; the device is lost to this process: run again with --resume"))
             : absl::InternalError(message);
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CUBLAS_TYPES_H_
