// Moves values of variables between host and device, and tracks which of the two is newer (DeviceVariable.on_host,
// on_device). Copies use queues of their own (framework/tensor/device_transfers.h).
//
// Used by the one thread that fills the compute queue.
#ifndef WEIR_FRAMEWORK_DEVICE_DEVICE_VALUES_H_
#define WEIR_FRAMEWORK_DEVICE_DEVICE_VALUES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/device/device_kernel.h"
#include "framework/device/rounded_factors.h"
#include "framework/tensor/device_transfers.h"

namespace weir {

class DeviceValues {
 public:
  // Borrows both. `rounded` forgets a weight when it gets another value.
  DeviceValues(DeviceTransfers* transfers, RoundedFactors* rounded) : transfers_(transfers), rounded_(rounded) {}
  DeviceValues(const DeviceValues&) = delete;
  DeviceValues& operator=(const DeviceValues&) = delete;

  // Sets whether pulled rows are in pinned memory (StepContext.row_memory), from which they are copied in place.
  void SetPinnedRows(bool pinned_rows) { pinned_rows_ = pinned_rows; }

  // Submits the copies that bring a value to the device, if it is not there. InvalidArgument for ids, or a value whose
  // lanes do not fit together.
  absl::Status ToDevice(DeviceVariable* var);
  // Copies values to the host that are not there, and waits for them.
  absl::Status ToHost(absl::Span<DeviceVariable* const> vars);

  // Record that the host, or a kernel, has written a value.
  static void WrittenOnHost(DeviceVariable* var);
  void WrittenOnDevice(DeviceVariable* var);

  // Records that a kernel has submitted copies of these values to the host.
  void CopiedByKernel(absl::Span<DeviceVariable* const> vars);
  // Makes the compute queue wait for copies to the host if they may still read one of these values.
  absl::Status BeforeWriting(absl::Span<DeviceVariable* const> vars);
  // Makes the compute queue wait for all copies to the host: the next run overwrites what this one sends out and reads.
  absl::Status EndRun();

 private:
  absl::Status SubmitToDevice(DeviceVariable* var);
  absl::Status StartToHost(DeviceVariable* var);
  absl::Status FinishToHost(DeviceVariable* var);
  void AddLeaving(DeviceVariable* var);
  absl::Status HoldForLeaving();

  DeviceTransfers* const transfers_;
  RoundedFactors* const rounded_;
  bool pinned_rows_ = false;
  // Values that copies to the host read since the compute queue waited for such copies.
  std::vector<DeviceVariable*> leaving_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_DEVICE_DEVICE_VALUES_H_
