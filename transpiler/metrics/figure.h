// A figure of an evaluation, by its name.
#ifndef WEIR_TRANSPILER_METRICS_FIGURE_H_
#define WEIR_TRANSPILER_METRICS_FIGURE_H_

#include <optional>
#include <string>

#include "absl/strings/str_format.h"

namespace weir {

struct Figure {
  // "ndcg@10", "auc[country=DE]", "calibration.error".
  std::string name;
  double value = 0;  // NaN: undefined
  bool lower_is_better = false;
  bool is_count = false;             // printed as a whole number
  std::string undefined = {};        // why: "no group has both classes"
  std::optional<double> error = {};  // upper bound of the distance from the exact value
};

// Returns "ndcg@10=0.431200".
inline std::string FigureText(const Figure& figure) {
  return absl::StrFormat("%s=%.*f", figure.name, figure.is_count ? 0 : 6, figure.value);
}

}  // namespace weir

#endif  // WEIR_TRANSPILER_METRICS_FIGURE_H_
