// Memory of rows of one size, by number. Not thread-safe: a stripe's lock is held around it.
//
// Rows lie in chunks and never move while they exist. The place of a freed row is given again.
#ifndef WEIR_PSERVER_TABLES_NUMBERED_ROWS_H_
#define WEIR_PSERVER_TABLES_NUMBERED_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "glog/logging.h"
#include "pserver/tables/row_memory.h"

namespace weir {

// Returns log2 of the rows per chunk. A chunk has about 64 KiB, so that chunks are few and a small table stays small.
inline int ChunkLog2(int64_t row_bytes) {
  int log2 = 0;
  while (log2 < 20 && (row_bytes << (log2 + 1)) <= 64 << 10) ++log2;
  return log2;
}

class NumberedRows {
 public:
  // `chunks`, of row_bytes << ChunkLog2(row_bytes) bytes, are borrowed. Requires: called once, before everything else;
  // row_bytes >= 4.
  void Init(ChunkMemory* chunks, int64_t row_bytes) {
    CHECK_GE(row_bytes, static_cast<int64_t>(sizeof(first_free_)));
    chunks_ = chunks;
    row_bytes_ = row_bytes;
    chunk_log2_ = ChunkLog2(row_bytes);
  }

  __attribute__((always_inline)) char* At(uint64_t number) const {
    return chunk_of_[number >> chunk_log2_] +
           (number & ((uint64_t{1} << chunk_log2_) - 1)) * static_cast<uint64_t>(row_bytes_);
  }
  // Number of rows.
  uint64_t size() const { return end_ - free_; }
  // Returns a number above that of each row that Add can give next.
  uint64_t end_after_add() const { return free_ > 0 ? end_ : end_ + 1; }
  int64_t row_bytes() const { return row_bytes_; }
  // Returns the memory in use, except chunks.
  size_t bytes() const { return chunk_of_.capacity() * sizeof(char*); }

  // Returns the number of a new row, which is uninitialized.
  uint64_t Add() {
    if (free_ > 0) {
      const uint64_t number = first_free_ - 1;
      std::memcpy(&first_free_, At(number), sizeof(first_free_));
      --free_;
      return number;
    }
    if (end_ >> chunk_log2_ == chunk_of_.size()) chunk_of_.push_back(chunks_->Take());
    return end_++;
  }
  void Free(uint64_t number) {
    std::memcpy(At(number), &first_free_, sizeof(first_free_));
    first_free_ = static_cast<uint32_t>(number + 1);
    ++free_;
  }
  // Forgets all rows. Requires: the caller clears their chunks.
  void Clear() {
    chunk_of_.clear();
    end_ = free_ = first_free_ = 0;
  }

 private:
  ChunkMemory* chunks_ = nullptr;
  int64_t row_bytes_ = 0;
  int chunk_log2_ = 0;
  std::vector<char*> chunk_of_;
  uint64_t end_ = 0;  // numbers given so far are below it
  // Numbers below end_ without a row. Each free place holds the number of the next one plus 1; 0 at the end.
  uint64_t free_ = 0;
  uint32_t first_free_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_NUMBERED_ROWS_H_
