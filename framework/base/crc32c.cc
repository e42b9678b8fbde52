#include "framework/base/crc32c.h"

#include <nmmintrin.h>

#include <array>
#include <cstring>

namespace weir {
namespace {

// Remainders of all bytes; the polynomial's bits stand in reverse order.
constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? rest >> 1 ^ 0x82f63b78u : rest >> 1;
    table[byte] = rest;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

__attribute__((target("sse4.2"))) uint32_t Crc32cSse42(const void* data, size_t size) {
  const char* p = static_cast<const char*>(data);
  uint64_t crc = ~uint32_t{0};
  for (; size >= 8; size -= 8, p += 8) {
    uint64_t word;
    std::memcpy(&word, p, sizeof(word));
    crc = _mm_crc32_u64(crc, word);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; --size, ++p) rest = _mm_crc32_u8(rest, static_cast<unsigned char>(*p));
  return ~rest;
}

}  // namespace

uint32_t Crc32cPlainly(const void* data, size_t size) {
  const auto* p = static_cast<const unsigned char*>(data);
  uint32_t crc = ~uint32_t{0};
  for (; size > 0; --size, ++p) crc = crc >> 8 ^ kTable[(crc ^ *p) & 0xff];
  return ~crc;
}

uint32_t Crc32c(const void* data, size_t size) {
  static const bool has = __builtin_cpu_supports("sse4.2");
  return has ? Crc32cSse42(data, size) : Crc32cPlainly(data, size);
}

}  // namespace weir
