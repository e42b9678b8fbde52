// Converts a ProductPrecision to the types of cuBLAS and cuBLASLt. Only for builds with CUDA.
#ifndef WEIR_OPS_DEVICE_CUBLAS_TYPES_H_
#define WEIR_OPS_DEVICE_CUBLAS_TYPES_H_

#include <cublas_v2.h>

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

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CUBLAS_TYPES_H_
