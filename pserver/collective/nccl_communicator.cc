#include "pserver/collective/nccl_communicator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Pace at which the library is asked how far it is: a launch takes some ten microseconds, forming takes seconds.
constexpr absl::Duration kShortLook = absl::Microseconds(50);
constexpr absl::Duration kLongLook = absl::Milliseconds(5);
constexpr int kShortLooks = 200;

absl::StatusOr<NcclType> TypeOf(DType dtype) {
  switch (dtype) {
    case v1::FLOAT32:
      return kNcclFloat32;
    case v1::FLOAT64:
      return kNcclFloat64;
    case v1::INT32:
      return kNcclInt32;
    case v1::INT64:
      return kNcclInt64;
    case v1::FLOAT16:
      return kNcclFloat16;
    case v1::BFLOAT16:
      return kNcclBfloat16;
    case v1::UINT8:
      return kNcclUint8;
    default:
      return absl::UnimplementedError(absl::StrCat("NCCL has no values of type ", v1::DType_Name(dtype)));
  }
}

absl::StatusOr<NcclReduction> ReductionOf(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return kNcclSum;
    case Reduction::kProduct:
      return kNcclProduct;
    case Reduction::kMax:
      return kNcclMax;
    case Reduction::kMin:
      return kNcclMin;
    default:
      return absl::UnimplementedError("NCCL averages by ranks, not by samples: take the sum and divide it");
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Connect(NcclCommunicatorOptions options) {
  CHECK(options.library != nullptr && options.device != nullptr);
  CHECK(options.rank >= 0 && options.rank < options.size);
  std::unique_ptr<NcclCommunicator> communicator(new NcclCommunicator(std::move(options)));
  if (const absl::Status formed = communicator->Form(); !formed.ok()) {
    communicator->Abort(formed);
    return formed;
  }
  return communicator;
}

absl::Status NcclCommunicator::Form() {
  {
    MutexLock lock(&mu_);
    // Selects the device for this thread, which is how NCCL learns it.
    (void)Stream();
    NcclConfig config;
    config.blocking = 0;
    const NcclResult result =
        options_.library->functions().init_rank(&comm_, options_.size, options_.id, options_.rank, &config);
    RETURN_IF_ERROR(options_.library->Check(result, "forming a communicator", nullptr));
    if (comm_ == nullptr) return absl::InternalError("NCCL: forming a communicator gave none");
  }
  return Await("forming a communicator", options_.connect_deadline, options_.interrupted);
}

NcclStream NcclCommunicator::Stream() const {
  return options_.device->emulated() ? options_.device : options_.device->stream(DeviceQueue::kCompute);
}

absl::Status NcclCommunicator::Await(std::string_view what, absl::Duration deadline,
                                     const std::function<absl::Status()>& interrupted) {
  const absl::string_view text(what.data(), what.size());
  const absl::Time end = Clock::Real()->Now() + deadline;
  for (int looks = 0;; ++looks) {
    if (interrupted) RETURN_IF_ERROR(interrupted());
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(ended_);
    NcclResult state = kNcclSuccess;
    RETURN_IF_ERROR(options_.library->Check(options_.library->functions().get_async_error(comm_, &state),
                                            "asking for its state", comm_));
    RETURN_IF_ERROR(options_.library->Check(state, what, comm_));
    if (state == kNcclSuccess) return absl::OkStatus();
    if (Clock::Real()->Now() >= end) {
      return absl::DeadlineExceededError(
          absl::StrCat("NCCL: ", text, " is not done after ", absl::FormatDuration(deadline)));
    }
    aborted_.WaitWithTimeout(&mu_, looks < kShortLooks ? kShortLook : kLongLook);
  }
}

absl::Status NcclCommunicator::Call(std::string_view what, const std::function<NcclResult(NcclStream)>& begin) {
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(ErrorLocked());
    const NcclFunctions& f = options_.library->functions();
    NcclStream const stream = Stream();
    RETURN_IF_ERROR(options_.library->Check(f.group_start(), what, comm_));
    const NcclResult begun = begin(stream);
    const NcclResult ended = f.group_end();
    RETURN_IF_ERROR(options_.library->Check(begun, what, comm_));
    RETURN_IF_ERROR(options_.library->Check(ended, what, comm_));
  }
  return Await(what, options_.call_deadline, nullptr);
}

absl::Status NcclCommunicator::Exchange(absl::Span<const Message> sends, absl::Span<const Message> receives) {
  if (sends.empty() && receives.empty()) return absl::OkStatus();
  return Call("exchanging messages", [&](NcclStream stream) {
    mu_.AssertHeld();
    const NcclFunctions& f = options_.library->functions();
    NcclResult result = kNcclSuccess;
    const auto failed = [&] { return result != kNcclSuccess && result != kNcclInProgress; };
    for (const Message& each : sends) {
      if (!failed()) result = f.send(each.data, each.bytes, kNcclUint8, each.peer, comm_, stream);
    }
    for (const Message& each : receives) {
      if (!failed()) result = f.receive(each.data, each.bytes, kNcclUint8, each.peer, comm_, stream);
    }
    return result;
  });
}

absl::Status NcclCommunicator::AllReduce(const void* from, void* to, size_t count, DType dtype, Reduction reduction) {
  ASSIGN_OR_RETURN(const NcclType type, TypeOf(dtype));
  ASSIGN_OR_RETURN(const NcclReduction how, ReductionOf(reduction));
  return Call("all_reduce", [&](NcclStream stream) {
    mu_.AssertHeld();
    return options_.library->functions().all_reduce(from, to, count, type, how, comm_, stream);
  });
}

absl::Status NcclCommunicator::ReduceScatter(const void* from, void* to, size_t count, DType dtype,
                                             Reduction reduction) {
  ASSIGN_OR_RETURN(const NcclType type, TypeOf(dtype));
  ASSIGN_OR_RETURN(const NcclReduction how, ReductionOf(reduction));
  return Call("reduce_scatter", [&](NcclStream stream) {
    mu_.AssertHeld();
    return options_.library->functions().reduce_scatter(from, to, count, type, how, comm_, stream);
  });
}

absl::Status NcclCommunicator::AllGather(const void* from, void* to, size_t count, DType dtype) {
  ASSIGN_OR_RETURN(const NcclType type, TypeOf(dtype));
  return Call("all_gather", [&](NcclStream stream) {
    mu_.AssertHeld();
    return options_.library->functions().all_gather(from, to, count, type, comm_, stream);
  });
}

absl::Status NcclCommunicator::Broadcast(const void* from, void* to, size_t count, DType dtype, int root) {
  ASSIGN_OR_RETURN(const NcclType type, TypeOf(dtype));
  return Call("broadcast", [&](NcclStream stream) {
    mu_.AssertHeld();
    return options_.library->functions().broadcast(from, to, count, type, root, comm_, stream);
  });
}

absl::Status NcclCommunicator::ErrorLocked() {
  RETURN_IF_ERROR(ended_);
  NcclResult state = kNcclSuccess;
  RETURN_IF_ERROR(options_.library->Check(options_.library->functions().get_async_error(comm_, &state),
                                          "asking for its state", comm_));
  return options_.library->Check(state, "an operation under way", comm_);
}

absl::Status NcclCommunicator::Error() {
  MutexLock lock(&mu_);
  return ErrorLocked();
}

void NcclCommunicator::Abort(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!ended_.ok()) return;
  ended_ = status.ok() ? absl::CancelledError("the communicator has ended") : status;
  if (comm_ != nullptr) {
    (void)Stream();
    const absl::Status aborted =
        options_.library->Check(options_.library->functions().abort(comm_), "aborting a communicator", nullptr);
    LOG_IF(WARNING, !aborted.ok()) << aborted.message();
    comm_ = nullptr;
  }
  aborted_.SignalAll();
}

void NcclCommunicator::End() {
  {
    MutexLock lock(&mu_);
    if (!ended_.ok()) return;
    (void)Stream();
    const NcclResult result = options_.library->functions().finalize(comm_);
    if (!options_.library->Check(result, "ending", comm_).ok()) return;
  }
  if (!Await("ending a communicator", options_.call_deadline, nullptr).ok()) return;
  MutexLock lock(&mu_);
  if (!ended_.ok()) return;
  (void)options_.library->functions().destroy(comm_);
  comm_ = nullptr;
  ended_ = absl::CancelledError("the communicator has ended");
}

NcclCommunicator::~NcclCommunicator() {
  End();
  Abort(absl::CancelledError("the communicator has ended"));
}

}  // namespace weir
