#include "transpiler/start/element_match.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"

namespace weir {
namespace {

// A run at its place in an axis, and how many runs before it have elements in common with it.
struct Placed {
  int64_t first = 0, count = 0, at = 0;
  int nth = 0;
};
using PlacedByName = std::map<std::string, std::vector<Placed>, std::less<>>;

PlacedByName Place(const ElementAxis& axis) {
  PlacedByName placed;
  int64_t at = 0;
  for (const ElementRun& run : axis) {
    std::vector<Placed>& all = placed[run.of];
    Placed each{.first = run.first, .count = run.count, .at = at};
    for (const Placed& before : all) {
      if (before.first < run.first + run.count && run.first < before.first + before.count) ++each.nth;
    }
    all.push_back(each);
    at += run.count;
  }
  return placed;
}

// Returns the part without a number in brackets, and sets *index to the number, or to -1.
std::string_view WithoutIndex(std::string_view part, int64_t* index) {
  *index = -1;
  const size_t open = part.rfind('[');
  if (open == std::string_view::npos || part.empty() || part.back() != ']') return part;
  const std::string_view digits = part.substr(open + 1, part.size() - open - 2);
  if (digits.empty() || !absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), index)) {
    *index = -1;
    return part;
  }
  return part.substr(0, open);
}

template <typename Fn>
void ForEachPart(std::string_view of, const Fn& fn) {
  while (true) {
    const size_t end = of.find('/');
    fn(of.substr(0, end), end == std::string_view::npos);
    if (end == std::string_view::npos) return;
    of.remove_prefix(end + 1);
  }
}

}  // namespace

void AddRange(IndexRange range, IndexRanges* ranges) {
  if (range.begin >= range.end) return;
  IndexRanges merged;
  for (const IndexRange& each : *ranges) {
    if (each.end < range.begin || range.end < each.begin) {
      merged.push_back(each);
    } else {
      range = {std::min(range.begin, each.begin), std::max(range.end, each.end)};
    }
  }
  merged.insert(std::upper_bound(merged.begin(), merged.end(), range,
                                 [](const IndexRange& a, const IndexRange& b) { return a.begin < b.begin; }),
                range);
  *ranges = std::move(merged);
}

IndexRanges Complement(const IndexRanges& ranges, int64_t size) {
  IndexRanges rest;
  int64_t at = 0;
  for (const IndexRange& range : ranges) {
    if (at < range.begin) rest.push_back({at, range.begin});
    at = range.end;
  }
  if (at < size) rest.push_back({at, size});
  return rest;
}

int64_t SizeOf(const IndexRanges& ranges) {
  int64_t size = 0;
  for (const IndexRange& range : ranges) size += range.end - range.begin;
  return size;
}

std::vector<v1::AxisRun> MatchAxis(const ElementAxis& here, const ElementAxis& there) {
  const PlacedByName ours = Place(here), theirs = Place(there);
  std::vector<v1::AxisRun> runs;
  for (const auto& [name, all] : ours) {
    const auto found = theirs.find(name);
    if (found == theirs.end()) continue;
    for (const Placed& own : all) {
      for (const Placed& other : found->second) {
        if (own.nth != other.nth) continue;
        const int64_t first = std::max(own.first, other.first);
        const int64_t end = std::min(own.first + own.count, other.first + other.count);
        if (first >= end) continue;
        v1::AxisRun run;
        run.set_to(own.at + first - own.first);
        run.set_from(other.at + first - other.first);
        run.set_count(end - first);
        runs.push_back(std::move(run));
      }
    }
  }
  std::sort(runs.begin(), runs.end(), [](const v1::AxisRun& a, const v1::AxisRun& b) { return a.to() < b.to(); });
  std::vector<v1::AxisRun> joined;
  for (v1::AxisRun& run : runs) {
    if (!joined.empty() && joined.back().to() + joined.back().count() == run.to() &&
        joined.back().from() + joined.back().count() == run.from()) {
      joined.back().set_count(joined.back().count() + run.count());
    } else {
      joined.push_back(std::move(run));
    }
  }
  return joined;
}

IndexRanges RangesTo(absl::Span<const v1::AxisRun> runs) {
  IndexRanges ranges;
  for (const v1::AxisRun& run : runs) AddRange({run.to(), run.to() + run.count()}, &ranges);
  return ranges;
}

IndexRanges RangesFrom(absl::Span<const v1::AxisRun> runs) {
  IndexRanges ranges;
  for (const v1::AxisRun& run : runs) AddRange({run.from(), run.from() + run.count()}, &ranges);
  return ranges;
}

std::vector<std::string> NameParts(std::string_view of) {
  std::vector<std::string> parts;
  ForEachPart(of, [&](std::string_view part, bool) {
    int64_t index;
    parts.emplace_back(WithoutIndex(part, &index));
  });
  return parts;
}

void NameSet::Add(std::string_view part, int64_t begin, int64_t end) {
  AddRange({begin, end}, &parts_[std::string(part)]);
}

bool NameSet::HasAll(std::string_view part) const {
  const auto found = parts_.find(part);
  return found != parts_.end() && found->second == IndexRanges{{0, kAll}};
}

IndexRanges NameSet::In(const ElementAxis& axis) const {
  IndexRanges in;
  int64_t at = 0;
  const auto add = [&](const IndexRanges& ranges, const ElementRun& run) {
    for (const IndexRange& range : ranges) {
      const int64_t begin = std::max(range.begin, run.first), end = std::min(range.end, run.first + run.count);
      if (begin < end) AddRange({at + begin - run.first, at + end - run.first}, &in);
    }
  };
  for (const ElementRun& run : axis) {
    if (const auto whole = parts_.find(run.of); whole != parts_.end()) add(whole->second, run);
    ForEachPart(run.of, [&](std::string_view part, bool last) {
      int64_t index;
      const auto found = parts_.find(WithoutIndex(part, &index));
      if (found == parts_.end()) return;
      if (last) return add(found->second, run);
      // A part without a number is a single element.
      const int64_t place = std::max<int64_t>(index, 0);
      for (const IndexRange& range : found->second) {
        if (range.begin <= place && place < range.end) AddRange({at, at + run.count}, &in);
      }
    });
    at += run.count;
  }
  return in;
}

}  // namespace weir
