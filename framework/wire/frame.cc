#include "framework/wire/frame.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/wire/checksum.h"
#include "glog/logging.h"

namespace weir {

namespace {

// Wire types of protobuf.
enum { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
constexpr uint8_t kHeaderTag = 1 << 3 | kBytes;
constexpr uint8_t kPaddingTag = 2 << 3 | kBytes;
constexpr uint8_t kPayloadTag = 3 << 3 | kBytes;

void AppendVarint(uint64_t value, std::string* out) {
  while (value >= 0x80) {
    out->push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out->push_back(static_cast<char>(value));
}

size_t VarintSize(uint64_t value) {
  size_t size = 1;
  while (value >= 0x80) {
    value >>= 7;
    ++size;
  }
  return size;
}

// Reads through slices as if they were one array.
class Reader {
 public:
  explicit Reader(const Slices& bytes) : bytes_(bytes), left_(TotalSize(bytes)) {}

  size_t left() const { return left_; }

  absl::StatusOr<uint64_t> Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      if (left_ == 0) return Cut();
      const uint8_t byte = static_cast<uint8_t>(Next());
      // The tenth byte has room for one bit.
      if (shift == 63 && byte > 1) break;
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return absl::InvalidArgumentError("frame: a number has more than 64 bits");
  }

  // Every other protobuf library refuses tags and lengths of more than five bytes, and tags of more than 32 bits.
  absl::StatusOr<uint64_t> Tag() {
    ASSIGN_OR_RETURN(const Number tag, Numbered());
    if (tag.bytes > 5 || tag.value > 0xffffffff)
      return absl::InvalidArgumentError("frame: a field tag has more than 32 bits");
    return tag.value;
  }
  absl::StatusOr<uint64_t> Length() {
    ASSIGN_OR_RETURN(const Number length, Numbered());
    if (length.value > left_) return Cut();
    if (length.bytes > 5) return absl::InvalidArgumentError("frame: a length takes more than five bytes");
    return length.value;
  }

  // The next `size` bytes as pieces of the input; nullptr skips them.
  absl::Status Take(uint64_t size, Slices* out) {
    if (size > left_) return Cut();
    if (out != nullptr) out->clear();
    left_ -= size;
    while (size > 0) {
      SkipEmpty();
      const Slice& slice = bytes_[index_];
      const size_t here = std::min<uint64_t>(size, slice.size - at_);
      if (out != nullptr) out->push_back({slice.data + at_, here, slice.owner});
      at_ += here;
      size -= here;
    }
    return absl::OkStatus();
  }

 private:
  struct Number {
    uint64_t value;
    size_t bytes;
  };
  absl::StatusOr<Number> Numbered() {
    const size_t before = left_;
    ASSIGN_OR_RETURN(const uint64_t value, Varint());
    return Number{value, before - left_};
  }
  void SkipEmpty() {
    while (at_ == bytes_[index_].size) {
      ++index_;
      at_ = 0;
    }
  }
  char Next() {
    SkipEmpty();
    --left_;
    return bytes_[index_].data[at_++];
  }
  absl::Status Cut() const {
    return absl::InvalidArgumentError(
        absl::StrCat("frame: cut short, a field runs past the end of ", TotalSize(bytes_), " bytes"));
  }

  const Slices& bytes_;
  size_t index_ = 0;
  size_t at_ = 0;
  size_t left_;
};

// Skips one unknown field. Groups are not skipped: nobody writes them.
absl::Status SkipField(uint64_t tag, Reader* reader) {
  switch (tag & 7) {
    case kVarint:
      return reader->Varint().status();
    case kFixed64:
      return reader->Take(8, nullptr);
    case kFixed32:
      return reader->Take(4, nullptr);
    case kBytes: {
      ASSIGN_OR_RETURN(const uint64_t size, reader->Length());
      return reader->Take(size, nullptr);
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("frame: field tag ", tag, " has no wire type that a frame may hold"));
  }
}

}  // namespace

size_t TotalSize(const Slices& slices) {
  size_t size = 0;
  for (const Slice& slice : slices) size += slice.size;
  return size;
}

Slices EncodeFrame(std::string_view header, const Slices& payload) {
  const size_t payload_size = TotalSize(payload);
  std::string prefix;
  prefix.reserve(header.size() + 2 * kAlignment + 32);
  prefix.push_back(static_cast<char>(kHeaderTag));
  AppendVarint(header.size(), &prefix);
  prefix.append(header.data(), header.size());
  if (payload_size > 0) {
    // Two bytes for tag and length of the padding, which is below 64 and so has a length of one byte.
    const size_t fixed = prefix.size() + 2 + 1 + VarintSize(payload_size);
    const size_t padding = AlignUp(fixed) - fixed;
    prefix.push_back(static_cast<char>(kPaddingTag));
    AppendVarint(padding, &prefix);
    prefix.append(padding, '\0');
    prefix.push_back(static_cast<char>(kPayloadTag));
    AppendVarint(payload_size, &prefix);
    CHECK_EQ(prefix.size() % kAlignment, 0u);
  }
  CHECK_LE(prefix.size() + payload_size, kMaxMessageBytes) << "a transfer was not cut into messages";
  Slices frame;
  frame.push_back(Slice::Own(std::move(prefix)));
  for (const Slice& slice : payload) {
    if (slice.size > 0) frame.push_back(slice);
  }
  return frame;
}

absl::StatusOr<RawFrame> OpenFrame(const Slices& bytes) {
  if (TotalSize(bytes) > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: ", TotalSize(bytes), " bytes; a message has at most ",
                                                   kMaxMessageBytes, ", larger transfers are several calls"));
  }
  Reader reader(bytes);
  RawFrame frame;
  while (reader.left() > 0) {
    ASSIGN_OR_RETURN(const uint64_t tag, reader.Tag());
    if (tag >> 3 == 0) return absl::InvalidArgumentError("frame: field number 0");
    if (tag != kHeaderTag && tag != kPayloadTag) {
      RETURN_IF_ERROR(SkipField(tag, &reader));
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t size, reader.Length());
    RETURN_IF_ERROR(reader.Take(size, tag == kHeaderTag ? &frame.header : &frame.payload));
  }
  if (TotalSize(frame.header) > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("frame: a header of ", TotalSize(frame.header),
                                                   " bytes; it has at most ", kMaxHeaderBytes,
                                                   ", what is large goes into the payload"));
  }
  return frame;
}

absl::StatusOr<Frame> DecodeFrame(const Slices& bytes) {
  ASSIGN_OR_RETURN(RawFrame raw, OpenFrame(bytes));
  return Frame{Flatten(raw.header), std::move(raw.payload)};
}

absl::StatusOr<std::string> ReadField(const Slices& message, uint32_t number, size_t most) {
  Reader reader(message);
  std::string field;
  while (reader.left() > 0) {
    ASSIGN_OR_RETURN(const uint64_t tag, reader.Tag());
    if (tag >> 3 == 0) return absl::InvalidArgumentError("field number 0");
    if (tag != (uint64_t{number} << 3 | kBytes)) {
      RETURN_IF_ERROR(SkipField(tag, &reader));
      continue;
    }
    ASSIGN_OR_RETURN(const uint64_t size, reader.Length());
    if (size > most - field.size()) {
      return absl::InvalidArgumentError(absl::StrCat("field ", number, " has more than ", most, " bytes"));
    }
    Slices pieces;
    RETURN_IF_ERROR(reader.Take(size, &pieces));
    for (const Slice& piece : pieces) field.append(piece.data, piece.size);
  }
  return field;
}

namespace {

// Read into the first-level cache once for both.
constexpr size_t kCopyAndSum = size_t{16} << 10;

// The one piece that may stay where it is, or null.
const Slice* OnlyPiece(const Slices& slices, size_t size) {
  for (const Slice& slice : slices) {
    // One piece holds everything when the others are empty.
    if (slice.size != size) continue;
    if (slice.owner != nullptr && reinterpret_cast<uintptr_t>(slice.data) % 8 == 0) return &slice;
  }
  return nullptr;
}

}  // namespace

Slice Contiguous(const Slices& slices, BufferPool* pool) {
  const size_t size = TotalSize(slices);
  if (size == 0) return {};
  const Slice* const only = OnlyPiece(slices, size);
  return only != nullptr ? *only : CopyOf(slices, pool);
}

Slice CopyOf(const Slices& slices, BufferPool* pool) {
  const size_t size = TotalSize(slices);
  if (size == 0) return {};
  const WireBuffer buffer = pool->Get(size);
  size_t at = 0;
  for (const Slice& slice : slices) {
    if (slice.size > 0) std::memcpy(buffer.data + at, slice.data, slice.size);
    at += slice.size;
  }
  return buffer.Piece(0, size);
}

Slice Contiguous(const Slices& slices, BufferPool* pool, uint64_t* checksum) {
  const size_t size = TotalSize(slices);
  if (size == 0 || OnlyPiece(slices, size) != nullptr) {
    *checksum = Checksum(slices);
    return Contiguous(slices, pool);
  }
  const WireBuffer buffer = pool->Get(size);
  Checksummer sum;
  char* to = buffer.data;
  for (const Slice& slice : slices) {
    for (size_t at = 0; at < slice.size; at += kCopyAndSum) {
      const size_t n = std::min(kCopyAndSum, slice.size - at);
      std::memcpy(to, slice.data + at, n);
      sum.Add(to, n);
      to += n;
    }
  }
  *checksum = sum.Value();
  return buffer.Piece(0, size);
}

std::string Flatten(const Slices& slices) {
  std::string bytes;
  bytes.reserve(TotalSize(slices));
  for (const Slice& slice : slices) bytes.append(slice.data, slice.size);
  return bytes;
}

}  // namespace weir
