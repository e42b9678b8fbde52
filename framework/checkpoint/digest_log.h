// Logs of digests, and where two of them part: the first step, the variables, the ranges of elements.
//
// One line per variable and step; the size is there since a reader wants rows, and may be left out:
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

// What the 64 ranges of a variable are ranges of. All 0: not known.
struct DigestExtent {
  // Of a parameter: its elements, and those of a row of it.
  int64_t elements = 0;
  int64_t row = 1;
  // Of a table: its logical shards.
  int64_t shards = 0;
  bool operator==(const DigestExtent&) const = default;
};

// Without a newline.
std::string DigestLogLine(int64_t step, std::string_view variable, const VariableDigestSum& sum,
                          const DigestExtent& extent = {});

// "rows 20 to 39" of a parameter, "shards 128 to 255" of a table: ranges [first, last] of the 64. "" when the extent is
// not known.
std::string DigestRangeText(const DigestExtent& extent, int first, int last);

struct DigestComparison {
  bool equal = true;
  // For people: "equal at 4 steps, 50 to 200", or the first step that differs, with every variable and range that does,
  // and the rows that those ranges are.
  std::string text;
};
// Compares the steps that both logs have. InvalidArgument names file and line of what cannot be read, or says that no
// step is in both.
absl::StatusOr<DigestComparison> CompareDigestLogs(const std::string& file_a, const std::string& file_b);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_DIGEST_LOG_H_
