// Computes the checksums of framework/wire/checksum.h with AVX2: equal values in two thirds of the time.
#ifndef WEIR_FRAMEWORK_WIRE_CHECKSUM_AVX2_H_
#define WEIR_FRAMEWORK_WIRE_CHECKSUM_AVX2_H_

#include <cstddef>
#include <cstdint>

namespace weir {

uint64_t ChecksumAvx2(const void* data, size_t size);
// `state`: an XXH3_state_t.
void UpdateChecksumAvx2(void* state, const void* data, size_t size);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_CHECKSUM_AVX2_H_
