// Reads a payload in pieces from its beginning to its end and computes its checksum in the same pass: each piece is
// read from memory once. A caller that uses bytes before checking the checksum must be able to discard them.
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
  // Borrows the slices. Pass `checksum` for a payload that declares its own checksum; without it Checksum must not be
  // called.
  explicit PayloadReader(const Slices& slices, bool checksum = true);

  size_t left() const { return left_; }

  // Copies the next `size` bytes, at most left(), to `out`; skips them if `out` is null.
  void Read(void* out, size_t size);
  void Skip(size_t size) { Read(nullptr, size); }

  // Copies the next `n` rows of `row_bytes` each; row i goes to to(i).
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

  // Returns the checksum of the whole payload; reads the rest of it if necessary.
  uint64_t Checksum();

 private:
  // Rows ahead whose cache lines are prefetched: destinations are scattered.
  static constexpr size_t kPrefetch = 24;

  // Adds the bytes of the current slice up to `end`, and some more, to the checksum.
  void Sum(size_t end);
  // Advances to the slice that has the next byte, which must exist.
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
