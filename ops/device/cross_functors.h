// Functors of cross.
#ifndef WEIR_OPS_DEVICE_CROSS_FUNCTORS_H_
#define WEIR_OPS_DEVICE_CROSS_FUNCTORS_H_

#include <cstdint>

#include "framework/base/philox.h"
#include "ops/cross_math.h"

namespace weir {
namespace device {

struct CrossAt {
  const float* x0;
  const float* y;
  const float* x;
  float* out;
  WEIR_HOST_DEVICE void operator()(int64_t i) const { out[i] = Cross(x0[i], y[i], x[i]); }
};
// Gradients may be null; that of X may be in place of `dout`.
struct CrossGradAt {
  const float* x0;
  const float* y;
  const float* dout;
  float* dx0;
  float* dy;
  float* dx;
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    const float d = dout[i];
    if (dx0 != nullptr) dx0[i] = d * y[i];
    if (dy != nullptr) dy[i] = d * x0[i];
    if (dx != nullptr) dx[i] = d;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_CROSS_FUNCTORS_H_
