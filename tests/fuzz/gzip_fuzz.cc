// Any bytes as a gzip file, read by the library that trainers read with, and by zlib. The first byte says how many
// bytes are asked for at once. Both give the same bytes or both refuse them.
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "trainer/files/open_bytes.h"

namespace weir {
namespace {

constexpr size_t kMost = 1 << 20;  // bytes of a text; a few bytes may expand to gigabytes

// Returns the text, up to kMost bytes of it; none for bytes that are no gzip file.
std::optional<std::string> ByZlib(std::string packed) {
  z_stream zlib = {};
  if (inflateInit2(&zlib, 16 + MAX_WBITS) != Z_OK) std::abort();
  zlib.next_in = reinterpret_cast<Bytef*>(packed.data());
  zlib.avail_in = static_cast<uInt>(packed.size());
  std::string text(kMost, '\0');
  zlib.next_out = reinterpret_cast<Bytef*>(text.data());
  zlib.avail_out = static_cast<uInt>(text.size());
  int result = Z_OK;
  while (result == Z_OK && zlib.avail_out > 0) {
    result = inflate(&zlib, Z_NO_FLUSH);
    if (result == Z_STREAM_END && zlib.avail_in > 0) result = inflateReset(&zlib);
  }
  text.resize(kMost - zlib.avail_out);
  inflateEnd(&zlib);
  if (result != Z_STREAM_END && text.size() < kMost) return std::nullopt;
  return text;
}

// Clears the bits of headers that no version of the format has used: zlib refuses them, the other passes over them.
void ClearReservedFlags(std::string* packed) {
  for (size_t at = packed->find("\x1f\x8b"); at != std::string::npos; at = packed->find("\x1f\x8b", at + 1)) {
    if (at + 3 < packed->size()) (*packed)[at + 3] &= 0x1f;
  }
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  static const ScratchDirectory scratch("gzip");
  FuzzInput input(data, size);
  const size_t at_once = input.Byte() + size_t{1};
  std::string packed = input.Rest();
  if (packed.empty()) return 0;
  ClearReservedFlags(&packed);
  const std::optional<std::string> expected = ByZlib(packed);
  const DataFile file = {.path = scratch.Write("data", packed),
                         .name = "data",
                         .bytes = static_cast<int64_t>(packed.size()),
                         .compression = Compression::kGzip};
  const auto source = OpenBytes(file, 0);
  if (!source.ok()) std::abort();
  std::string text;
  std::vector<char> block(at_once);
  absl::StatusOr<size_t> got = 1;
  while (got.ok() && *got > 0 && text.size() < kMost) {
    got = (*source)->Read(block.data(), block.size());
    if (got.ok()) text.append(block.data(), *got);
  }
  const bool whole = text.size() < kMost;
  text.resize(std::min(text.size(), kMost));
  if (expected.has_value() != got.ok() && (whole || (expected.has_value() && expected->size() < kMost))) std::abort();
  if (expected.has_value() && got.ok() && text != *expected) std::abort();
  return 0;
}
