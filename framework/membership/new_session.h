// Draws numbers that prove who a caller is.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_NEW_SESSION_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_NEW_SESSION_H_

#include <cstdint>
#include <random>

namespace weir {

// Returns a number that cannot be derived from names; never 0.
inline uint64_t NewSession() {
  std::random_device random;
  return (uint64_t{random()} << 32 | random()) | 1;
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_NEW_SESSION_H_
