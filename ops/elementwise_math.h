// Arithmetic of the elementwise operators and scale, for CPU and CUDA.
#ifndef WEIR_OPS_ELEMENTWISE_MATH_H_
#define WEIR_OPS_ELEMENTWISE_MATH_H_

#include "framework/base/philox.h"

namespace weir {

// Binary function with its partial derivatives times dout.
struct AddMath {
  static WEIR_HOST_DEVICE float Out(float x, float y) { return x + y; }
  static WEIR_HOST_DEVICE float Dx(float, float, float dout) { return dout; }
  static WEIR_HOST_DEVICE float Dy(float, float, float dout) { return dout; }
};
struct SubMath {
  static WEIR_HOST_DEVICE float Out(float x, float y) { return x - y; }
  static WEIR_HOST_DEVICE float Dx(float, float, float dout) { return dout; }
  static WEIR_HOST_DEVICE float Dy(float, float, float dout) { return -dout; }
};
struct MulMath {
  static WEIR_HOST_DEVICE float Out(float x, float y) { return x * y; }
  static WEIR_HOST_DEVICE float Dx(float, float y, float dout) { return dout * y; }
  static WEIR_HOST_DEVICE float Dy(float x, float, float dout) { return dout * x; }
};
struct DivMath {
  static WEIR_HOST_DEVICE float Out(float x, float y) { return x / y; }
  static WEIR_HOST_DEVICE float Dx(float, float y, float dout) { return dout / y; }
  static WEIR_HOST_DEVICE float Dy(float x, float y, float dout) { return -(dout * x) / (y * y); }
};

WEIR_HOST_DEVICE inline float Scale(float x, float scale, float bias) { return x * scale + bias; }

}  // namespace weir

#endif  // WEIR_OPS_ELEMENTWISE_MATH_H_
