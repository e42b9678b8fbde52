#include "framework/tensor/device_replay.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/counters.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr size_t kUnit = sizeof(std::max_align_t);

uint64_t Join(uint64_t hash, uint64_t value) { return MixId(hash ^ value); }

struct CopyArguments {
  void* to;
  const void* from;
  size_t bytes;
};
absl::Status PutCopy(DeviceRuntime& device, const void* arguments) {
  const auto& a = *static_cast<const CopyArguments*>(arguments);
  return device.CopyWithin(DeviceQueue::kCompute, a.to, a.from, a.bytes);
}

struct ZeroArguments {
  void* device;
  size_t bytes;
};
absl::Status PutZero(DeviceRuntime& device, const void* arguments) {
  const auto& a = *static_cast<const ZeroArguments*>(arguments);
  return device.Zero(DeviceQueue::kCompute, a.device, a.bytes);
}

}  // namespace

ReplayingDevice::~ReplayingDevice() {
  // Wait for running graphs. A lost device has no work left.
  (void)device_->WaitForAll();
}

ReplayingDevice::Statistics ReplayingDevice::statistics() const {
  MutexLock lock(&mu_);
  return statistics_;
}

// ---------------------------------------------------------------------------------------------- calls that are put off

absl::Status ReplayingDevice::Call(DeviceFunction function, const void* arguments, size_t bytes) {
  MutexLock lock(&mu_);
  return PutOff(function, arguments, bytes);
}

absl::Status ReplayingDevice::PutOff(DeviceFunction function, const void* arguments, size_t bytes) {
  if (!may_put_off_ || gives_up_) return function(*device_, arguments);
  const size_t units = (bytes + kUnit - 1) / kUnit;
  if (bytes_.size() < bytes_used_ + units) bytes_.resize(std::max(2 * bytes_.size(), bytes_used_ + units));
  std::memcpy(static_cast<void*>(bytes_.data() + bytes_used_), arguments, bytes);
  calls_.push_back({.function = function,
                    .begin = bytes_used_ * kUnit,
                    .bytes = bytes,
                    .hash = StableHash(arguments, bytes, reinterpret_cast<uintptr_t>(function))});
  bytes_used_ += units;
  return absl::OkStatus();
}

absl::Status ReplayingDevice::PutOffCalls(bool may) {
  MutexLock lock(&mu_);
  may_put_off_ = may;
  return may ? absl::OkStatus() : Flush();
}

absl::Status ReplayingDevice::FlushFor(DeviceQueue queue) {
  return queue == DeviceQueue::kCompute ? Flush() : absl::OkStatus();
}

absl::Status ReplayingDevice::Flush() {
  if (calls_.empty()) return absl::OkStatus();
  statistics_.calls += static_cast<int64_t>(calls_.size());
  // Compare each call with the calls at its place in the last sequences of these functions. A stretch of calls whose
  // arguments repeat is worth a graph.
  uint64_t functions = calls_.size();
  for (const Written& call : calls_) functions = Join(functions, reinterpret_cast<uintptr_t>(call.function));
  if (sequences_.size() >= kMostStretches && !sequences_.contains(functions)) sequences_.clear();
  std::vector<Lately>& sequence = sequences_[functions];
  sequence.resize(calls_.size());
  absl::Status status = absl::OkStatus();
  size_t begin = 0;
  for (size_t i = 0; i <= calls_.size() && status.ok(); ++i) {
    bool known = false;
    if (i < calls_.size()) {
      Lately& lately = sequence[i];
      known = std::find(lately.hash, lately.hash + Lately::kKept, calls_[i].hash) != lately.hash + Lately::kKept;
      if (!known) lately.hash[lately.next++ % Lately::kKept] = calls_[i].hash;
    }
    if (known) continue;
    status = PutRange({.begin = begin, .end = i});
    if (status.ok() && i < calls_.size()) status = PutOneByOne({.begin = i, .end = i + 1});
    begin = i + 1;
  }
  calls_.clear();
  bytes_used_ = 0;
  return status;
}

absl::Status ReplayingDevice::PutOneByOne(Range range) {
  for (size_t i = range.begin; i < range.end; ++i)
    RETURN_IF_ERROR(calls_[i].function(*device_, ArgumentsOf(calls_[i])));
  return absl::OkStatus();
}

bool ReplayingDevice::Holds(const Stretch& stretch, Range range) const {
  if (stretch.calls.size() != range.end - range.begin) return false;
  const char* const kept = reinterpret_cast<const char*>(stretch.bytes.data());
  for (size_t i = 0; i < stretch.calls.size(); ++i) {
    const Written &a = stretch.calls[i], &b = calls_[range.begin + i];
    if (a.function != b.function || a.bytes != b.bytes || std::memcmp(kept + a.begin, ArgumentsOf(b), a.bytes) != 0)
      return false;
  }
  return true;
}

absl::Status ReplayingDevice::PutRange(Range range) {
  if (range.end - range.begin < kFewestCalls || gives_up_) return PutOneByOne(range);
  uint64_t hash = range.end - range.begin;
  for (size_t i = range.begin; i < range.end; ++i) hash = Join(hash, calls_[i].hash);
  const auto [it, fresh] = by_hash_.try_emplace(hash);
  if (fresh) {
    stretches_.emplace_front().hash = hash;
    it->second = stretches_.begin();
    if (stretches_.size() > kMostStretches) {
      // Wait before the graph is destroyed: it may still be in the queue.
      if (stretches_.back().graph != nullptr) RETURN_IF_ERROR(device_->WaitForAll());
      by_hash_.erase(stretches_.back().hash);
      stretches_.pop_back();
    }
  } else {
    stretches_.splice(stretches_.begin(), stretches_, it->second);
  }
  Stretch& stretch = stretches_.front();
  // The calls are known one by one; capture the stretch only if it occurs a second time as a whole.
  if (++stretch.times < 2) return PutOneByOne(range);
  if (stretch.graph == nullptr) {
    if (absl::Status status = Capture(range, &stretch); !status.ok()) {
      if (absl::IsUnavailable(status)) return status;
      LOG(WARNING) << info().name << ": " << status.message() << "; the following steps run without CUDA graphs";
      ++statistics_.failures;
      gives_up_ = true;
      return PutOneByOne(range);
    }
  }
  // Compare the calls themselves: another stretch of equal hash must not be launched as this one.
  if (!Holds(stretch, range)) return PutOneByOne(range);
  static Counter* const replays = Counters::Process().Get("device.graph_replays", "graphs");
  replays->Add();
  ++statistics_.replays;
  statistics_.replayed += static_cast<int64_t>(range.end - range.begin);
  return device_->Launch(stretch.graph.get());
}

absl::Status ReplayingDevice::Capture(Range range, Stretch* stretch) {
  RETURN_IF_ERROR(device_->BeginCapture());
  const absl::Status put = PutOneByOne(range);
  absl::StatusOr<std::unique_ptr<DeviceGraph>> graph = device_->EndCapture();
  if (!put.ok()) {
    // A library that cannot be captured reports a failed run, as it does on a lost device. The next call tells whether
    // the device is lost.
    return absl::InternalError(
        absl::StrCat("capturing a graph of ", range.end - range.begin, " calls: ", put.message()));
  }
  RETURN_IF_ERROR(graph.status());
  stretch->graph = *std::move(graph);
  const size_t from = calls_[range.begin].begin / kUnit;
  const size_t to = range.end < calls_.size() ? calls_[range.end].begin / kUnit : bytes_used_;
  stretch->bytes.assign(bytes_.begin() + static_cast<ptrdiff_t>(from), bytes_.begin() + static_cast<ptrdiff_t>(to));
  stretch->calls.assign(calls_.begin() + static_cast<ptrdiff_t>(range.begin),
                        calls_.begin() + static_cast<ptrdiff_t>(range.end));
  for (Written& call : stretch->calls) call.begin -= from * kUnit;
  static Counter* const captures = Counters::Process().Get("device.graph_captures", "graphs");
  captures->Add();
  ++statistics_.captures;
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------------------- calls behind them

void ReplayingDevice::Free(void* memory) {
  {
    MutexLock lock(&mu_);
    // The caller has waited for the submitted work; the calls that are put off may use this memory, too.
    (void)Flush();
  }
  device_->Free(memory);
}

absl::Status ReplayingDevice::CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(FlushFor(queue));
  return device_->CopyIn(queue, device, pinned, bytes);
}

absl::Status ReplayingDevice::CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(FlushFor(queue));
  return device_->CopyOut(queue, pinned, device, bytes);
}

absl::Status ReplayingDevice::CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) {
  MutexLock lock(&mu_);
  if (queue != DeviceQueue::kCompute) return device_->CopyWithin(queue, to, from, bytes);
  const CopyArguments arguments = {.to = to, .from = from, .bytes = bytes};
  return PutOff(PutCopy, &arguments, sizeof(arguments));
}

absl::Status ReplayingDevice::Zero(DeviceQueue queue, void* device, size_t bytes) {
  MutexLock lock(&mu_);
  if (queue != DeviceQueue::kCompute) return device_->Zero(queue, device, bytes);
  const ZeroArguments arguments = {.device = device, .bytes = bytes};
  return PutOff(PutZero, &arguments, sizeof(arguments));
}

absl::Status ReplayingDevice::Record(DeviceQueue queue, DeviceEvent* event) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(FlushFor(queue));
  return device_->Record(queue, event);
}

absl::Status ReplayingDevice::QueueWait(DeviceQueue queue, DeviceEvent* event) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(FlushFor(queue));
  return device_->QueueWait(queue, event);
}

absl::Status ReplayingDevice::WaitForAll() {
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(Flush());
  }
  return device_->WaitForAll();
}

absl::Status ReplayingDevice::StartTiming() {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Flush());
  return device_->StartTiming();
}

void* ReplayingDevice::stream(DeviceQueue queue) {
  MutexLock lock(&mu_);
  // The caller submits work to the stream directly, behind the calls put off so far. This function cannot return an
  // error; the device keeps it and returns it from the next call.
  (void)FlushFor(queue);
  return device_->stream(queue);
}

absl::Status ReplayingDevice::RunLoop(DeviceQueue queue, std::function<void()> loop) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(FlushFor(queue));
  return device_->RunLoop(queue, std::move(loop));
}

absl::Status ReplayingDevice::BeginCapture() { return absl::InternalError("a graph within a device that makes them"); }
absl::StatusOr<std::unique_ptr<DeviceGraph>> ReplayingDevice::EndCapture() { return BeginCapture(); }
absl::Status ReplayingDevice::Launch(DeviceGraph*) { return BeginCapture(); }

}  // namespace weir
