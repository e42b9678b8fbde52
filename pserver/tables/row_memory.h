// Memory of tables: large pieces, on huge pages where the system has them (a table's rows are read at random, and with pages of
// 4 KiB every other access would miss the address cache as well).
#ifndef WEIR_PSERVER_TABLES_ROW_MEMORY_H_
#define WEIR_PSERVER_TABLES_ROW_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

// Pieces of one size, cut from slabs that grow with what has been taken up to 2 MiB: a small table stays small. Pieces start at
// multiples of 64 bytes as far as their size allows, are not zeroed, and are given back all at once. Thread-safe.
class ChunkMemory {
 public:
  explicit ChunkMemory(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  ~ChunkMemory() { Clear(); }
  ChunkMemory(const ChunkMemory&) = delete;
  ChunkMemory& operator=(const ChunkMemory&) = delete;

  char* Take();
  // Nobody uses a piece any more.
  void Clear();
  size_t bytes() const;

 private:
  const size_t chunk_bytes_;
  mutable Mutex mu_;
  std::vector<char*> slabs_ ABSL_GUARDED_BY(mu_);
  std::vector<size_t> slab_bytes_ ABSL_GUARDED_BY(mu_);
  size_t total_ ABSL_GUARDED_BY(mu_) = 0;
  char* next_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;  // chunks behind next_
};

// An array of zeros. Not thread-safe.
class SlotArray {
 public:
  SlotArray() = default;
  ~SlotArray() { Reset(0); }
  SlotArray(const SlotArray&) = delete;
  SlotArray& operator=(const SlotArray&) = delete;

  // What was there is gone, and its memory is free before the new one is taken.
  void Reset(size_t size);
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(uint32_t); }
  uint32_t& operator[](size_t i) { return data_[i]; }
  uint32_t operator[](size_t i) const { return data_[i]; }

 private:
  uint32_t* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_MEMORY_H_
