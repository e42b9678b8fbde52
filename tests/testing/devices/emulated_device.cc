#include "tests/testing/devices/emulated_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUpToHuge(size_t bytes) { return (bytes + kHugePage - 1) / kHugePage * kHugePage; }

}  // namespace

class EmulatedDevice::Event : public DeviceEvent {
 public:
  const std::shared_ptr<Progress> progress = std::make_shared<Progress>();
};

class EmulatedDevice::Graph : public DeviceGraph {
 public:
  explicit Graph(std::shared_ptr<std::vector<std::function<void()>>> loops) : loops(std::move(loops)) {}
  const std::shared_ptr<std::vector<std::function<void()>>> loops;
};

EmulatedDevice::EmulatedDevice(EmulatedDeviceOptions options) : options_(options), random_(options.seed) {
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  CHECK_EQ(options_.memory % page, 0u);
  info_ = {.id = 0, .name = "emulated device", .memory = static_cast<int64_t>(options_.memory)};
  // On huge pages, where the system has them, as a whole is opened and closed hundreds of times faster.
  mapped_bytes_ = RoundUpToHuge(options_.memory) + kHugePage;
  mapped_ = mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  PCHECK(mapped_ != MAP_FAILED);
  arena_ = reinterpret_cast<char*>(RoundUpToHuge(reinterpret_cast<size_t>(mapped_)));
  (void)madvise(arena_, RoundUpToHuge(options_.memory), MADV_HUGEPAGE);
}

EmulatedDevice::~EmulatedDevice() { munmap(mapped_, mapped_bytes_); }

absl::Status EmulatedDevice::Lost() const {
  return absl::UnavailableError(absl::StrCat(info_.name, ": lost to this process: run again with --resume"));
}

void EmulatedDevice::Open(bool open) {
  size_t end = 0;
  if (!used_.empty()) end = used_.rbegin()->first + used_.rbegin()->second;
  if (end > 0) PCHECK(mprotect(arena_, RoundUpToHuge(end), open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0);
}

void EmulatedDevice::CheckInside(const void* device, size_t bytes) const {
  const char* const at = static_cast<const char*>(device);
  CHECK(at >= arena_ && at + bytes <= arena_ + options_.memory) << "not device memory";
}

absl::StatusOr<void*> EmulatedDevice::Allocate(size_t bytes) {
  MutexLock lock(&mu_);
  if (lost_) return Lost();
  if (capturing_ != nullptr && capturing_thread_ == std::this_thread::get_id())
    return absl::InternalError("memory is allocated while a graph is captured");
  // Whole pages: mprotect knows nothing smaller.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t size = (bytes + page - 1) / page * page;
  size_t at = 0;
  for (const auto& [offset, length] : used_) {
    if (offset - at >= size) break;
    at = offset + length;
  }
  if (options_.memory - at < size) return absl::ResourceExhaustedError("no room");
  used_[at] = size;
  Open(true);
  std::memset(arena_ + at, 0xFF, size);
  Open(false);
  return static_cast<void*>(arena_ + at);
}

void EmulatedDevice::Free(void* memory) {
  MutexLock lock(&mu_);
  CHECK_EQ(used_.erase(static_cast<size_t>(static_cast<char*>(memory) - arena_)), 1u);
}

absl::StatusOr<void*> EmulatedDevice::AllocatePinned(size_t bytes) {
  MutexLock lock(&mu_);
  size_t held = 0;
  for (const auto& [begin, size] : pinned_) held += size;
  if (held + bytes > options_.pinned) return absl::ResourceExhaustedError("this process may pin no more");
  void* const memory = std::aligned_alloc(512, (bytes + 511) / 512 * 512);
  CHECK(memory != nullptr);
  std::memset(memory, 0xFF, bytes);
  pinned_[static_cast<const char*>(memory)] = bytes;
  return memory;
}

void EmulatedDevice::FreePinned(void* memory) {
  {
    MutexLock lock(&mu_);
    CHECK_EQ(pinned_.erase(static_cast<const char*>(memory)), 1u);
  }
  std::free(memory);
}

void EmulatedDevice::CheckPinned(const void* host, size_t bytes) const {
  const char* const at = static_cast<const char*>(host);
  MutexLock lock(&mu_);
  auto block = pinned_.upper_bound(at);
  CHECK(block != pinned_.begin()) << "not pinned memory";
  --block;
  CHECK(at + bytes <= block->first + block->second) << "not pinned memory";
}

absl::Status EmulatedDevice::Put(DeviceQueue queue, Work work) {
  MutexLock lock(&mu_);
  if (lost_) return Lost();
  if (capturing_ != nullptr && queue == DeviceQueue::kCompute) {
    CHECK(capturing_thread_ == std::this_thread::get_id()) << "another thread uses the queue while a graph is captured";
    capturing_->push_back(std::move(work.run));
    return absl::OkStatus();
  }
  queues_[static_cast<int>(queue)].push_back(std::move(work));
  return absl::OkStatus();
}

absl::Status EmulatedDevice::NotWhileCapturing(DeviceQueue queue, std::string_view what) const {
  MutexLock lock(&mu_);
  if (capturing_ == nullptr || queue != DeviceQueue::kCompute) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(absl::string_view(what.data(), what.size()), " while a graph is captured"));
}

absl::Status EmulatedDevice::CopyIn(DeviceQueue queue, void* device, const void* pinned, size_t bytes) {
  RETURN_IF_ERROR(NotWhileCapturing(queue, "a copy from the host"));
  CheckInside(device, bytes);
  CheckPinned(pinned, bytes);
  return RunLoop(queue, [=] { std::memcpy(device, pinned, bytes); });
}

absl::Status EmulatedDevice::CopyOut(DeviceQueue queue, void* pinned, const void* device, size_t bytes) {
  RETURN_IF_ERROR(NotWhileCapturing(queue, "a copy to the host"));
  CheckInside(device, bytes);
  CheckPinned(pinned, bytes);
  return RunLoop(queue, [=] { std::memcpy(pinned, device, bytes); });
}

absl::Status EmulatedDevice::CopyWithin(DeviceQueue queue, void* to, const void* from, size_t bytes) {
  CheckInside(to, bytes);
  CheckInside(from, bytes);
  return RunLoop(queue, [=] { std::memmove(to, from, bytes); });
}

absl::Status EmulatedDevice::Zero(DeviceQueue queue, void* device, size_t bytes) {
  CheckInside(device, bytes);
  return RunLoop(queue, [=] { std::memset(device, 0, bytes); });
}

absl::Status EmulatedDevice::RunLoop(DeviceQueue queue, std::function<void()> loop) {
  return Put(queue, {.run = std::move(loop)});
}

absl::StatusOr<std::unique_ptr<DeviceEvent>> EmulatedDevice::NewEvent() {
  return std::unique_ptr<DeviceEvent>(new Event());
}

absl::Status EmulatedDevice::BeginCapture() {
  MutexLock lock(&mu_);
  if (lost_) return Lost();
  if (capturing_ != nullptr) return absl::InternalError("a graph is being captured");
  capturing_ = std::make_shared<std::vector<std::function<void()>>>();
  capturing_thread_ = std::this_thread::get_id();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<DeviceGraph>> EmulatedDevice::EndCapture() {
  MutexLock lock(&mu_);
  if (capturing_ == nullptr) return absl::InternalError("no graph is being captured");
  return std::unique_ptr<DeviceGraph>(new Graph(std::exchange(capturing_, nullptr)));
}

absl::Status EmulatedDevice::Launch(DeviceGraph* graph) {
  return RunLoop(DeviceQueue::kCompute, [loops = static_cast<Graph*>(graph)->loops] {
    for (const std::function<void()>& loop : *loops) loop();
  });
}

absl::Status EmulatedDevice::Record(DeviceQueue queue, DeviceEvent* event) {
  RETURN_IF_ERROR(NotWhileCapturing(queue, "an event"));
  const std::shared_ptr<Progress>& progress = static_cast<Event*>(event)->progress;
  int64_t ticket;
  {
    MutexLock lock(&mu_);
    ticket = ++progress->recorded;
  }
  return Put(queue, {.event = progress, .ticket = ticket});
}

absl::Status EmulatedDevice::QueueWait(DeviceQueue queue, DeviceEvent* event) {
  RETURN_IF_ERROR(NotWhileCapturing(queue, "a wait for an event"));
  const std::shared_ptr<Progress>& progress = static_cast<Event*>(event)->progress;
  int64_t ticket;
  {
    MutexLock lock(&mu_);
    ticket = progress->recorded;
  }
  return Put(queue, {.event = progress, .ticket = ticket, .waits = true});
}

absl::StatusOr<bool> EmulatedDevice::Reached(DeviceEvent* event) {
  const std::shared_ptr<Progress>& progress = static_cast<Event*>(event)->progress;
  MutexLock lock(&mu_);
  if (lost_) return Lost();
  return progress->reached >= progress->recorded;
}

absl::Status EmulatedDevice::RunUntil(const std::function<bool()>& done) {
  while (!done()) {
    if (lost_) return Lost();
    std::vector<int> runnable;
    for (int q = 0; q < kDeviceQueues; ++q) {
      if (!queues_[q].empty() && Runnable(queues_[q].front())) runnable.push_back(q);
    }
    CHECK(!runnable.empty()) << "queues wait for one another";
    std::deque<Work>& queue = queues_[runnable[random_() % runnable.size()]];
    Work work = std::move(queue.front());
    queue.pop_front();
    if (work.event != nullptr && !work.waits) {
      work.event->reached = std::max(work.event->reached, work.ticket);
      timespec now;
      clock_gettime(CLOCK_MONOTONIC, &now);
      work.event->reached_ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    }
    if (work.run == nullptr) continue;
    if (options_.lost_after >= 0 && ran_ >= options_.lost_after) {
      lost_ = true;
      for (std::deque<Work>& left : queues_) left.clear();
      return Lost();
    }
    Open(true);
    work.run();
    Open(false);
    ++ran_;
  }
  return absl::OkStatus();
}

absl::Status EmulatedDevice::Wait(DeviceEvent* event) {
  const std::shared_ptr<Progress> progress = static_cast<Event*>(event)->progress;
  MutexLock lock(&mu_);
  const int64_t ticket = progress->recorded;
  return RunUntil([&] { return progress->reached >= ticket; });
}

absl::StatusOr<int64_t> EmulatedDevice::TimeOf(DeviceEvent* event) {
  const std::shared_ptr<Progress>& progress = static_cast<Event*>(event)->progress;
  MutexLock lock(&mu_);
  if (progress->reached == 0 || progress->reached < progress->recorded)
    return absl::InternalError("the event has not been reached");
  return progress->reached_ns;
}

absl::Status EmulatedDevice::WaitForAll() {
  MutexLock lock(&mu_);
  return RunUntil([&] {
    mu_.AssertHeld();
    for (const std::deque<Work>& queue : queues_) {
      if (!queue.empty()) return false;
    }
    return true;
  });
}

int64_t EmulatedDevice::ran() const {
  MutexLock lock(&mu_);
  return ran_;
}

size_t EmulatedDevice::allocated() const {
  MutexLock lock(&mu_);
  size_t bytes = 0;
  for (const auto& [offset, length] : used_) bytes += length;
  return bytes;
}

}  // namespace weir
