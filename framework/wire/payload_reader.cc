#include "framework/wire/payload_reader.h"

#include <algorithm>

#include "framework/wire/frame.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Bytes that wait in the first-level cache between being summed up and being copied.
constexpr size_t kAhead = size_t{8} << 10;

}  // namespace

PayloadReader::PayloadReader(const Slices& slices, bool checksum)
    : slices_(slices), checksum_(checksum), left_(TotalSize(slices)) {}

void PayloadReader::Sum(size_t end) {
  const Slice& slice = slices_[index_];
  if (!checksum_) {
    summed_ = slice.size;
    return;
  }
  end = std::min(slice.size, std::max(end, summed_ + kAhead));
  sum_.Add(slice.data + summed_, end - summed_);
  summed_ = end;
}

void PayloadReader::Settle() {
  while (at_ == slices_[index_].size) {
    ++index_;
    at_ = summed_ = 0;
  }
}

void PayloadReader::Read(void* out, size_t size) {
  CHECK_LE(size, left_);
  char* to = static_cast<char*>(out);
  while (size > 0) {
    Settle();
    const Slice& slice = slices_[index_];
    const size_t here = std::min({size, slice.size - at_, kAhead});
    if (at_ + here > summed_) Sum(at_ + here);
    if (to != nullptr) {
      std::memcpy(to, slice.data + at_, here);
      to += here;
    }
    size -= here;
    at_ += here;
    left_ -= here;
  }
}

uint64_t PayloadReader::Checksum() {
  CHECK(checksum_);
  if (left_ > 0) Skip(left_);
  return sum_.Value();
}

}  // namespace weir
