// Copies the elements that a part of a start plan takes (DensePart) into pieces of a parameter, row-major.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_PART_COPY_H_
#define WEIR_FRAMEWORK_CHECKPOINT_PART_COPY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "proto/start.pb.h"

namespace weir {

// Elements that lie together in both parameters are read at once, and others through a window that grows while it moves
// forward. Not thread-safe.
class PartCopy {
 public:
  // Map of one axis, as CheckStartPlan accepts it.
  struct Axis {
    int64_t to_dim = 0, from_dim = 0;
    struct Run {
      int64_t to = 0, from = 0, count = 0;
    };
    std::vector<Run> runs;
  };
  // Return the maps of a part, or of ranges, of a parameter with these dims.
  static std::vector<Axis> AxesOf(const v1::DensePart& part, absl::Span<const int64_t> dims);
  static std::vector<Axis> AxesOf(const v1::DenseZeros& zeros, absl::Span<const int64_t> dims);

  // Reads elements [begin, begin + out.size()) of the parameter that is taken from.
  using Read = std::function<absl::Status(int64_t begin, absl::Span<float> out)>;
  // Returns a Read of a parameter of zeros.
  static Read Zeros();

  PartCopy(std::vector<Axis> axes, Read read);

  // Sets the mapped ones among elements [begin, begin + out.size()) of the parameter. Returns the first error of Read.
  absl::Status Fill(int64_t begin, absl::Span<float> out);

 private:
  // Fills what lies behind an index of the axes before `axis`, whose first elements are `to` and `from`.
  absl::Status FillAxis(size_t axis, int64_t to, int64_t from);
  // Fills the runs of the last axis that is mapped.
  absl::Status FillRuns(int64_t to, int64_t from);
  absl::Status Copy(int64_t from, absl::Span<float> out);
  // Makes elements [begin, end) part of the window.
  absl::Status Want(int64_t begin, int64_t end);

  const std::vector<Axis> axes_;
  const Read read_;
  // Elements behind one index of each axis, in both parameters.
  std::vector<int64_t> to_strides_, from_strides_;
  int64_t from_count_ = 1;
  // Number of axes up to the last one that is not taken as a whole.
  size_t mapped_ = 0;
  // Elements to fill.
  int64_t begin_ = 0, end_ = 0;
  absl::Span<float> out_;
  // Elements [window_begin_, window_begin_ + window_.size()) of the parameter that is taken from.
  std::vector<float> window_;
  int64_t window_begin_ = 0;
  int64_t window_size_ = 0;  // of the next one
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_PART_COPY_H_
