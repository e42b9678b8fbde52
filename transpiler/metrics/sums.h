// Sums of an evaluation. Counts, DoubleSum and ExactSum are exact: the order of adding and of merging changes no bit.
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
  // Adds a term `weight` times; the product is not rounded.
  void Add(double x, float weight = 1);
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
  float weight = 1;
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
  // Number of examples by what the metric counts: right and wrong, a matrix, buckets. Empty if the metric is weighted.
  std::vector<int64_t> counts;
  // Sums that the metric needs, by its own numbering.
  std::vector<DoubleSum> sums;
  // Plain sums, which depend on their order: those of a lane are added in order of its examples, and lanes in the lane
  // tree.
  std::vector<double> doubles;
  // A weighted metric has these in place of counts: the sum of the weights of all examples, then of those that each
  // count counts.
  std::vector<ExactSum> weights;

  // Adds an example: to their number, and to a count.
  void AddExample(float weight) {
    ++examples;
    if (!weights.empty()) weights[0].AddProduct(weight, 1);
  }
  void Count(size_t place, float weight) {
    if (weights.empty()) {
      ++counts[place];
    } else {
      weights[1 + place].AddProduct(weight, 1);
    }
  }
  // Return the number of examples, or of those that a count counts; if the metric is weighted, the sum of their
  // weights.
  double Examples() const { return weights.empty() ? static_cast<double>(examples) : weights[0].Rounded(); }
  double CountAt(size_t place) const {
    return weights.empty() ? static_cast<double>(counts[place]) : weights[1 + place].Rounded();
  }
  // Returns the number of counts.
  size_t places() const { return weights.empty() ? counts.size() : weights.size() - 1; }

  void Merge(const SliceSums& other);
};

}  // namespace weir

#endif  // WEIR_TRANSPILER_METRICS_SUMS_H_
