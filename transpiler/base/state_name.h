// Names of optimizer state: "fc_0.w.moment1" for slot Moment1 of parameter (or block) fc_0.w.
#ifndef WEIR_TRANSPILER_BASE_STATE_NAME_H_
#define WEIR_TRANSPILER_BASE_STATE_NAME_H_

#include <string>
#include <string_view>

namespace weir {

inline std::string StateName(std::string_view param, std::string_view slot) {
  std::string name(param);
  for (size_t i = 0; i < slot.size(); ++i) {
    const bool upper = slot[i] >= 'A' && slot[i] <= 'Z';
    if (i == 0) name += '.';
    if (upper && i > 0) name += '_';
    name += upper ? static_cast<char>(slot[i] - 'A' + 'a') : slot[i];
  }
  return name;
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_BASE_STATE_NAME_H_
