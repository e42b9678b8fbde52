// One example in one run of bytes (framework/formats/example_record.h): the unit that shuffling moves.
#ifndef WEIR_TRAINER_FILES_RECORD_H_
#define WEIR_TRAINER_FILES_RECORD_H_

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "framework/formats/example.h"
#include "framework/formats/example_record.h"

namespace weir {

// Memory of records, reused without a search: the records of a stream are many and of few sizes. The pool frees its
// memory on destruction, so it must outlive its records. One thread at a time.
class RecordPool {
 public:
  RecordPool() = default;
  RecordPool(const RecordPool&) = delete;
  RecordPool& operator=(const RecordPool&) = delete;

  char* Take(size_t bytes);
  void Give(char* data, size_t bytes);

 private:
  static constexpr size_t kGrain = 32;      // sizes are multiples of it
  static constexpr size_t kLargest = 4096;  // larger blocks come from the system
  static constexpr size_t kFirstChunk = size_t{1} << 16;
  static constexpr size_t kPage = size_t{1} << 21;  // a large page; chunks double up to it

  struct Free {
    void operator()(char* chunk) const { std::free(chunk); }
  };
  void AddChunk();

  // After a shuffle free blocks are scattered: this many are prefetched into the cache before they are taken.
  static constexpr size_t kAhead = 4;

  std::vector<char*> free_[kLargest / kGrain + 1];  // free blocks, by size
  std::vector<std::unique_ptr<char, Free>> chunks_;
  size_t chunk_ = 0;  // size of the last one
  size_t left_ = 0;   // at its end
};

// Bytes of a file that records borrow. Deletes itself when nothing uses it any more. One thread at a time.
class RecordBlock {
 public:
  // Begins with one use.
  explicit RecordBlock(size_t bytes) : bytes_(std::make_unique_for_overwrite<char[]>(bytes)) {}
  RecordBlock(const RecordBlock&) = delete;
  RecordBlock& operator=(const RecordBlock&) = delete;

  char* bytes() const { return bytes_.get(); }
  bool used_once() const { return users_ == 1; }
  void Use() { ++users_; }
  void Leave() {
    if (--users_ == 0) delete this;
  }

 private:
  ~RecordBlock() = default;

  const std::unique_ptr<char[]> bytes_;
  int64_t users_ = 1;
};

class Record {
 public:
  Record() = default;
  // Copies an example. Without a pool the memory comes from the system.
  explicit Record(const Example& example, RecordPool* pool = nullptr);
  // Copies the bytes of an example that CheckExampleRecord has accepted.
  Record(const char* data, const ExampleRecordSizes& sizes, RecordPool* pool = nullptr);
  // Borrows the bytes from a block. Requires: the block does not change as long as the record uses it.
  Record(char* data, const ExampleRecordSizes& sizes, RecordBlock* block)
      : data_(data),
        owner_(reinterpret_cast<uintptr_t>(block) | kIsBlock),
        bytes_(sizes.full_bytes),
        size_(sizes.bytes) {
    block->Use();
  }
  Record(Record&& other) noexcept { Swap(&other); }
  Record& operator=(Record&& other) noexcept {
    Swap(&other);
    return *this;
  }
  ~Record();

  // Size of the record, a function of the example alone, by which the capacity of a shuffle buffer is counted. Its
  // memory may be less.
  int64_t bytes() const { return bytes_; }
  // `example` must have the sizes of the parser that made the record's example.
  void CopyTo(Example* example) const { ReadExampleRecord(data_, example); }

  using View = ExampleRecordView;
  // Returns a view of the record, valid as long as the record.
  View Look(size_t floats, size_t slots) const { return LookAtExampleRecord(data_, floats, slots); }

  // Prefetches the record into the cache.
  void Prefetch() const {
    for (uint32_t at = 0; at < size_ && at < kPrefetched; at += 64) __builtin_prefetch(data_ + at);
  }

 private:
  static constexpr uint32_t kPrefetched = 512;  // bytes; the hardware prefetches the rest of longer records

  // Set in owner_ of a record that borrows from a block.
  static constexpr uintptr_t kIsBlock = 1;

  void Take(const ExampleRecordSizes& sizes);
  RecordPool* pool() const { return reinterpret_cast<RecordPool*>(owner_); }
  void Swap(Record* other) {
    std::swap(data_, other->data_);
    std::swap(owner_, other->owner_);
    std::swap(bytes_, other->bytes_);
    std::swap(size_, other->size_);
  }

  char* data_ = nullptr;
  uintptr_t owner_ = 0;  // a pool, or a block; 0: the system
  uint32_t bytes_ = 0;
  uint32_t size_ = 0;  // of data_
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_RECORD_H_
