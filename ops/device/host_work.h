// Helpers for the host part of kernels that read ids: parallel lanes, and arrays for the device.
#ifndef WEIR_OPS_DEVICE_HOST_WORK_H_
#define WEIR_OPS_DEVICE_HOST_WORK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/status_macros.h"
#include "framework/device/device_kernel.h"

namespace weir {
namespace device {

// Runs fn(lane) for every lane, on the pool if there is one; returns the error of the lowest lane that failed.
absl::Status ForLanes(DeviceKernelContext& ctx, const std::function<absl::Status(int)>& fn);

// Arrays copied to the device together, one after the other.
class Staged {
 public:
  // Adds an array and returns its index for At, which is valid after Send. Borrows `values` until Send.
  template <typename T>
  size_t Add(const std::vector<T>& values) {
    static_assert(sizeof(T) == 4);
    begins_.push_back(words_);
    pieces_.push_back({.data = values.data(), .bytes = values.size() * sizeof(T)});
    words_ += values.size();
    return begins_.size() - 1;
  }
  absl::Status Send(DeviceKernelContext& ctx, DeviceLanding* landing) {
    if (words_ == 0) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::shared_ptr<DeviceBlock> block,
                     ctx.transfers->Land(landing, pieces_, "kernels", "places"));
    base_ = static_cast<char*>(block->data());
    RETURN_IF_ERROR(ctx.transfers->BeforeCompute());
    ctx.transfers->AfterCompute();
    return absl::OkStatus();
  }
  template <typename T>
  const T* At(size_t array) const {
    return reinterpret_cast<const T*>(base_ + begins_[array] * 4);
  }

 private:
  std::vector<size_t> begins_;
  std::vector<DeviceTransfers::Piece> pieces_;
  size_t words_ = 0;
  char* base_ = nullptr;
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_HOST_WORK_H_
