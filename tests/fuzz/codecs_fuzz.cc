// Any bytes as values in any format: both forms agree on what can be told apart, and nothing is read or written beside
// them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "framework/wire/codecs.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  if (size < 2) return 0;
  const v1::WireFormat format = static_cast<v1::WireFormat>(data[0] % 4);
  const size_t group = 1 + data[1];
  // Decode as many floats as the bytes hold.
  size_t n = (size - 2) / 4 * 4;
  while (n > 0 && EncodedBytes(format, n, group) > size - 2) --n;
  std::vector<uint32_t> bytes((EncodedBytes(format, n, group) + 3) / 4);
  std::copy_n(data + 2, EncodedBytes(format, n, group), reinterpret_cast<uint8_t*>(bytes.data()));
  const char* const in = reinterpret_cast<const char*>(bytes.data());
  std::vector<float> fast(n), plain(n);
  Decode(format, in, n, group, fast.data());
  DecodePlain(format, in, n, group, plain.data());
  for (size_t i = 0; i < n; ++i) {
    if (std::isnan(fast[i]) && std::isnan(plain[i])) continue;
    if (std::bit_cast<uint32_t>(fast[i]) != std::bit_cast<uint32_t>(plain[i])) std::abort();
  }
  std::vector<char> encoded(EncodedBytes(format, n, group));
  Encode(format, fast.data(), n, group, encoded.data());
  return 0;
}
