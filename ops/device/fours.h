// Processes four elements at a time, with one load and one store of 16 bytes.
//
// A functor of ForEach (ops/device/launch.h) that has, beside operator()(i),
//   bool Fours() const                 whether its addresses and sizes allow it
//   void Four(int64_t i) const         elements 4i to 4i + 3
// runs in fours if Fours returns true, and the remaining elements one by one. Each element's arithmetic is equal in
// both cases.
#ifndef WEIR_OPS_DEVICE_FOURS_H_
#define WEIR_OPS_DEVICE_FOURS_H_

#include <cstdint>

#include "framework/base/philox.h"

namespace weir {
namespace device {

struct alignas(16) Float4 {
  float v[4];
};

template <typename... Pointers>
inline bool InFours(Pointers... at) {
  return ((reinterpret_cast<uintptr_t>(at) % sizeof(Float4) == 0) && ...);
}
// Load and store elements [4i, 4i + 4).
WEIR_HOST_DEVICE inline Float4 LoadFour(const float* from, int64_t i) {
  return *reinterpret_cast<const Float4*>(from + 4 * i);
}
WEIR_HOST_DEVICE inline void StoreFour(float* to, int64_t i, const Float4& four) {
  *reinterpret_cast<Float4*>(to + 4 * i) = four;
}

template <typename F>
inline constexpr bool kHasFours = requires(const F& f) {
  f.Fours();
  f.Four(int64_t{0});
};

// Runs f over n elements: n / 4 fours, then the rest.
template <typename F>
struct AsFours {
  int64_t fours;
  F f;
  static int64_t Count(int64_t n) { return n / 4 + n % 4; }
  WEIR_HOST_DEVICE void operator()(int64_t i) const {
    if (i < fours) {
      f.Four(i);
    } else {
      f(4 * fours + (i - fours));
    }
  }
};

}  // namespace device
}  // namespace weir

#endif  // WEIR_OPS_DEVICE_FOURS_H_
