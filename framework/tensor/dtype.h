// Element types: the enum DType of proto/program.proto.
#ifndef WEIR_FRAMEWORK_TENSOR_DTYPE_H_
#define WEIR_FRAMEWORK_TENSOR_DTYPE_H_

#include <cstddef>
#include <cstdint>

#include "proto/program.pb.h"

namespace weir {

using v1::DType;

// Bytes of one element; 0 for DTYPE_UNSET.
size_t DTypeSize(DType dtype);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = v1::FLOAT32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = v1::FLOAT64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = v1::INT32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = v1::INT64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = v1::BOOL;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = v1::UINT8;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DTYPE_H_
