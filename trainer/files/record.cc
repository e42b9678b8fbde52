#include "trainer/files/record.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "glog/logging.h"

namespace weir {

char* RecordPool::Take(size_t bytes) {
  if (bytes > kLargest) return new char[bytes];
  const size_t grains = (bytes + kGrain - 1) / kGrain;
  const size_t size = grains * kGrain;
  std::vector<char*>& free = free_[grains];
  if (!free.empty()) {
    char* const taken = free.back();
    free.pop_back();
    if (free.size() >= kAhead) {
      const char* const later = free[free.size() - kAhead];
      for (size_t at = 0; at < size; at += 64) __builtin_prefetch(later + at, 1);
    }
    return taken;
  }
  if (left_ < size) AddChunk();
  left_ -= size;
  return chunks_.back().get() + left_;
}

void RecordPool::AddChunk() {
  chunk_ = chunk_ == 0 ? kFirstChunk : std::min(2 * chunk_, kPage);
  char* const chunk = static_cast<char*>(std::aligned_alloc(chunk_, chunk_));
  CHECK(chunk != nullptr) << chunk_;
  // Records are read in random order: with large pages the machine finds them without a search of its own. A wish only.
  if (chunk_ == kPage) (void)::madvise(chunk, chunk_, MADV_HUGEPAGE);
  chunks_.emplace_back(chunk);
  left_ = chunk_;
}

void RecordPool::Give(char* data, size_t bytes) {
  if (bytes > kLargest) {
    delete[] data;
    return;
  }
  free_[(bytes + kGrain - 1) / kGrain].push_back(data);
}

Record::Record(const Example& example, RecordPool* pool) : owner_(reinterpret_cast<uintptr_t>(pool)) {
  const ExampleRecordSizes sizes = SizesOf(example);
  Take(sizes);
  WriteExampleRecord(example, sizes, data_);
}

Record::Record(const char* data, const ExampleRecordSizes& sizes, RecordPool* pool)
    : owner_(reinterpret_cast<uintptr_t>(pool)) {
  Take(sizes);
  std::memcpy(data_, data, size_);
}

void Record::Take(const ExampleRecordSizes& sizes) {
  bytes_ = sizes.full_bytes;
  size_ = sizes.bytes;
  data_ = owner_ == 0 ? new char[size_] : pool()->Take(size_);
}

Record::~Record() {
  if (data_ == nullptr) return;
  if (owner_ == 0) {
    delete[] data_;
  } else if ((owner_ & kIsBlock) != 0) {
    reinterpret_cast<RecordBlock*>(owner_ & ~kIsBlock)->Leave();
  } else {
    pool()->Give(data_, size_);
  }
}

}  // namespace weir
