// Options of a product of matrices (ops/gemm.h).
#ifndef WEIR_OPS_GEMM_OPTIONS_H_
#define WEIR_OPS_GEMM_OPTIONS_H_

#include "framework/runtime/product_precision.h"

namespace weir {

struct GemmOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  float alpha = 1;
  float beta = 0;
  // kFp32 or kBf16.
  ProductPrecision precision = ProductPrecision::kFp32;
};

}  // namespace weir

#endif  // WEIR_OPS_GEMM_OPTIONS_H_
