#include "framework/checkpoint/digest_log.h"

#include <map>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Step to variables. A run that was resumed repeats steps: the last line counts.
using Log = std::map<int64_t, DigestTable>;

bool ReadHex(absl::string_view text, uint64_t* value) { return text.size() == 16 && absl::SimpleHexAtoi(text, value); }

bool ReadLine(absl::string_view line, Log* log) {
  std::map<std::string, std::string> fields;
  for (const absl::string_view word : absl::StrSplit(line, ' ', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> field = absl::StrSplit(word, absl::MaxSplits('=', 1));
    fields.insert(field);
  }
  int64_t step = 0;
  VariableDigestSum sum;
  const std::vector<std::string> ranges = absl::StrSplit(fields["ranges"], ',');
  if (!absl::SimpleAtoi(fields["step"], &step) || fields["variable"].empty() || !ReadHex(fields["values"], &sum.values) ||
      !ReadHex(fields["state"], &sum.state) || ranges.size() != kDigestRanges) {
    return false;
  }
  for (int i = 0; i < kDigestRanges; ++i) {
    if (!ReadHex(ranges[static_cast<size_t>(i)], &sum.ranges[static_cast<size_t>(i)])) return false;
  }
  (*log)[step][fields["variable"]] = sum;
  return true;
}

absl::StatusOr<Log> ReadLog(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  Log log;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!line.empty() && !ReadLine(line, &log)) {
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number, ": expected step=... variable=... values=<16 hex> "
                                                     "state=<16 hex> ranges=<64 of 16 hex>"));
    }
  }
  return log;
}

// "ranges 12-14, 40 of 64"
std::string RangesText(const VariableDigestSum& a, const VariableDigestSum& b) {
  std::vector<std::string> runs;
  for (size_t i = 0; i < kDigestRanges;) {
    if (a.ranges[i] == b.ranges[i]) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < kDigestRanges && a.ranges[end] != b.ranges[end]) ++end;
    runs.push_back(end == i + 1 ? absl::StrCat(i) : absl::StrCat(i, "-", end - 1));
    i = end;
  }
  return absl::StrCat("ranges ", absl::StrJoin(runs, ", "), " of ", kDigestRanges);
}

// Lines about one step, or "" when it is equal in both.
std::string StepDifference(const DigestTable& a, const DigestTable& b) {
  std::string text;
  for (const auto& [name, sum] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      absl::StrAppend(&text, "\n  ", name, ": only in the first");
      continue;
    }
    if (sum.values != other->second.values) {
      absl::StrAppend(&text, "\n  ", name, ": values differ in ", RangesText(sum, other->second));
    }
    if (sum.state != other->second.state) absl::StrAppend(&text, "\n  ", name, ": state differs");
  }
  for (const auto& [name, sum] : b) {
    if (a.find(name) == a.end()) absl::StrAppend(&text, "\n  ", name, ": only in the second");
  }
  return text;
}

}  // namespace

std::string DigestLogLine(int64_t step, std::string_view variable, const VariableDigestSum& sum) {
  std::string line = absl::StrCat("step=", step, " variable=", absl::string_view(variable.data(), variable.size()),
                                  " values=", DigestHex(sum.values), " state=", DigestHex(sum.state), " ranges=");
  for (int i = 0; i < kDigestRanges; ++i) absl::StrAppend(&line, i == 0 ? "" : ",", DigestHex(sum.ranges[static_cast<size_t>(i)]));
  return line;
}

absl::StatusOr<DigestComparison> CompareDigestLogs(const std::string& file_a, const std::string& file_b) {
  ASSIGN_OR_RETURN(const Log a, ReadLog(file_a));
  ASSIGN_OR_RETURN(const Log b, ReadLog(file_b));
  int compared = 0;
  int64_t first = 0, last = 0;
  std::optional<int64_t> last_equal;
  for (const auto& [step, table] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    if (compared++ == 0) first = step;
    last = step;
    const std::string difference = StepDifference(table, other->second);
    if (difference.empty()) {
      last_equal = step;
      continue;
    }
    return DigestComparison{.equal = false,
                            .text = absl::StrCat("first difference at step ", step,
                                                 last_equal ? absl::StrCat(" (equal until step ", *last_equal, ")") : "", ":",
                                                 difference)};
  }
  if (compared == 0) return absl::InvalidArgumentError(absl::StrCat("no step is in both ", file_a, " and ", file_b));
  return DigestComparison{.equal = true,
                          .text = absl::StrCat("equal at ", compared, compared == 1 ? " step, " : " steps, ", first, " to ", last)};
}

}  // namespace weir
