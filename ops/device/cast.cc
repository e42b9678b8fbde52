// cast (ops/cast.cc).
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/cast_types.h"
#include "ops/device/cast_functors.h"
#include "ops/device/launch.h"
#include "ops/device/operands.h"

namespace weir {
namespace device {
namespace {

class CastKernel : public OpDeviceKernel {
 public:
  explicit CastKernel(const KernelInit& init) : dtype_(init.attrs.Type("dtype")) {}
  absl::Status Run(DeviceKernelContext& ctx) override {
    const DeviceTensor& x = ctx.input(0);
    RETURN_IF_ERROR(CheckThere("X", x, x.dtype()));
    const std::vector<int64_t> rows = x.lane_rows();
    RETURN_IF_ERROR(ctx.Resize(0, x.rank(), rows, Shape(x.row_dims().begin(), x.row_dims().end()), 0, dtype_));
    absl::Status status =
        absl::InvalidArgumentError(absl::StrCat(v1::DType_Name(x.dtype()), " is not cast to ", v1::DType_Name(dtype_)));
    WithCastType(x.dtype(), [&](auto from) {
      WithCastType(dtype_, [&](auto to) {
        using From = decltype(from);
        using To = decltype(to);
        status =
            ForEach(ctx.runtime(), x.size(), CastAt<To, From>{.x = x.data<From>(), .out = ctx.output(0).data<To>()});
      });
    });
    return status;
  }

 private:
  const DType dtype_;
};

REGISTER_DEVICE_KERNEL(cast, MakeDeviceKernel<CastKernel>);

}  // namespace
}  // namespace device
}  // namespace weir
