// Attributes of operators of pictures, as their functors take them.
#ifndef WEIR_OPS_DEVICE_PICTURE_OPERANDS_H_
#define WEIR_OPS_DEVICE_PICTURE_OPERANDS_H_

#include "absl/status/statusor.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "ops/device/picture_functors.h"
#include "ops/fused_activation.h"
#include "ops/windows.h"

namespace weir {
namespace device {

static_assert(static_cast<int>(PictureActivation::kIdentity) == static_cast<int>(FusedActivation::kIdentity));
static_assert(static_cast<int>(PictureActivation::kRelu) == static_cast<int>(FusedActivation::kRelu));
static_assert(static_cast<int>(PictureActivation::kSigmoid) == static_cast<int>(FusedActivation::kSigmoid));
static_assert(static_cast<int>(PictureActivation::kTanh) == static_cast<int>(FusedActivation::kTanh));

inline absl::StatusOr<PictureActivation> ReadActivation(const AttrReader& attrs) {
  ASSIGN_OR_RETURN(const FusedActivation activation, ParseFusedActivation(attrs.String("activation")));
  return static_cast<PictureActivation>(activation);
}

inline Axis AxisOf(const WindowAxis& a) {
  return {.size = a.size, .kernel = a.kernel, .stride = a.stride, .padding = a.padding, .count = a.count};
}

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_PICTURE_OPERANDS_H_
