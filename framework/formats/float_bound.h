// Numbers of a job that are compared with floats of the data. A float of the data is the float32 nearest to its text,
// so the number of the job is rounded in the same way: equal texts are then equal, and one that is below stays below or
// becomes equal. Ids are compared as they are.
#ifndef WEIR_FRAMEWORK_FORMATS_FLOAT_BOUND_H_
#define WEIR_FRAMEWORK_FORMATS_FLOAT_BOUND_H_

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/str_format.h"

namespace weir {

// Returns the nearest float32; infinity beyond the greatest one.
inline float NearestFloat(double x) {
  constexpr float kMost = std::numeric_limits<float>::max(), kInfinity = std::numeric_limits<float>::infinity();
  // The middle between the greatest float and the next power of two is rounded up.
  constexpr double kBeyond = 0x1.ffffffp127;
  if (x >= kBeyond) return kInfinity;
  if (x <= -kBeyond) return -kInfinity;
  if (std::fabs(x) > kMost) return x > 0 ? kMost : -kMost;
  return static_cast<float>(x);
}

namespace internal {
// Returns true if x is so large that floats skip whole numbers there, and not too large for an id.
inline bool SkipsWholeNumbers(double x) { return std::fabs(x) >= 0x1p24 && std::fabs(x) < 0x1p63; }
}  // namespace internal

// Return the whole number next below, or next above, `x` if float32 has one value for both, so that the data do not
// tell them apart. Nothing for numbers that no id could hold: there is no better way to read such data.
inline std::optional<int64_t> SameFloatBelow(double x) {
  if (!internal::SkipsWholeNumbers(x)) return std::nullopt;
  const int64_t below = static_cast<int64_t>(std::ceil(x)) - 1;
  if (static_cast<float>(below) != NearestFloat(x)) return std::nullopt;
  return below;
}
inline std::optional<int64_t> SameFloatAbove(double x) {
  if (!internal::SkipsWholeNumbers(x)) return std::nullopt;
  const int64_t above = static_cast<int64_t>(std::floor(x)) + 1;
  if (static_cast<float>(above) != NearestFloat(x)) return std::nullopt;
  return above;
}

// Returns the text about two boundaries of float data that are one.
inline std::string SameFloats(double before, double boundary) {
  return absl::StrFormat("%.17g is the same float32 as the boundary before, %.17g: no value is between them", boundary,
                         before);
}

// Returns id >= bound, exactly: not every id has a double.
inline bool IsFrom(int64_t id, double bound) {
  if (!(bound < 0x1p63)) return false;
  return bound <= -0x1p63 || id >= static_cast<int64_t>(std::ceil(bound));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_FLOAT_BOUND_H_
