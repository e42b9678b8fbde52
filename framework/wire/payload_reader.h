// Reads a payload that lies in pieces from its beginning to its end, and sums it up on the way: each piece of it is
// read from memory once. Who reads ahead of the verdict must be able to throw away what was read.
#ifndef WEIR_FRAMEWORK_WIRE_PAYLOAD_READER_H_
#define WEIR_FRAMEWORK_WIRE_PAYLOAD_READER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "framework/wire/checksum.h"
#include "framework/wire/slices.h"

namespace weir {

class PayloadReader {
 public:
  // Borrows the slices.
  // checksum: of a payload that says its own; without it Checksum is not to be called.
  explicit PayloadReader(const Slices& slices, bool checksum = true);

  size_t left() const { return left_; }

  // The next `size` bytes, at most left().
  void Read(void* out, size_t size);
  void Skip(size_t size) { Read(nullptr, size); }

  // The next `n` rows of `row_bytes` each; row i goes to to(i).
  template <typename To>
  void ReadRows(size_t n, size_t row_bytes, const To& to) {
    switch (row_bytes) {  // copies whose length the compiler knows, for the usual widths
      case 4:
        return RowsOf<4>(n, row_bytes, to);
      case 16:
        return RowsOf<16>(n, row_bytes, to);
      case 32:
        return RowsOf<32>(n, row_bytes, to);
      case 64:
        return RowsOf<64>(n, row_bytes, to);
      case 128:
        return RowsOf<128>(n, row_bytes, to);
      default:
        return RowsOf<0>(n, row_bytes, to);
    }
  }

  // Of the whole payload; what has not been read is, for this alone.
  uint64_t Checksum();

 private:
  // Rows are written anywhere: their lines are asked for so many rows ahead.
  static constexpr size_t kPrefetch = 24;

  // Sums up the bytes of the current slice up to `end` of it, and some more.
  void Sum(size_t end);
  // Goes to the slice that has the next byte; there is one.
  void Settle();

  template <size_t kBytes, typename To>
  void RowsOf(size_t n, size_t row_bytes, const To& to) {
    if constexpr (kBytes != 0) row_bytes = kBytes;
    for (size_t i = 0; i < n;) {
      Settle();
      const Slice& slice = slices_[index_];
      const size_t whole = (slice.size - at_) / row_bytes;
      if (whole == 0) {
        Read(to(i++), row_bytes);
        continue;
      }
      for (const size_t end = i + (whole < n - i ? whole : n - i); i < end; ++i) {
        if (at_ + row_bytes > summed_) Sum(at_ + row_bytes);
        if (i + kPrefetch < n) __builtin_prefetch(to(i + kPrefetch), 1);
        std::memcpy(to(i), slice.data + at_, row_bytes);
        at_ += row_bytes;
        left_ -= row_bytes;
      }
    }
  }

  const Slices& slices_;
  const bool checksum_;
  size_t index_ = 0;
  size_t at_ = 0;      // in slice index_
  size_t summed_ = 0;  // likewise
  size_t left_;
  Checksummer sum_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_PAYLOAD_READER_H_
