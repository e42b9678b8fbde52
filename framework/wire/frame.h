// A frame: one weir.v1.Frame message, encoded and decoded by hand so that no payload byte is copied.
//
//   field 1  header    a small serialized message
//   field 2  padding   zeros, so that ...
//   field 3  payload   ... starts at a multiple of 64 bytes from the first byte of the frame
//
// Any protobuf library reads and writes the same bytes; one that does not pad is understood too, it only costs the
// reader a copy. The bytes of a frame come from outside: decoding never trusts them.
#ifndef WEIR_FRAMEWORK_WIRE_FRAME_H_
#define WEIR_FRAMEWORK_WIRE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/slices.h"

namespace weir {

// Smallest multiple of kAlignment that is not below n.
inline constexpr size_t AlignUp(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// Sum of the sizes.
size_t TotalSize(const Slices& slices);

// The header is copied, the payload is not. An empty payload leaves padding and payload out. CHECK-fails on a frame
// larger than kMaxMessageBytes: the maker cuts transfers before.
Slices EncodeFrame(std::string_view header, const Slices& payload);

// Of a header: some 50,000 items. In memory a message may be forty times as large as its bytes.
inline constexpr size_t kMaxHeaderBytes = size_t{4} << 20;

// A frame whose header lies where it came.
struct RawFrame {
  Slices header, payload;
};
// Decodes like DecodeFrame, without copying anything.
absl::StatusOr<RawFrame> OpenFrame(const Slices& bytes);

// Field `number`, bytes or a message, of a serialized message whose other fields are skipped: nothing is allocated but
// the result. Occurrences stand one behind the other, which makes messages one; "" without any. InvalidArgument: bytes
// that are no message, or more than `most` in the field.
absl::StatusOr<std::string> ReadField(const Slices& message, uint32_t number, size_t most);

struct Frame {
  std::string header;
  // Pieces of the input, in order; they keep it alive as the input slices did.
  Slices payload;
};
// InvalidArgument: larger than kMaxMessageBytes, a header above kMaxHeaderBytes, cut, or not a protobuf message with
// these fields. As in protobuf, unknown fields are skipped and the last of several values of a field counts.
absl::StatusOr<Frame> DecodeFrame(const Slices& bytes);

// The bytes in one piece whose address is a multiple of 8 (so that ids and floats can be read in place): the slice
// itself when it is one, aligned and kept alive by an owner; else a copy from `pool`.
Slice Contiguous(const Slices& slices, BufferPool* pool);
// The same, and the bytes' checksum on the way.
Slice Contiguous(const Slices& slices, BufferPool* pool, uint64_t* checksum);

// A copy that owns its memory.
std::string Flatten(const Slices& slices);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_FRAME_H_
