// Number of rows of a table on one server, and its limit. Thread-safe.
#ifndef WEIR_PSERVER_TABLES_ROW_COUNT_H_
#define WEIR_PSERVER_TABLES_ROW_COUNT_H_

#include <atomic>
#include <cstdint>

namespace weir {

class RowCount {
 public:
  // `limit`: maximum number of rows; 0 = no limit.
  explicit RowCount(int64_t limit) : limit_(limit) {}

  // Counts a row that is about to be made. Returns false, and counts nothing, at the limit.
  bool Add() {
    if (rows_.fetch_add(1, std::memory_order_relaxed) >= limit_ && limit_ > 0) {
      Remove(1);
      return false;
    }
    return true;
  }
  void Remove(int64_t rows) { rows_.fetch_sub(rows, std::memory_order_relaxed); }

  int64_t rows() const { return rows_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  const int64_t limit_;
  // Atomic: it is only compared with the limit and reported, and orders no other memory.
  std::atomic<int64_t> rows_{0};
};

}  // namespace weir

#endif  // WEIR_PSERVER_TABLES_ROW_COUNT_H_
