// Activations and windows of pictures, for functors of conv2d, pool2d and batch_norm.
#ifndef WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_
#define WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_

#include <cstdint>

#include "ops/activation_math.h"
#include "ops/device/quotient.h"
#include "ops/inline.h"

namespace weir {
namespace device {

// FusedActivation of ops/fused_activation.h. A number, not a type: all threads go the same way, and one kernel serves
// all.
enum class PictureActivation { kIdentity, kRelu, kSigmoid, kTanh };
WEIR_HOST_DEVICE inline float Activate(PictureActivation f, float x) {
  switch (f) {
    case PictureActivation::kIdentity:
      return x;
    case PictureActivation::kRelu:
      return Relu(x);
    case PictureActivation::kSigmoid:
      return Sigmoid(x);
    case PictureActivation::kTanh:
      return Tanh(x);
  }
  return x;
}
WEIR_HOST_DEVICE inline float BackThrough(PictureActivation f, float out, float dout) {
  switch (f) {
    case PictureActivation::kIdentity:
      return dout;
    case PictureActivation::kRelu:
      return ReluGrad(out, dout);
    case PictureActivation::kSigmoid:
      return SigmoidGrad(out, dout);
    case PictureActivation::kTanh:
      return TanhGrad(out, dout);
  }
  return dout;
}

// WindowAxis of ops/windows.h.
struct Axis {
  int64_t size, kernel, stride, padding, count;

  // Elements of window i that are there.
  WEIR_HOST_DEVICE int64_t Begin(int64_t i) const {
    const int64_t begin = i * stride - padding;
    return begin < 0 ? 0 : begin;
  }
  WEIR_HOST_DEVICE int64_t End(int64_t i) const {
    const int64_t end = i * stride - padding + kernel;
    return end > size ? size : end;
  }
  // Windows that have element `at`.
  WEIR_HOST_DEVICE int64_t FirstWindow(int64_t at) const {
    const int64_t before = at + padding - kernel;
    return before < 0 ? 0 : Quotient(before, stride) + 1;
  }
  WEIR_HOST_DEVICE int64_t LastWindow(int64_t at) const {
    const int64_t last = Quotient(at + padding, stride);
    return last < count ? last + 1 : count;
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PICTURE_FUNCTORS_H_
