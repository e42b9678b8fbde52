// Logs of digests, and where two of them part: the first step, the variables, the ranges of elements.
//
// One line per variable and step:
//   step=50 variable=fc_0.w values=<hex> state=<hex> ranges=<hex>,<hex>,... (64)
#ifndef WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_
#define WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/checkpoint/digest.h"

namespace weir {

// Without a newline.
std::string DigestLogLine(int64_t step, std::string_view variable, const VariableDigestSum& sum);

struct DigestComparison {
  bool equal = true;
  // For people: "equal at 4 steps, 50 to 200", or the first step that differs, with every variable and range that does.
  std::string text;
};
// Compares the steps that both logs have. InvalidArgument names file and line of what cannot be read, or says that no step is
// in both.
absl::StatusOr<DigestComparison> CompareDigestLogs(const std::string& file_a, const std::string& file_b);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_
