// Offset of each index of an array of some dims: the memory layout of a broadcast operand, or of the terms of a sum.
#ifndef WEIR_OPS_DEVICE_INDEX_MAP_H_
#define WEIR_OPS_DEVICE_INDEX_MAP_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {
namespace device {

inline constexpr int kMostDims = 8;

struct IndexMap {
  int dims = 0;
  int64_t size[kMostDims] = {};
  int64_t stride[kMostDims] = {};  // elements; 0 where the operand stands still

  WEIR_HOST_DEVICE int64_t count() const {
    int64_t n = 1;
    for (int d = 0; d < dims; ++d) n *= size[d];
    return n;
  }
  // Returns the offset of element i in row-major order.
  WEIR_HOST_DEVICE int64_t at(int64_t i) const {
    int64_t offset = 0;
    if (i <= 0x7fffffff) {  // divisions of 32 bits are several times faster
      uint32_t rest = static_cast<uint32_t>(i);
      for (int d = dims - 1; d > 0; --d) {
        const uint32_t n = static_cast<uint32_t>(size[d]);
        const uint32_t next = rest / n;
        offset += static_cast<int64_t>(rest - next * n) * stride[d];
        rest = next;
      }
      return dims == 0 ? 0 : offset + static_cast<int64_t>(rest) * stride[0];
    }
    for (int d = dims - 1; d > 0; --d) {
      const int64_t next = i / size[d];
      offset += (i - next * size[d]) * stride[d];
      i = next;
    }
    return dims == 0 ? 0 : offset + i * stride[0];
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_INDEX_MAP_H_
