// Conversions between std::string_view and absl::string_view, which are two types in Debian's build of Abseil.
#ifndef WEIR_FRAMEWORK_BASE_STRING_VIEWS_H_
#define WEIR_FRAMEWORK_BASE_STRING_VIEWS_H_

#include <string_view>

#include "absl/strings/string_view.h"

namespace weir {

// For absl::StrCat and other functions of Abseil.
inline absl::string_view Av(std::string_view s) { return absl::string_view(s.data(), s.size()); }
inline std::string_view ToStd(absl::string_view s) { return std::string_view(s.data(), s.size()); }

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_STRING_VIEWS_H_
