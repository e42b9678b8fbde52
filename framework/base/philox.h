// Philox4x32-10: a counter-based random generator. The value at a counter is a pure function of (key, counter), so
// initial values, dropout masks and shuffles do not depend on order, slices or threads. Runs on host and device.
// Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#ifndef WEIR_FRAMEWORK_BASE_PHILOX_H_
#define WEIR_FRAMEWORK_BASE_PHILOX_H_

#include <cstdint>

#ifdef __CUDACC__
#define WEIR_HOST_DEVICE __host__ __device__
#else
#define WEIR_HOST_DEVICE
#endif

namespace weir {

struct PhiloxBlock {
  uint32_t v[4];
};

WEIR_HOST_DEVICE inline PhiloxBlock Philox(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  uint32_t c0 = static_cast<uint32_t>(counter_low), c1 = static_cast<uint32_t>(counter_low >> 32);
  uint32_t c2 = static_cast<uint32_t>(counter_high), c3 = static_cast<uint32_t>(counter_high >> 32);
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0;
    const uint64_t p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return PhiloxBlock{{c0, c1, c2, c3}};
}

// Returns a value uniform in [0, 1): 24 bits, exact in float32.
WEIR_HOST_DEVICE inline float UniformFloat(uint32_t bits) {
  return static_cast<float>(bits >> 8) * (1.0f / 16777216.0f);
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_PHILOX_H_
