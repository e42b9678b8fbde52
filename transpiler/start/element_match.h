// Which elements of an axis are those of an axis of another program, by their names.
#ifndef WEIR_TRANSPILER_START_ELEMENT_MATCH_H_
#define WEIR_TRANSPILER_START_ELEMENT_MATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "framework/graph/op_registry.h"
#include "proto/start.pb.h"

namespace weir {

// Indices [begin, end).
struct IndexRange {
  int64_t begin = 0, end = 0;
  bool operator==(const IndexRange&) const = default;
};
// Ascending, apart and not adjacent.
using IndexRanges = std::vector<IndexRange>;

void AddRange(IndexRange range, IndexRanges* ranges);
IndexRanges Complement(const IndexRanges& ranges, int64_t size);
int64_t SizeOf(const IndexRanges& ranges);

// Returns the runs of `here` that have names of `there`. The nth element of a name here is the nth of that name there.
std::vector<v1::AxisRun> MatchAxis(const ElementAxis& here, const ElementAxis& there);
IndexRanges RangesTo(absl::Span<const v1::AxisRun> runs);
IndexRanges RangesFrom(absl::Span<const v1::AxisRun> runs);

// Returns the parts of a name: of "cat.C7/vectors" the words "cat.C7" and "vectors", without "[3]" behind a part.
std::vector<std::string> NameParts(std::string_view of);

// A set of names: of parts with all their elements, or of single elements of a part or of a whole name.
class NameSet {
 public:
  // All elements whose name has this part.
  void Add(std::string_view part) { Add(part, 0, kAll); }
  // Elements [begin, end) of this part, or of this name.
  void Add(std::string_view part, int64_t begin, int64_t end);
  bool HasAll(std::string_view part) const;
  // Returns the indices of the elements of `axis` that are in the set.
  IndexRanges In(const ElementAxis& axis) const;

 private:
  static constexpr int64_t kAll = int64_t{1} << 62;
  std::map<std::string, IndexRanges, std::less<>> parts_;
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_ELEMENT_MATCH_H_
