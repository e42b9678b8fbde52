// Precision of the factors in products of matrices (train.precision). Sums are FP32 with every precision.
#ifndef WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_
#define WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_

namespace weir {

enum class ProductPrecision {
  kFp32,
  // Factors may be rounded to 10 bits of mantissa. On a device only, as kFp16.
  kTf32,
  // Factors are rounded to bfloat16 or float16: to nearest, ties to even; infinite beyond the range.
  kBf16,
  kFp16,
};

inline bool RoundsTo16Bits(ProductPrecision precision) {
  return precision == ProductPrecision::kBf16 || precision == ProductPrecision::kFp16;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_
