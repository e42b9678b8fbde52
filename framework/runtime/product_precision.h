// How products of matrices on a device take their factors (train.precision). Sums are FP32 with each of them.
#ifndef WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_
#define WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_

namespace weir {

enum class ProductPrecision {
  kFp32,
  // May be rounded to 10 bits of mantissa.
  kTf32,
  // Rounded to bfloat16, to float16: nearest, of two the even one; beyond the range infinite.
  kBf16,
  kFp16,
};

inline bool RoundsTo16Bits(ProductPrecision precision) {
  return precision == ProductPrecision::kBf16 || precision == ProductPrecision::kFp16;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PRODUCT_PRECISION_H_
