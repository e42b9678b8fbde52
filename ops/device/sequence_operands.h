// Sequences as operands of device kernels.
//
// How long sequences are is known on the host, which has their ids: it is checked there, and goes to the device as
// whole numbers.
#ifndef WEIR_OPS_DEVICE_SEQUENCE_OPERANDS_H_
#define WEIR_OPS_DEVICE_SEQUENCE_OPERANDS_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_kernel.h"
#include "ops/device/operands.h"
#include "ops/sequence.h"

namespace weir {
namespace device {

// Sequences x [.., T, W] of the slot named, and their lengths, which the slot `length` has on the host. Without a
// variable there, all elements count.
class Sequences {
 public:
  absl::Status Read(DeviceKernelContext& ctx, std::string_view slot, const DeviceTensor& x, int length) {
    RETURN_IF_ERROR(CheckRank(slot, x, 3));
    host_.clear();
    for (int lane = 0; lane < ctx.lanes; ++lane) {
      if (!ctx.has_input(length)) {
        host_.insert(host_.end(), static_cast<size_t>(x.rows(lane)), static_cast<int32_t>(x.row_dims()[0]));
        continue;
      }
      const Tensor& given = ctx.host_input<Tensor>(lane, length);
      RETURN_IF_ERROR(CheckLengths(slot, x.dims(lane), given));
      for (int64_t b = 0; b < x.rows(lane); ++b) host_.push_back(static_cast<int32_t>(LengthOf(given, b)));
    }
    batch = x.rows();
    most = x.row_dims()[0];
    width = x.row_dims()[1];
    lengths_ = nullptr;
    if (host_.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> block,
                     ctx.transfers->Land(&landing_, {{.data = host_.data(), .bytes = host_.size() * sizeof(int32_t)}},
                                         "kernels", "lengths"));
    lengths_ = static_cast<const int32_t*>(block->data());
    RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
    ctx.transfers->AfterCompute();
    return absl::OkStatus();
  }
  const int32_t* lengths() const { return lengths_; }

  int64_t batch = 0, most = 0, width = 0;

 private:
  std::vector<int32_t> host_;
  DeviceLanding landing_;
  const int32_t* lengths_ = nullptr;
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_SEQUENCE_OPERANDS_H_
