#include "framework/checkpoint/digest_log.h"

#include <algorithm>
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
struct Log {
  std::map<int64_t, DigestTable> steps;
  std::map<std::string, DigestExtent, std::less<>> extents;
};

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
  if (!absl::SimpleAtoi(fields["step"], &step) || fields["variable"].empty() ||
      !ReadHex(fields["values"], &sum.values) || !ReadHex(fields["state"], &sum.state) ||
      ranges.size() != kDigestRanges) {
    return false;
  }
  for (int i = 0; i < kDigestRanges; ++i) {
    if (!ReadHex(ranges[static_cast<size_t>(i)], &sum.ranges[static_cast<size_t>(i)])) return false;
  }
  DigestExtent extent;
  for (const auto& [name, value] :
       {std::pair{"elements", &extent.elements}, std::pair{"row", &extent.row}, std::pair{"shards", &extent.shards}}) {
    const auto field = fields.find(name);
    if (field != fields.end() && (!absl::SimpleAtoi(field->second, value) || *value < 1)) return false;
  }
  log->steps[step][fields["variable"]] = sum;
  log->extents[fields["variable"]] = extent;
  return true;
}

absl::StatusOr<Log> ReadLog(const std::string& file) {
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(file));
  Log log;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    if (!line.empty() && !ReadLine(line, &log)) {
      return absl::InvalidArgumentError(absl::StrCat(file, ":", number,
                                                     ": expected step=... variable=... values=<16 hex> "
                                                     "state=<16 hex> ranges=<64 of 16 hex>"));
    }
  }
  return log;
}

// "ranges 12-14, 40 of 64 (rows 24 to 29, rows 80 to 81)"
std::string RangesText(const VariableDigestSum& a, const VariableDigestSum& b, const DigestExtent& extent) {
  std::vector<std::string> runs, rows;
  for (size_t i = 0; i < kDigestRanges;) {
    if (a.ranges[i] == b.ranges[i]) {
      ++i;
      continue;
    }
    size_t end = i + 1;
    while (end < kDigestRanges && a.ranges[end] != b.ranges[end]) ++end;
    runs.push_back(end == i + 1 ? absl::StrCat(i) : absl::StrCat(i, "-", end - 1));
    std::string of = DigestRangeText(extent, static_cast<int>(i), static_cast<int>(end) - 1);
    if (!of.empty()) rows.push_back(std::move(of));
    i = end;
  }
  return absl::StrCat("ranges ", absl::StrJoin(runs, ", "), " of ", kDigestRanges,
                      rows.empty() ? "" : absl::StrCat(" (", absl::StrJoin(rows, ", "), ")"));
}

// Lines about one step, or "" when it is equal in both.
std::string StepDifference(const DigestTable& a, const DigestTable& b,
                           const std::map<std::string, DigestExtent, std::less<>>& extents) {
  std::string text;
  for (const auto& [name, sum] : a) {
    const auto other = b.find(name);
    if (other == b.end()) {
      absl::StrAppend(&text, "\n  ", name, ": only in the first");
      continue;
    }
    if (sum.values != other->second.values) {
      absl::StrAppend(&text, "\n  ", name, ": values differ in ", RangesText(sum, other->second, extents.at(name)));
    }
    if (sum.state != other->second.state) absl::StrAppend(&text, "\n  ", name, ": state differs");
  }
  for (const auto& [name, sum] : b) {
    if (a.find(name) == a.end()) absl::StrAppend(&text, "\n  ", name, ": only in the second");
  }
  return text;
}

}  // namespace

std::string DigestRangeText(const DigestExtent& extent, int first, int last) {
  const int64_t size = extent.elements > 0 ? extent.elements : extent.shards;
  if (size <= 0) return "";
  // Smallest element whose range is at least r.
  const auto begin = [size](int r) {
    return static_cast<int64_t>((static_cast<__int128>(r) * size + kDigestRanges - 1) / kDigestRanges);
  };
  const int64_t unit = extent.elements > 0 ? std::max<int64_t>(1, extent.row) : 1;
  const int64_t from = begin(first) / unit, to = std::max(begin(first), begin(last + 1) - 1) / unit;
  const char* const what = extent.elements == 0 ? "shard" : extent.row > 1 ? "row" : "element";
  return from == to ? absl::StrCat(what, " ", from) : absl::StrCat(what, "s ", from, " to ", to);
}

std::string DigestLogLine(int64_t step, std::string_view variable, const VariableDigestSum& sum,
                          const DigestExtent& extent) {
  std::string size;
  if (extent.elements > 0) size = absl::StrCat(" elements=", extent.elements, " row=", extent.row);
  if (extent.shards > 0) size = absl::StrCat(" shards=", extent.shards);
  std::string line = absl::StrCat("step=", step, " variable=", absl::string_view(variable.data(), variable.size()),
                                  size, " values=", DigestHex(sum.values), " state=", DigestHex(sum.state), " ranges=");
  for (int i = 0; i < kDigestRanges; ++i)
    absl::StrAppend(&line, i == 0 ? "" : ",", DigestHex(sum.ranges[static_cast<size_t>(i)]));
  return line;
}

absl::StatusOr<DigestComparison> CompareDigestLogs(const std::string& file_a, const std::string& file_b) {
  ASSIGN_OR_RETURN(const Log a, ReadLog(file_a));
  ASSIGN_OR_RETURN(const Log b, ReadLog(file_b));
  int compared = 0;
  int64_t first = 0, last = 0;
  std::optional<int64_t> last_equal;
  for (const auto& [step, table] : a.steps) {
    const auto other = b.steps.find(step);
    if (other == b.steps.end()) continue;
    if (compared++ == 0) first = step;
    last = step;
    const std::string difference = StepDifference(table, other->second, a.extents);
    if (difference.empty()) {
      last_equal = step;
      continue;
    }
    return DigestComparison{
        .equal = false,
        .text = absl::StrCat("first difference at step ", step,
                             last_equal ? absl::StrCat(" (equal until step ", *last_equal, ")") : "", ":", difference)};
  }
  if (compared == 0) return absl::InvalidArgumentError(absl::StrCat("no step is in both ", file_a, " and ", file_b));
  return DigestComparison{
      .equal = true,
      .text = absl::StrCat("equal at ", compared, compared == 1 ? " step, " : " steps, ", first, " to ", last)};
}

}  // namespace weir
