#include "pserver/tables/row_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace weir {

namespace {

constexpr size_t kHugePage = size_t{2} << 20;

char* Allocate(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  char* const data = static_cast<char*>(::operator new(bytes, std::align_val_t(alignment)));
  // Advice only: where it is not taken the memory is as good, just slower.
  if (bytes >= kHugePage) (void)madvise(data, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
  return data;
}

void Free(char* data, size_t bytes) {
  ::operator delete(data, std::align_val_t(bytes >= kHugePage ? kHugePage : 64));
}

}  // namespace

char* ChunkMemory::Take() {
  MutexLock lock(&mu_);
  if (left_ == 0) {
    // A small slab is an eighth of what there is, a large one a huge page.
    const size_t wanted = total_ >= 8 * kHugePage ? kHugePage : std::min(total_ / 8, kHugePage / 2);
    const size_t chunks = std::max<size_t>(1, wanted / chunk_bytes_);
    const size_t bytes = std::max(wanted, chunks * chunk_bytes_);
    next_ = Allocate(bytes);
    left_ = chunks;
    slabs_.push_back(next_);
    slab_bytes_.push_back(bytes);
    total_ += bytes;
  }
  char* const chunk = next_;
  next_ += chunk_bytes_;
  --left_;
  return chunk;
}

void ChunkMemory::Clear() {
  MutexLock lock(&mu_);
  for (size_t i = 0; i < slabs_.size(); ++i) Free(slabs_[i], slab_bytes_[i]);
  slabs_.clear();
  slab_bytes_.clear();
  total_ = left_ = 0;
}

size_t ChunkMemory::bytes() const {
  MutexLock lock(&mu_);
  return total_;
}

void SlotArray::Reset(size_t size) {
  if (data_ != nullptr) Free(reinterpret_cast<char*>(data_), bytes());
  data_ = nullptr;
  size_ = size;
  if (size == 0) return;
  data_ = reinterpret_cast<uint32_t*>(Allocate(bytes()));
  std::memset(data_, 0, bytes());
}

}  // namespace weir
