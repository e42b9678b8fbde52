// Functors of cast.
#ifndef WEIR_OPS_DEVICE_CAST_FUNCTORS_H_
#define WEIR_OPS_DEVICE_CAST_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/cast_math.h"

namespace weir {
namespace device {

template <typename To, typename From>
struct CastAt {
  const From* x;
  To* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = Cast<To>(x[i]); }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CAST_FUNCTORS_H_
