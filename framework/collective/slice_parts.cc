#include "framework/collective/slice_parts.h"

#include <utility>

namespace weir {

SliceParts::SliceParts(std::vector<int64_t> begins, const std::vector<int64_t>& segments, size_t element_bytes,
                       int64_t message_bytes)
    : begins_(std::move(begins)),
      element_bytes_(element_bytes),
      message_elements_(std::max<int64_t>(1, message_bytes / static_cast<int64_t>(element_bytes))) {
  if (segments.size() > 1) {
    segment_begins_ = {0};
    for (const int64_t count : segments) segment_begins_.push_back(segment_begins_.back() + count);
    most_runs_ = static_cast<int64_t>(segments.size() + 1) / 2;
  } else {
    segment_begins_ = {0, begins_.back()};
  }
  for (size_t r = 0; r + 1 < begins_.size(); ++r) {
    messages_ = std::max(messages_, (Count(static_cast<int>(r)) + message_elements_ - 1) / message_elements_);
  }
}

SliceParts::Part SliceParts::PartOf(int rank, int64_t m) const {
  const int64_t begin = std::min(Count(rank), m * message_elements_);
  return {Begin(rank) + begin, std::min(message_elements_, Count(rank) - begin)};
}

size_t SliceParts::SegmentOf(int64_t element) const {
  const auto behind = std::upper_bound(segment_begins_.begin(), segment_begins_.end(), element);
  return static_cast<size_t>(behind - segment_begins_.begin()) - 1;
}

std::vector<SliceParts::Part> SliceParts::PresentOf(const Part& part, uint64_t present) const {
  return RunsOf(part, [present](size_t s) { return (present >> s & 1) != 0 ? 0 : -1; });
}

std::vector<int> SliceParts::KindsOf(const std::vector<uint64_t>& present) const {
  const auto alike = [&present](size_t s, size_t t) {
    return std::all_of(present.begin(), present.end(),
                       [s, t](uint64_t of_addend) { return ((of_addend >> s ^ of_addend >> t) & 1) == 0; });
  };
  uint64_t any = 0;
  for (const uint64_t of_addend : present) any |= of_addend;
  std::vector<int> kinds;
  for (size_t s = 0; s < segments(); ++s) {
    size_t first = 0;
    while (!alike(first, s)) ++first;
    kinds.push_back((any >> s & 1) != 0 ? static_cast<int>(first) : -1);
  }
  return kinds;
}

}  // namespace weir
