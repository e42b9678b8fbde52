// Any bytes, cut anywhere, as a frame. What is decoded encodes again to something that decodes alike.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "framework/wire/frame.h"
#include "framework/wire/payload_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  if (size == 0) return 0;
  const size_t piece = 1 + data[0];
  const char* const bytes = reinterpret_cast<const char*>(data + 1);
  Slices slices;
  for (size_t at = 0; at < size - 1; at += piece)
    slices.push_back(Slice::Borrow(bytes + at, std::min(piece, size - 1 - at)));
  const auto frame = DecodeFrame(slices);
  if (!frame.ok()) return 0;
  BufferPool pool;
  uint64_t checksum = 0;
  const Slice whole = Contiguous(frame->payload, &pool, &checksum);
  PayloadReader reader(frame->payload);
  if (whole.size != reader.left()) std::abort();
  reader.ReadRows(reader.left() / 4, 4, [](size_t) {
    static char row[4];
    return row;
  });
  if (reader.Checksum() != checksum) std::abort();
  const auto again = DecodeFrame(EncodeFrame(frame->header, frame->payload));
  if (!again.ok() || again->header != frame->header || Flatten(again->payload) != Flatten(frame->payload)) std::abort();
  return 0;
}
