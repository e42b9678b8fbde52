// Types supported by cast.
#ifndef WEIR_OPS_CAST_TYPES_H_
#define WEIR_OPS_CAST_TYPES_H_

#include <cstdint>

#include "framework/tensor/dtype.h"

namespace weir {

// Calls f with a zero of the C++ type of dtype; returns false if there is none.
template <typename F>
bool WithCastType(DType dtype, F f) {
  switch (dtype) {
    // NOLINTNEXTLINE(bugprone-branch-clone): the types differ
    case v1::FLOAT32:
      f(float());
      return true;
    case v1::FLOAT64:
      f(double());
      return true;
    case v1::INT32:
      f(int32_t());
      return true;
    case v1::INT64:
      f(int64_t());
      return true;
    case v1::BOOL:
      f(bool());
      return true;
    case v1::UINT8:
      f(uint8_t());
      return true;
    default:
      return false;
  }
}

}  // namespace weir

#endif  // WEIR_OPS_CAST_TYPES_H_
