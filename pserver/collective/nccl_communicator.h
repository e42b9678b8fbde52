// One rank of an NCCL communicator over CUDA devices.
//
// The communicator is non-blocking: no call into the library waits for another rank. Where this class waits (for the
// communicator to form, for a call to be taken over), it has a deadline and looks for Abort. Operations run on the
// compute queue of `device`, in the order of the calls; that is also the order in which the other ranks must begin
// theirs. Their results are there when the queue has passed them.
//
// On an emulated device the library gets the device in the place of a stream: only a library made for tests knows what
// to do with it.
//
// Thread-safe, but operations should come from one thread, or their order is anybody's.
#ifndef WEIR_PSERVER_COLLECTIVE_NCCL_COMMUNICATOR_H_
#define WEIR_PSERVER_COLLECTIVE_NCCL_COMMUNICATOR_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/collective/reduction.h"
#include "framework/tensor/device.h"
#include "framework/tensor/dtype.h"
#include "pserver/collective/nccl_library.h"

namespace weir {

struct NcclCommunicatorOptions {
  const NcclLibrary* library = nullptr;
  NcclUniqueId id;  // made by one rank, equal on all
  int rank = 0;
  int size = 1;
  // Borrowed. Device of this rank alone: NCCL refuses two ranks on one device.
  DeviceRuntime* device = nullptr;
  // Limit for forming the communicator.
  absl::Duration connect_deadline = absl::Minutes(5);
  // Limit for the library to accept a call, and for the end.
  absl::Duration call_deadline = absl::Seconds(60);
  // Polled while the communicator forms, if set: an error ends the wait. "trainer 1 has ended the group: ..."
  std::function<absl::Status()> interrupted;
};

class NcclCommunicator {
 public:
  // Returns when all ranks have come. DeadlineExceeded: they have not. FailedPrecondition: NCCL refuses the use, for
  // example of one device by two ranks.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Connect(NcclCommunicatorOptions options);
  // Ends the communicator in order if nothing has failed, and within call_deadline; else aborts it.
  ~NcclCommunicator();

  // A message on the device to or from another rank.
  struct Message {
    int peer = 0;
    void* data = nullptr;
    size_t bytes = 0;  // > 0
  };
  // Sends and receives all messages at once. Messages between two ranks match in the order of the lists, of equal size.
  absl::Status Exchange(absl::Span<const Message> sends, absl::Span<const Message> receives);

  // NCCL's own operations, which add in an order of their own: `count` elements in device memory; from and to may be
  // equal. Unimplemented: a reduction or type that NCCL lacks.
  absl::Status AllReduce(const void* from, void* to, size_t count, DType dtype, Reduction reduction);
  // Rank r gets elements [r * count, (r + 1) * count) of the size * count elements at `from`.
  absl::Status ReduceScatter(const void* from, void* to, size_t count, DType dtype, Reduction reduction);
  // `to`: size * count elements.
  absl::Status AllGather(const void* from, void* to, size_t count, DType dtype);
  absl::Status Broadcast(const void* from, void* to, size_t count, DType dtype, int root);

  // Returns an error that operations under way have met, for example since another rank has gone; and what Abort was
  // called with.
  absl::Status Error();
  // Ends operations under way, whose results are undefined then. All later calls fail with `status`. Only the first
  // call counts.
  void Abort(const absl::Status& status);

 private:
  explicit NcclCommunicator(NcclCommunicatorOptions options) : options_(std::move(options)) {}
  NcclStream Stream() const;
  absl::Status Form();
  // Calls `begin` between group_start and group_end, and waits until the library has taken the calls over.
  absl::Status Call(std::string_view what, const std::function<NcclResult(NcclStream)>& begin);
  // Waits until the library is no longer in progress.
  absl::Status Await(std::string_view what, absl::Duration deadline, const std::function<absl::Status()>& interrupted);
  absl::Status ErrorLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void End();

  const NcclCommunicatorOptions options_;
  Mutex mu_;  // serializes calls into the library
  CondVar aborted_;
  NcclComm comm_ ABSL_GUARDED_BY(mu_) = nullptr;
  absl::Status ended_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_COLLECTIVE_NCCL_COMMUNICATOR_H_
