#include "framework/tensor/device_memory.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {
namespace {

constexpr size_t kSmall = size_t{1} << 20;

// Rounds sizes up, so that a slightly smaller batch reuses the memory of the one before.
size_t RoundUp(size_t bytes) {
  const size_t step = bytes < kSmall ? 512 : size_t{2} << 20;
  return (bytes + step - 1) / step * step;
}

std::string Size(size_t bytes) {
  if (bytes < (size_t{1} << 20)) return absl::StrCat(bytes, " bytes");
  if (bytes < (size_t{1} << 30)) return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / (1 << 30));
}

}  // namespace

DeviceBlock::~DeviceBlock() { memory_->GiveBack(data_, size_, owner_); }
PinnedBlock::~PinnedBlock() { memory_->GiveBackPinned(data_, size_); }

DeviceMemory::~DeviceMemory() {
  // Wait for work that still uses returned memory. A lost device has no work left.
  (void)runtime_->WaitForAll();
  attached_.clear();
  MutexLock lock(&mu_);
  CHECK(by_owner_.empty()) << by_owner_.begin()->first << " still holds device memory";
  for (auto& [size, kept] : kept_) runtime_->Free(kept.data);
  for (auto& [size, data] : kept_pinned_) {
    runtime_->FreePinned(data);
    pinned_ -= size;
  }
  CHECK_EQ(pinned_, 0u) << "somebody still holds pinned memory";
}

absl::StatusOr<std::shared_ptr<DeviceBlock>> DeviceMemory::Allocate(size_t bytes, std::string_view owner) {
  CHECK_GT(bytes, 0u);
  const size_t size = RoundUp(bytes);
  MutexLock lock(&mu_);
  void* data = nullptr;
  size_t got = size;
  // Reuse a kept block of at most twice the size.
  if (const auto it = kept_.lower_bound(size); it != kept_.end() && it->first <= 2 * size) {
    for (int q = 0; q < kDeviceQueues; ++q) {
      for (const std::unique_ptr<DeviceEvent>& event : it->second.events) {
        RETURN_IF_ERROR(runtime_->QueueWait(static_cast<DeviceQueue>(q), event.get()));
      }
    }
    data = it->second.data;
    got = it->first;
    kept_bytes_ -= got;
    kept_.erase(it);
  } else {
    absl::StatusOr<void*> fresh = runtime_->Allocate(size);
    if (absl::IsResourceExhausted(fresh.status()) && !kept_.empty()) {
      // Return the kept blocks to the device and try again.
      RETURN_IF_ERROR(runtime_->WaitForAll());
      for (auto& [kept_size, kept] : kept_) runtime_->Free(kept.data);
      kept_.clear();
      kept_bytes_ = 0;
      fresh = runtime_->Allocate(size);
    }
    if (absl::IsResourceExhausted(fresh.status())) return OutOfMemory(bytes, owner, fresh.status());
    RETURN_IF_ERROR(fresh.status());
    data = *fresh;
  }
  std::string name(owner);
  by_owner_[name] += got;
  in_use_ += got;
  most_in_use_ = std::max(most_in_use_, in_use_);
  return std::shared_ptr<DeviceBlock>(new DeviceBlock(this, data, got, std::move(name)));
}

void DeviceMemory::GiveBack(void* data, size_t size, const std::string& owner) {
  Kept kept{.data = data};
  bool alive = true;
  for (int q = 0; q < kDeviceQueues; ++q) {
    absl::StatusOr<std::unique_ptr<DeviceEvent>> event = runtime_->NewEvent();
    alive = alive && event.ok() && runtime_->Record(static_cast<DeviceQueue>(q), event->get()).ok();
    if (event.ok()) kept.events[q] = std::move(*event);
  }
  MutexLock lock(&mu_);
  const auto it = by_owner_.find(owner);
  CHECK(it != by_owner_.end() && it->second >= size) << owner;
  it->second -= size;
  if (it->second == 0) by_owner_.erase(it);
  in_use_ -= size;
  if (!alive) {
    // The device is lost, and memory will not be requested again.
    runtime_->Free(data);
    return;
  }
  kept_bytes_ += size;
  kept_.emplace(size, std::move(kept));
}

// Returns a kept block of at most twice the size; null if there is none.
std::shared_ptr<PinnedBlock> DeviceMemory::TakeKeptPinned(size_t size) {
  const auto it = kept_pinned_.lower_bound(size);
  if (it == kept_pinned_.end() || it->first > 2 * size) return nullptr;
  auto block = std::shared_ptr<PinnedBlock>(new PinnedBlock(this, it->second, it->first));
  kept_pinned_.erase(it);
  return block;
}

absl::StatusOr<std::shared_ptr<PinnedBlock>> DeviceMemory::AllocatePinned(size_t bytes) {
  CHECK_GT(bytes, 0u);
  const size_t size = RoundUp(bytes);
  MutexLock lock(&mu_);
  if (std::shared_ptr<PinnedBlock> kept = TakeKeptPinned(size)) return kept;
  absl::StatusOr<void*> data = runtime_->AllocatePinned(size);
  if (absl::IsResourceExhausted(data.status()) && !kept_pinned_.empty()) {
    // Return the kept blocks, which nothing uses, to the system and try again.
    for (const auto& [kept_size, kept] : kept_pinned_) {
      runtime_->FreePinned(kept);
      pinned_ -= kept_size;
    }
    kept_pinned_.clear();
    data = runtime_->AllocatePinned(size);
  }
  RETURN_IF_ERROR(data.status());
  pinned_ += size;
  return std::shared_ptr<PinnedBlock>(new PinnedBlock(this, *data, size));
}

std::shared_ptr<Buffer> DeviceMemory::NewBuffer(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  bool more = false;
  std::shared_ptr<PinnedBlock> block;
  {
    MutexLock lock(&mu_);
    block = TakeKeptPinned(RoundUp(bytes));
    more = !pinned_is_out_;
  }
  absl::Status status = absl::OkStatus();
  if (block == nullptr && more) {
    absl::StatusOr<std::shared_ptr<PinnedBlock>> fresh = AllocatePinned(bytes);
    status = fresh.status();
    if (status.ok()) block = *std::move(fresh);
  }
  if (!status.ok()) {
    LOG(WARNING) << runtime_->info().name << ": no pinned memory for " << Size(bytes) << " of rows ("
                 << status.message() << "); from now on they lie in ordinary memory and are copied once more";
  }
  MutexLock lock(&mu_);
  pinned_is_out_ = pinned_is_out_ || !status.ok();
  if (block == nullptr) return nullptr;
  ++buffers_;
  const size_t size = block->size();
  void* const data = block->data();
  return std::make_shared<Buffer>(std::shared_ptr<void>(std::move(block), data), size);
}

void DeviceMemory::GiveBackPinned(void* data, size_t size) {
  MutexLock lock(&mu_);
  kept_pinned_.emplace(size, data);
}

absl::Status DeviceMemory::OutOfMemory(size_t bytes, std::string_view owner, const absl::Status& why) const {
  mu_.AssertHeld();
  std::vector<Use> uses;
  for (const auto& [name, held] : by_owner_) uses.push_back({.owner = name, .bytes = held});
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) { return a.bytes > b.bytes; });
  constexpr size_t kNamed = 6;
  std::string held;
  for (size_t i = 0; i < uses.size() && i < kNamed; ++i) {
    absl::StrAppend(&held, i == 0 ? "" : ", ", uses[i].owner, " ", Size(uses[i].bytes));
  }
  if (uses.size() > kNamed) absl::StrAppend(&held, ", ", uses.size() - kNamed, " more");
  return absl::ResourceExhaustedError(
      absl::StrCat(runtime_->info().name, " is out of memory: ", absl::string_view(owner.data(), owner.size()),
                   " needs ", Size(bytes), "; held are ", Size(in_use_), " of ",
                   Size(static_cast<size_t>(runtime_->info().memory)), held.empty() ? "" : absl::StrCat(": ", held),
                   " (", why.message(), "); a smaller data.batch_size, or another device, has room"));
}

DeviceMemory::Statistics DeviceMemory::statistics() const {
  MutexLock lock(&mu_);
  Statistics s{
      .in_use = in_use_, .most_in_use = most_in_use_, .kept = kept_bytes_, .pinned = pinned_, .buffers = buffers_};
  for (const auto& [name, held] : by_owner_) s.owners.push_back({.owner = name, .bytes = held});
  std::sort(s.owners.begin(), s.owners.end(), [](const Use& a, const Use& b) { return a.bytes > b.bytes; });
  return s;
}

}  // namespace weir
