#include "pserver/tables/finite_values.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status NotFinite(std::string_view where, float value) {
  return absl::FailedPreconditionError(absl::StrCat(
      absl::string_view(where.data(), where.size()), " is ",
      std::isnan(value) ? "NaN"
      : value > 0       ? "inf"
                        : "-inf",
      " after its update: the sum of its gradients, or what the optimizer makes of them, is beyond 3.4e38; go on from "
      "an earlier checkpoint, with checked data, optimizer.clip or a smaller learning rate"));
}

}  // namespace weir
