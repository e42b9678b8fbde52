// Sums of an evaluation. Counts and DoubleSum are exact: the order of adding and of merging changes no bit.
#ifndef WEIR_TRANSPILER_METRICS_SUMS_H_
#define WEIR_TRANSPILER_METRICS_SUMS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/exact_sum.h"
#include "framework/tensor/tensor.h"

namespace weir {

// Sum of doubles. Terms are kept to 48 bits.
class DoubleSum {
 public:
  void Add(double x);
  void Merge(const DoubleSum& other) { sum_.Add(other.sum_); }
  double value() const { return sum_.Rounded(); }

  std::string ToBytes() const { return sum_.ToBytes(); }
  absl::Status FromBytes(std::string_view bytes);

 private:
  ExactSum sum_;
};

// An example as a metric takes it. `row`: its prediction, `classes` numbers.
struct Judged {
  const float* row = nullptr;
  int64_t classes = 1;
  float label = 0;
};

// The examples of a lane, of which a measure takes them all at once.
struct JudgedLane {
  int64_t examples = 0;
  int64_t classes = 1;  // numbers of a prediction
  // loss [examples, 1], or [] with their mean; prediction [examples, classes]; label of each example, or of each number
  // of its prediction.
  const Tensor& loss;
  const Tensor& prediction;
  const Tensor& label;
};

// Sums over the examples of one slice, of which each metric uses its own.
struct SliceSums {
  int64_t examples = 0;
  // Number of examples by what the metric counts: right and wrong, a matrix, buckets.
  std::vector<int64_t> counts;
  // Sums that the metric needs, by its own numbering.
  std::vector<DoubleSum> sums;
  // Plain sums, which depend on their order: those of a lane are added in order of its examples, and lanes in the lane
  // tree.
  std::vector<double> doubles;

  void Merge(const SliceSums& other);
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_METRICS_SUMS_H_
