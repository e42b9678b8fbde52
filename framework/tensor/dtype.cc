#include "framework/tensor/dtype.h"

namespace weir {

size_t DTypeSize(DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
    case v1::INT32:
      return 4;
    case v1::FLOAT64:
    case v1::INT64:
      return 8;
    case v1::BOOL:
    case v1::UINT8:
      return 1;
    case v1::FLOAT16:
    case v1::BFLOAT16:
      return 2;
    case v1::DTYPE_UNSET:
      return 0;
  }
  return 0;
}

}  // namespace weir
