// Checks of single values that several parts of a job need.
#ifndef WEIR_TRANSPILER_JOB_CHECK_VALUES_H_
#define WEIR_TRANSPILER_JOB_CHECK_VALUES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transpiler/base/setting.h"

namespace weir {

inline bool IsPowerOfTwo(int64_t x) { return x > 0 && (x & (x - 1)) == 0; }

// Check the value of a field of `at`. InvalidArgument with file:line:column, and what is allowed.
absl::Status AtLeast(const Setting& at, std::string_view field, int64_t value, int64_t least);
absl::Status AtMost(const Setting& at, std::string_view field, int64_t value, int64_t most);
// Names appear in programs, messages and files: letters, digits and _ - . /, beginning with a letter or _.
absl::Status CheckName(const Setting& at, std::string_view field, const std::string& name);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_VALUES_H_
