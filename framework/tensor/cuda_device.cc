#include "framework/tensor/cuda_device.h"

#include "absl/strings/str_cat.h"

#if WEIR_HAVE_CUDA

#include <cuda_runtime_api.h>

#include <ctime>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/device_replay.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Returns "12.4" for 12040.
std::string Version(int version) { return absl::StrCat(version / 1000, ".", version % 1000 / 10); }

// Selects the device for the calling thread, to which the CUDA runtime binds the choice.
void EnterDevice(int id) {
  static thread_local int current = -1;
  if (current == id) return;
  (void)cudaSetDevice(id);
  current = id;
}

// Returns true for errors after which this process cannot use the device: a failed kernel, a device that is off the
// bus. Other errors are mistakes of a call, which a new run would repeat.
bool IsLost(cudaError_t error) {
  switch (error) {
    case cudaErrorDevicesUnavailable:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorUnknown:
      return true;
    default:
      return false;
  }
}

class CudaEvent : public DeviceEvent {
 public:
  CudaEvent(int device, cudaEvent_t event) : device(device), event(event) {}
  ~CudaEvent() override {
    EnterDevice(device);
    cudaEventDestroy(event);
  }
  const int device;
  const cudaEvent_t event;
};

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(int device, cudaGraphExec_t graph) : device(device), graph(graph) {}
  ~CudaGraph() override {
    EnterDevice(device);
    cudaGraphExecDestroy(graph);
  }
  const int device;
  const cudaGraphExec_t graph;
};

class CudaDevice : public DeviceRuntime {
 public:
  explicit CudaDevice(DeviceInfo info) : info_(std::move(info)) {}
  ~CudaDevice() override {
    Enter();
    for (cudaStream_t stream : streams_) {
      if (stream != nullptr) cudaStreamDestroy(stream);
    }
  }

  absl::Status Open() {
    RETURN_IF_ERROR(Check(cudaSetDevice(info_.id), "choosing the device"));
    for (cudaStream_t& stream : streams_) {
      RETURN_IF_ERROR(Check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream"));
    }
    return absl::OkStatus();
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<void*> Allocate(size_t bytes) override {
    Enter();
    void* memory = nullptr;
    RETURN_IF_ERROR(Check(cudaMalloc(&memory, bytes), "allocating memory"));
    return memory;
  }
  void Free(void* memory) override {
    Enter();
    // The call fails on a lost device, where there is nothing left to free.
    (void)cudaFree(memory);
  }
  absl::StatusOr<void*> AllocatePinned(size_t bytes) override {
    Enter();
    void* memory = nullptr;
    RETURN_IF_ERROR(Check(cudaMallocHost(&memory, bytes), "allocating pinned memory of the host"));
    return memory;
  }
  void FreePinned(void* memory) override {
    Enter();
    (void)cudaFreeHost(memory);
  }

  absl::Status CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) override {
    return Copy(queue, device, pinned, bytes, cudaMemcpyHostToDevice, "copying to the device");
  }
  absl::Status CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) override {
    return Copy(queue, pinned, device, bytes, cudaMemcpyDeviceToHost, "copying from the device");
  }
  absl::Status CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) override {
    return Copy(queue, to, from, bytes, cudaMemcpyDeviceToDevice, "copying on the device");
  }
  absl::Status Zero(DeviceQueue queue, void* device, size_t bytes) override {
    Enter();
    return Check(cudaMemsetAsync(device, 0, bytes, StreamOf(queue)), "clearing memory");
  }

  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewEvent() override {
    Enter();
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(Check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "making an event"));
    return std::unique_ptr<DeviceEvent>(new CudaEvent(info_.id, event));
  }
  absl::Status Record(DeviceQueue queue, DeviceEvent* event) override {
    Enter();
    return Check(cudaEventRecord(EventOf(event), StreamOf(queue)), "recording an event");
  }
  absl::Status QueueWait(DeviceQueue queue, DeviceEvent* event) override {
    Enter();
    return Check(cudaStreamWaitEvent(StreamOf(queue), EventOf(event), 0), "waiting for an event");
  }
  absl::StatusOr<bool> Reached(DeviceEvent* event) override {
    Enter();
    const cudaError_t error = cudaEventQuery(EventOf(event));
    if (error == cudaErrorNotReady) {
      // Clear the thread's last error, which the next launch would report as its own.
      (void)cudaGetLastError();
      return false;
    }
    RETURN_IF_ERROR(Check(error, "running what was queued"));
    return true;
  }
  absl::Status Wait(DeviceEvent* event) override {
    const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(kDeadlineSeconds);
    // Spin at first, because most waits end within microseconds; then sleep between the looks.
    for (int tries = 0;; ++tries) {
      ASSIGN_OR_RETURN(const bool reached, Reached(event));
      if (reached) return absl::OkStatus();
      if (tries < kSpins) continue;
      if (Clock::Real()->Now() > deadline) {
        return absl::DeadlineExceededError(
            absl::StrCat(info_.name, " did not come to the end of what was queued within ", kDeadlineSeconds, " s"));
      }
      const timespec pause = {.tv_sec = 0, .tv_nsec = 20000};
      nanosleep(&pause, nullptr);
    }
  }
  absl::Status WaitForAll() override {
    for (int q = 0; q < kDeviceQueues; ++q) {
      ASSIGN_OR_RETURN(std::unique_ptr<DeviceEvent> event, NewEvent());
      RETURN_IF_ERROR(Record(static_cast<DeviceQueue>(q), event.get()));
      RETURN_IF_ERROR(Wait(event.get()));
    }
    return absl::OkStatus();
  }

  absl::Status StartTiming() override {
    // Renew the origin: CUDA gives the time between two events as a float of milliseconds, which over some seconds is
    // exact to a microsecond.
    constexpr int64_t kOldest = 5'000'000'000;
    MutexLock lock(&timing_mu_);
    if (origin_ != nullptr && NowNs() - origin_ns_ < kOldest) return absl::OkStatus();
    ASSIGN_OR_RETURN(origin_, NewTimedEvent());
    RETURN_IF_ERROR(Record(DeviceQueue::kCompute, origin_.get()));
    RETURN_IF_ERROR(Wait(origin_.get()));
    // Record it again now that the queue is empty, so that the device reaches it at once.
    RETURN_IF_ERROR(Record(DeviceQueue::kCompute, origin_.get()));
    RETURN_IF_ERROR(Wait(origin_.get()));
    origin_ns_ = NowNs();
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceEvent>> NewTimedEvent() override {
    Enter();
    cudaEvent_t event = nullptr;
    RETURN_IF_ERROR(Check(cudaEventCreate(&event), "making an event"));
    return std::unique_ptr<DeviceEvent>(new CudaEvent(info_.id, event));
  }
  absl::StatusOr<int64_t> TimeOf(DeviceEvent* event) override {
    Enter();
    MutexLock lock(&timing_mu_);
    if (origin_ == nullptr) return absl::FailedPreconditionError("an event is timed, and StartTiming was not called");
    float milliseconds = 0;
    RETURN_IF_ERROR(Check(cudaEventElapsedTime(&milliseconds, EventOf(origin_.get()), EventOf(event)), "timing"));
    return origin_ns_ + static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
  }

  bool emulated() const override { return false; }
  void* stream(DeviceQueue queue) override {
    // The caller launches kernels from this thread next.
    Enter();
    return StreamOf(queue);
  }
  absl::Status Launched(int cuda_error) override {
    return Check(static_cast<cudaError_t>(cuda_error), "launching a kernel");
  }
  absl::Status RunLoop(DeviceQueue, std::function<void()>) override {
    LOG(FATAL) << "loops are for the emulation";
    return absl::OkStatus();
  }

  absl::Status BeginCapture() override {
    Enter();
    // Capture the calls of this thread only: other threads allocate memory and query events meanwhile.
    return Check(cudaStreamBeginCapture(StreamOf(DeviceQueue::kCompute), cudaStreamCaptureModeThreadLocal),
                 "beginning to capture a graph");
  }
  absl::StatusOr<std::unique_ptr<DeviceGraph>> EndCapture() override {
    Enter();
    cudaGraph_t graph = nullptr;
    RETURN_IF_ERROR(Check(cudaStreamEndCapture(StreamOf(DeviceQueue::kCompute), &graph), "capturing a graph"));
    cudaGraphExec_t ready = nullptr;
    const cudaError_t error = cudaGraphInstantiate(&ready, graph, 0);
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(Check(error, "making a graph ready"));
    return std::unique_ptr<DeviceGraph>(new CudaGraph(info_.id, ready));
  }
  absl::Status Launch(DeviceGraph* graph) override {
    Enter();
    return Check(cudaGraphLaunch(static_cast<CudaGraph*>(graph)->graph, StreamOf(DeviceQueue::kCompute)),
                 "launching a graph");
  }

 private:
  static constexpr int kSpins = 200;

  cudaStream_t StreamOf(DeviceQueue queue) const { return streams_[static_cast<int>(queue)]; }
  static cudaEvent_t EventOf(DeviceEvent* event) { return static_cast<CudaEvent*>(event)->event; }

  static int64_t NowNs() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
  }

  void Enter() const { EnterDevice(info_.id); }

  absl::Status Copy(DeviceQueue queue, void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                    std::string_view what) {
    Enter();
    return Check(cudaMemcpyAsync(to, from, bytes, kind, StreamOf(queue)), what);
  }

  absl::Status Check(cudaError_t error, std::string_view what) const {
    if (error == cudaSuccess) return absl::OkStatus();
    (void)cudaGetLastError();
    const std::string text = absl::StrCat(info_.name, ": ", absl::string_view(what.data(), what.size()), ": ",
                                          cudaGetErrorName(error), ", ", cudaGetErrorString(error));
    if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(text);
    if (!IsLost(error)) return absl::InternalError(text);
    return absl::UnavailableError(absl::StrCat(text, "; the device is lost to this process: run again with --resume"));
  }

  const DeviceInfo info_;
  cudaStream_t streams_[kDeviceQueues] = {};
  // Event from which others are timed, and its time on the host's clock.
  Mutex timing_mu_;
  std::unique_ptr<DeviceEvent> origin_ ABSL_GUARDED_BY(timing_mu_);
  int64_t origin_ns_ ABSL_GUARDED_BY(timing_mu_) = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ReplayingDevice>> OpenCudaDevice(int id) {
  int driver = 0, runtime = 0;
  (void)cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    return absl::FailedPreconditionError("no CUDA device: this machine has no NVIDIA driver");
  }
  int devices = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted == cudaErrorInsufficientDriver) {
    return absl::FailedPreconditionError(absl::StrCat("the NVIDIA driver is too old: it knows CUDA ", Version(driver),
                                                      ", this program was built with CUDA ", Version(runtime),
                                                      "; update the driver"));
  }
  if (counted == cudaErrorNoDevice || (counted == cudaSuccess && devices == 0)) {
    return absl::FailedPreconditionError("no CUDA device: the driver sees none (CUDA_VISIBLE_DEVICES hides some)");
  }
  if (counted != cudaSuccess) {
    return absl::FailedPreconditionError(
        absl::StrCat("no CUDA device: ", cudaGetErrorName(counted), ", ", cudaGetErrorString(counted)));
  }
  if (id < 0 || id >= devices) {
    std::string there;
    for (int d = 0; d < devices; ++d) {
      cudaDeviceProp properties;
      const bool known = cudaGetDeviceProperties(&properties, d) == cudaSuccess;
      absl::StrAppend(&there, d == 0 ? "" : ", ", d, known ? absl::StrCat(" (", properties.name, ")") : "");
    }
    return absl::InvalidArgumentError(absl::StrCat("there is no CUDA device ", id, "; this process sees ", there,
                                                   " (train.device_id, --local_rank, CUDA_VISIBLE_DEVICES)"));
  }
  cudaDeviceProp properties;
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, id); error != cudaSuccess) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA device ", id, ": ", cudaGetErrorString(error)));
  }
  DeviceInfo info = {.id = id,
                     .name = absl::StrCat("CUDA device ", id, " (", properties.name, ")"),
                     .memory = static_cast<int64_t>(properties.totalGlobalMem)};
  // Oldest compute capability that tools/bazel/weir.bzl builds for.
  constexpr int kMajor = 8;
  if (properties.major < kMajor) {
    return absl::FailedPreconditionError(absl::StrCat(info.name, " has compute capability ", properties.major, ".",
                                                      properties.minor, "; kernels are built for 8.0 and newer"));
  }
  auto device = std::make_unique<CudaDevice>(std::move(info));
  RETURN_IF_ERROR(device->Open());
  return std::make_unique<ReplayingDevice>(std::move(device));
}

}  // namespace weir

#else

namespace weir {

absl::StatusOr<std::unique_ptr<ReplayingDevice>> OpenCudaDevice(int) {
  return absl::FailedPreconditionError("no CUDA device: this program was built without the CUDA toolkit");
}

}  // namespace weir

#endif  // WEIR_HAVE_CUDA
