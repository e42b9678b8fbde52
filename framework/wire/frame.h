// Encodes and decodes frames, weir.v1.Frame messages, by hand so that no payload byte is copied.
//
//   field 1  header    a small serialized message
//   field 2  padding   zeros, so that ...
//   field 3  payload   ... starts at a multiple of 64 bytes from the first byte of the frame
//
// Any protobuf library can read and write these bytes. A frame without padding is accepted and only costs the reader a
// copy. The bytes of a frame come from outside: decoding never trusts them.
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

// Returns the smallest multiple of kAlignment that is not below n.
inline constexpr size_t AlignUp(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the sum of the sizes.
size_t TotalSize(const Slices& slices);

// Encodes a frame. Copies the header, but not the payload. An empty payload leaves padding and payload out. CHECK-fails
// on a frame larger than kMaxMessageBytes: callers cut transfers first.
Slices EncodeFrame(std::string_view header, const Slices& payload);

// Largest header: some 50,000 items. A message may take forty times its encoded size in memory.
inline constexpr size_t kMaxHeaderBytes = size_t{4} << 20;

// Frame whose header has not been copied.
struct RawFrame {
  Slices header, payload;
};
// Decodes a frame, with the errors of DecodeFrame, without copying anything.
absl::StatusOr<RawFrame> OpenFrame(const Slices& bytes);

// Returns field `number`, bytes or a message, of a serialized message, skipping its other fields; allocates only the
// result. Several occurrences are concatenated, which merges messages; "" if there is none. InvalidArgument if the
// bytes are not a message or the field has more than `most` bytes.
absl::StatusOr<std::string> ReadField(const Slices& message, uint32_t number, size_t most);

struct Frame {
  std::string header;
  // Pieces of the input, in order; they keep it alive as the input slices did.
  Slices payload;
};
// Decodes a frame. InvalidArgument if it is larger than kMaxMessageBytes, has a header above kMaxHeaderBytes, is
// truncated, or is not a protobuf message with these fields. Unknown fields are skipped and the last of several values
// of a field counts, as in protobuf.
absl::StatusOr<Frame> DecodeFrame(const Slices& bytes);

// Returns the bytes in one piece whose address is a multiple of 8 (so that ids and floats can be read in place): the
// slice itself if there is one slice, aligned and with an owner; else a copy from `pool`.
Slice Contiguous(const Slices& slices, BufferPool* pool);
// Does as Contiguous, and always copies: the sender of bytes in shared memory can change them after they have been
// checked.
Slice CopyOf(const Slices& slices, BufferPool* pool);
// Does as Contiguous and computes the checksum of the bytes in the same pass.
Slice Contiguous(const Slices& slices, BufferPool* pool, uint64_t* checksum);

// Returns a copy that owns its memory.
std::string Flatten(const Slices& slices);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_FRAME_H_
