// Describes a product of matrices on a device, for product.h and the libraries under it.
#ifndef WEIR_OPS_DEVICE_PRODUCT_SPEC_H_
#define WEIR_OPS_DEVICE_PRODUCT_SPEC_H_

#include <cstdint>

namespace weir {
namespace device {

enum class Activation { kIdentity, kRelu, kSigmoid, kTanh };

// c[i] [m, n] = op(a[i]) [m, k] * op(b[i]) [k, n] for i in [0, count), row-major without gaps; op transposes if the
// flag is set. Matrix i begins `stride` elements after matrix i - 1; 0: all use one matrix. Sizes may be 0; with k = 0
// the product is 0, and the epilogue still applies.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  float* c = nullptr;
  bool transpose_a = false;
  bool transpose_b = false;
  int64_t count = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
  // Epilogue: bias [n] (null: none), added to every row of every c[i], and the activation applied after it.
  const float* bias = nullptr;
  Activation activation = Activation::kIdentity;
  // Output [count, n] for the sums of the columns of each b[i]; null: none. Requires: SumsColumns has returned true,
  // which it never does for a transposed b.
  float* column_sums = nullptr;
  // True if b does not change within a run of the program: with a precision of 16 bits it is rounded once.
  bool b_is_weight = false;
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PRODUCT_SPEC_H_
