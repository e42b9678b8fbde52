// InvalidArgument errors from parts of a message.
#ifndef WEIR_FRAMEWORK_BASE_INVALID_H_
#define WEIR_FRAMEWORK_BASE_INVALID_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weir {

// Returns InvalidArgument with the parts joined as absl::StrCat joins them.
template <typename... Parts>
absl::Status Invalid(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

}  // namespace weir

#endif  // WEIR_FRAMEWORK_BASE_INVALID_H_
