// Writes logs of digests and compares two of them: the first step that differs, its variables and ranges of elements.
//
// One line per variable and step. The extent lets a reader convert ranges to rows, and may be left out:
//   step=50 variable=fc_0.w elements=1280 row=8 values=<hex> state=<hex> ranges=<hex>,<hex>,... (64)
//   step=50 variable=vectors shards=4096 values=...
#ifndef WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_
#define WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "framework/checkpoint/digest.h"

namespace weir {

// Extent of a variable, which the 64 ranges divide. Unknown if `elements` and `shards` are 0.
struct DigestExtent {
  // Elements of a parameter, and elements per row.
  int64_t elements = 0;
  int64_t row = 1;
  // Logical shards of a table.
  int64_t shards = 0;
  bool operator==(const DigestExtent&) const = default;
};

// Returns one line of the log, without a newline.
std::string DigestLogLine(int64_t step, std::string_view variable, const VariableDigestSum& sum,
                          const DigestExtent& extent = {});

// Describes ranges [first, last] of the 64: "rows 20 to 39" for a parameter, "shards 128 to 255" for a table; "" if the
// extent is unknown.
std::string DigestRangeText(const DigestExtent& extent, int first, int last);

struct DigestComparison {
  bool equal = true;
  // Text for users: "equal at 4 steps, 50 to 200", or the first step that differs, with every variable and range that
  // differs, and the rows of those ranges.
  std::string text;
};
// Compares the steps that both logs have. InvalidArgument names the file and line that cannot be parsed, or says that
// no step is in both.
absl::StatusOr<DigestComparison> CompareDigestLogs(const std::string& file_a, const std::string& file_b);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_
