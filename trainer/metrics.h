// Quality measures of a model over all trainers. Merging is exact: the order in which pieces are added changes no bit.
//
// AUC counts positives (labels of one half and more) and negatives in 65536 equal buckets of the prediction. Counts are
// integers, so trainers add up without rounding. Pairs within one bucket count half; auc_error bounds the resulting
// error. Losses and errors are summed per lane in double, in order of the examples, and lanes are added in the lane
// tree.
#ifndef WEIR_TRAINER_METRICS_H_
#define WEIR_TRAINER_METRICS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"
#include "proto/checkpoint.pb.h"
#include "proto/program.pb.h"
#include "trainer/metrics/figure.h"

namespace weir {

struct MetricResult {
  int64_t samples = 0;
  // Mean loss; 0 without samples.
  double loss = 0;
  // Samples whose loss is infinite or NaN.
  int64_t not_finite = 0;
  // BINARY: NaN when one class is missing.
  double auc = 0;
  // BINARY: examples of the class 1.
  int64_t positives = 0;
  // Upper bound of |auc - true AUC of the predictions|.
  double auc_error = 0;
  // Set for MULTI_CLASS.
  double accuracy = 0;
  // Set for REGRESSION: root of the mean square and mean of the distances between prediction and label. Sample weights
  // do not count. NaN when predictions are not one number per example.
  double rmse = 0, mae = 0;
  v1::LossDesc::Kind kind = v1::LossDesc::BINARY;
  // false: the loss has no label (HasLabel), and no measure but itself.
  bool has_label = true;
  // Figures of the job's metrics.
  std::vector<Figure> figures = {};
  // train.early_stop: what is known with this evaluation.
  std::optional<v1::EarlyStopState> early_stop = {};

  // Returns all figures by name: the loss, the measures that the kind has, and `figures`, of which one takes the place
  // of a measure of the same name.
  std::vector<Figure> All() const;
  // Returns the figure that ranks results unless the job names another: "auc", or "loss" of a loss without auc.
  const char* DefaultFigure() const { return kind == v1::LossDesc::BINARY && has_label ? "auc" : "loss"; }
  // Returns a number that is larger for a better result: the figure of this name, negated where less is better. "" is
  // DefaultFigure(). nullopt: there is no such figure, or it is not finite.
  std::optional<double> RankBy(std::string_view name) const;
  // Returns whether `figures` has one of this name.
  bool HasFigure(std::string_view name) const;
  // Returns "loss=0.4613 auc=0.7712 auc_error=1.2e-06", with all figures. An undefined one has no number but a note at
  // the end: "loss=0.4613 (auc is undefined: no example has label 1)".
  std::string ToString() const;
};

// Returns whether a loss of the program judges predictions by a label. false: the program makes a label of ones, as
// every example is a positive.
bool HasLabel(const v1::ProgramDesc& program, const v1::LossDesc& loss);

// Measures over the examples that one process has seen. Not thread-safe.
class Metrics {
 public:
  static constexpr int kBuckets = 65536;

  explicit Metrics(v1::LossDesc::Kind kind, bool has_label = true) : kind_(kind), has_label_(has_label) {}

  // Adds the examples of one lane of the job: loss [B, 1], or [] with their mean; prediction [B, 1] or [B, C]; label
  // [B, 1] float32 or int64. InvalidArgument when sizes differ.
  absl::Status Add(int lane, const Tensor& loss, const Tensor& prediction, const Tensor& label);
  void Clear();

  // Serializes what is not zero, but for the number of samples without a finite loss.
  std::string Serialize() const;
  // Adds serialized pieces, of which `not_finite` samples had no finite loss. DataLoss when the bytes or the number are
  // malformed; *this is then unchanged. A lane may be in one process only.
  absl::Status MergeSerialized(std::string_view bytes, int64_t not_finite = 0);
  int64_t not_finite() const { return not_finite_; }
  MetricResult Result() const;

 private:
  struct LaneSums {
    int lane = 0;
    double loss = 0;
    int64_t samples = 0;
    int64_t correct = 0;
    double squares = 0, distances = 0;  // REGRESSION
  };
  LaneSums* Lane(int lane);

  v1::LossDesc::Kind kind_;
  bool has_label_;
  int64_t not_finite_ = 0;          // samples
  std::vector<LaneSums> lanes_;     // by lane
  std::vector<int64_t> positives_;  // empty or kBuckets
  std::vector<int64_t> negatives_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_H_
