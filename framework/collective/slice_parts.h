// Cuts of reduced values: slices, each of one rank; messages of a slice; runs of present segments in a message.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_SLICE_PARTS_H_
#define WEIR_FRAMEWORK_COLLECTIVE_SLICE_PARTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weir {

class SliceParts {
 public:
  // begins: borders of the slices, in elements. segments: their numbers of elements; fewer than two: one segment.
  SliceParts(std::vector<int64_t> begins, const std::vector<int64_t>& segments, size_t element_bytes,
             int64_t message_bytes);

  // Elements [begin, begin + count) of the values.
  struct Part {
    int64_t begin = 0, count = 0;
  };

  int64_t Begin(int rank) const { return begins_[static_cast<size_t>(rank)]; }
  int64_t Count(int rank) const { return begins_[static_cast<size_t>(rank) + 1] - Begin(rank); }
  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements) * element_bytes_; }
  // Returns the number of messages of the longest slice.
  int64_t messages() const { return messages_; }
  // Returns what message `m` of a rank's slice is about.
  Part PartOf(int rank, int64_t m) const;

  size_t segments() const { return segment_begins_.size() - 1; }
  // Returns the segment of an element.
  size_t SegmentOf(int64_t element) const;
  // Returns the most runs of present segments in a message.
  int64_t most_runs() const { return most_runs_; }
  // Returns the runs of elements of a part whose segments are present.
  std::vector<Part> PresentOf(const Part& part, uint64_t present) const;
  // Returns by segment the first one that the same addends have, -1: none has it. `present`: segments of each addend.
  std::vector<int> KindsOf(const std::vector<uint64_t>& present) const;
  // Returns the longest runs of elements of a part for whose segments `kind` returns the same number, leaving out those
  // of a negative one. None is empty.
  template <typename Kind>
  std::vector<Part> RunsOf(const Part& part, Kind kind) const {
    std::vector<Part> runs;
    if (part.count == 0) return runs;
    const int64_t end = part.begin + part.count;
    int last = -1;
    size_t s = SegmentOf(part.begin);
    for (int64_t begin = part.begin; begin < end; begin = segment_begins_[++s]) {
      const int64_t count = std::min(end, segment_begins_[s + 1]) - begin;
      if (count == 0) continue;
      const int own = kind(s);
      if (own >= 0 && own == last) {
        runs.back().count += count;
      } else if (own >= 0) {
        runs.push_back({begin, count});
      }
      last = own;
    }
    return runs;
  }

 private:
  const std::vector<int64_t> begins_;
  const size_t element_bytes_;
  const int64_t message_elements_;
  int64_t messages_ = 0;
  std::vector<int64_t> segment_begins_;  // and the end of the last one
  int64_t most_runs_ = 1;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_SLICE_PARTS_H_
