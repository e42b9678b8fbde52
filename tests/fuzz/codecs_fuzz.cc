// Any bytes as values in any format: both forms agree on what can be told apart, and nothing is read or written beside
// them.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "framework/tensor/float16.h"
#include "framework/wire/codecs.h"

namespace weir {
namespace {

// The bytes as floats, encoded with exponents; and as exponents and halves. Whatever is finite stays so.
void LookAtExponents(const uint8_t* data, size_t size, size_t group) {
  std::vector<float> in(size / sizeof(float)), out(in.size());
  if (in.empty()) return;
  std::memcpy(in.data(), data, in.size() * sizeof(float));
  std::vector<uint16_t> halves(in.size());
  char* const encoded = reinterpret_cast<char*>(halves.data());
  const std::string exponents = EncodeWithExponents(in.data(), in.size(), group, encoded);
  if (!AreExponents(exponents, in.size(), group)) std::abort();
  DecodeWithExponents(encoded, in.size(), group, exponents, out.data());
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isfinite(in[i]) != std::isfinite(out[i])) std::abort();
  }
  const std::string_view any(reinterpret_cast<const char*>(data), exponents.size());
  if (!AreExponents(any, in.size(), group)) return;
  std::memcpy(halves.data(), data, halves.size() * sizeof(uint16_t));
  DecodeWithExponents(encoded, in.size(), group, any, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(OfFloat16(halves[i])) != std::isfinite(out[i])) std::abort();
  }
}

}  // namespace
}  // namespace weir

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
  LookAtExponents(data + 2, size - 2, group);
  return 0;
}
