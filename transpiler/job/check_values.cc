#include "transpiler/job/check_values.h"

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status AtLeast(const Setting& at, std::string_view field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at least ", least, ", got ", value));
}

absl::Status AtMost(const Setting& at, std::string_view field, int64_t value, int64_t most) {
  if (value <= most) return absl::OkStatus();
  return at.Error(field, absl::StrCat("must be at most ", most, ", got ", value));
}

absl::Status CheckName(const Setting& at, std::string_view field, const std::string& name) {
  if (name.empty()) return at.Error(field, "is required");
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    const bool later = (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '/';
    if (letter || (i > 0 && later)) continue;
    return at.Error(field, absl::StrCat("'", name, "' must begin with a letter or _ and hold only letters, digits and ",
                                        "_ - . /"));
  }
  return absl::OkStatus();
}

}  // namespace weir
