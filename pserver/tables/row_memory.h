// Memory of tables: large pieces, on huge pages where the system has them (a table's rows are read at random, and with
// pages of 4 KiB every other access would miss the address cache as well).
#ifndef WEIR_PSERVER_TABLES_ROW_MEMORY_H_
#define WEIR_PSERVER_TABLES_ROW_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "framework/base/mutex.h"

namespace weir {

// Pieces of one size, cut from slabs that grow with what has been taken: a small table stays small, and of a large one
// less than a hundredth is not in use. Pieces start at multiples of 64 bytes as far as their size allows and are not
// zeroed. Thread-safe.
class ChunkMemory {
 public:
  explicit ChunkMemory(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  ~ChunkMemory() { Clear(); }
  ChunkMemory(const ChunkMemory&) = delete;
  ChunkMemory& operator=(const ChunkMemory&) = delete;

  char* Take();
  // For the next Take.
  void Give(char* chunk);
  // Nobody uses a piece any more.
  void Clear();
  // Memory, not address space.
  size_t bytes() const;

 private:
  const size_t chunk_bytes_;
  mutable Mutex mu_;
  std::vector<std::pair<char*, size_t>> slabs_ ABSL_GUARDED_BY(mu_);  // with their bytes
  size_t total_ ABSL_GUARDED_BY(mu_) = 0;
  char* next_ ABSL_GUARDED_BY(mu_) = nullptr;
  size_t left_ ABSL_GUARDED_BY(mu_) = 0;  // chunks behind next_
  std::vector<char*> given_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_MEMORY_H_
