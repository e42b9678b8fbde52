// CRC-32C (Castagnoli), the checksum of TFRecord files.
#ifndef WEIR_FRAMEWORK_BASE_CRC32C_H_
#define WEIR_FRAMEWORK_BASE_CRC32C_H_

#include <cstddef>
#include <cstdint>

namespace weir {

// Returns the checksum of the bytes; "123456789" has 0xe3069283. Uses the processor's instruction where it has one.
uint32_t Crc32c(const void* data, size_t size);
// Returns the same, computed without that instruction.
uint32_t Crc32cPlainly(const void* data, size_t size);

// Returns the checksum as TFRecord files hold it. A checksum of bytes that hold checksums would be weak: the format
// turns and shifts it.
inline uint32_t MaskedCrc32c(const void* data, size_t size) {
  const uint32_t crc = Crc32c(data, size);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_CRC32C_H_
