// Memory of tables: large pieces, on huge pages where the system has them. A table's rows are read at random, and with
// pages of 4 KiB every other access would also miss the address cache.
#ifndef WEIR_PSERVER_TABLES_ROW_MEMORY_H_
#define WEIR_PSERVER_TABLES_ROW_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

// Allocator of pieces of one size, cut from slabs that grow with the number taken: a small table stays small, and of a
// large one less than a hundredth is unused. Pieces start at multiples of 64 bytes as far as their size allows and are
// not zeroed. Thread-safe.
class ChunkMemory {
 public:
  explicit ChunkMemory(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  ~ChunkMemory() { Clear(); }
  ChunkMemory(const ChunkMemory&) = delete;
  ChunkMemory& operator=(const ChunkMemory&) = delete;

  char* Take();
  // Returns a piece for reuse by the next Take.
  void Give(char* chunk);
  // Frees all pieces. No piece may still be in use.
  void Clear();
  // Returns the memory in use, not the address space.
  size_t bytes() const;

 private:
  const size_t chunk_bytes_;
  mutable Mutex mu_;
  std::vector<std::pair<char*, size_t>> slabs_ ABSL_GUARDED_BY(mu_);  // with their sizes in bytes
  size_t total_ ABSL_GUARDED_BY(mu_) = 0;
  char* next_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;  // unused chunks from next_ on
  std::vector<char*> given_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_MEMORY_H_
