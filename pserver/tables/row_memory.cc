#include "pserver/tables/row_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>

#include "glog/logging.h"

namespace weir {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Allocates large pieces directly from the system: they are returned whole, where a heap would keep holes.
char* Allocate(size_t bytes) {
  if (bytes < kHugePage) return static_cast<char*>(::operator new(bytes, std::align_val_t(64)));
  const size_t mapped = RoundUp(bytes, 4096) + kHugePage;
  void* const all = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (all == MAP_FAILED) throw std::bad_alloc();
  char* const begin = static_cast<char*>(all);
  char* const data =
      begin + (RoundUp(reinterpret_cast<uintptr_t>(begin), kHugePage) - reinterpret_cast<uintptr_t>(begin));
  char* const end = data + RoundUp(bytes, 4096);
  if (data > begin) CHECK_EQ(munmap(begin, static_cast<size_t>(data - begin)), 0);
  if (begin + mapped > end) CHECK_EQ(munmap(end, static_cast<size_t>(begin + mapped - end)), 0);
  // Only advice: without huge pages the memory works as well, just slower. A last page that is not full
  // stays small.
  (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void Free(char* data, size_t bytes) {
  if (bytes < kHugePage) return ::operator delete(data, std::align_val_t(64));
  CHECK_EQ(munmap(data, RoundUp(bytes, 4096)), 0);
}

}  // namespace

char* ChunkMemory::Take() {
  MutexLock lock(&mu_);
  if (!given_.empty()) {
    char* const chunk = given_.back();
    given_.pop_back();
    return chunk;
  }
  if (left_ == 0) {
    // Takes an eighth of the present size; from 2 MiB on half of it, at most 1 GiB, which only reserves addresses:
    // pages become memory when they are used, a huge page at a time.
    size_t wanted = std::min(total_ / 8, kHugePage / 2);
    if (total_ >= kHugePage) wanted = RoundUp(std::min(total_ / 2, size_t{1} << 30), kHugePage);
    const size_t chunks = std::max<size_t>(1, wanted / chunk_bytes_);
    const size_t bytes = std::max(wanted, chunks * chunk_bytes_);
    next_ = Allocate(bytes);
    left_ = chunks;
    slabs_.emplace_back(next_, bytes);
    total_ += bytes;
  }
  char* const chunk = next_;
  next_ += chunk_bytes_;
  --left_;
  return chunk;
}

void ChunkMemory::Give(char* chunk) {
  MutexLock lock(&mu_);
  given_.push_back(chunk);
}

void ChunkMemory::Clear() {
  MutexLock lock(&mu_);
  for (const auto& [data, bytes] : slabs_) Free(data, bytes);
  slabs_.clear();
  given_.clear();
  total_ = left_ = 0;
}

size_t ChunkMemory::bytes() const {
  MutexLock lock(&mu_);
  if (slabs_.empty()) return 0;
  // The last slab counts as far as it is in use, rounded up to huge pages if it has them.
  const auto& [data, bytes] = slabs_.back();
  const size_t used = static_cast<size_t>(next_ - data);
  return total_ - bytes + (bytes < kHugePage ? bytes : std::min(bytes, RoundUp(used, kHugePage)));
}

}  // namespace weir
