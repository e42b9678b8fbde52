// Figures of an evaluation, over all trainers: measures of the first loss, and the metrics that the job names
// (proto/metric.proto).
//
// An evaluation adds batches to a JobMetrics in each trainer; its parts are merged in any order, and the figures have
// the same bits. For each set of groups (of one loss, key, `by` and weight) 24 bytes of each example are kept, with a
// weight 32; a part has 8 bytes of each, with a weight 12, and 16 to 26 of each group.
#ifndef WEIR_TRAINER_METRICS_JOB_METRICS_H_
#define WEIR_TRAINER_METRICS_JOB_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/formats/example.h"
#include "framework/formats/learned.h"
#include "framework/tensor/tensor.h"
#include "proto/evaluation.pb.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "trainer/data/lane_reader.h"
#include "trainer/metrics/catalogue.h"
#include "trainer/metrics/group_examples.h"
#include "trainer/metrics/metric_result.h"
#include "transpiler/metrics/figure.h"
#include "transpiler/metrics/rules.h"

namespace weir {

// Settings of the metrics of a job. Immutable; thread-safe.
class MetricPlan {
 public:
  // Most values of `by` of a metric without groups, and most memory of its sums.
  static constexpr size_t kMostSlices = 4096;
  static constexpr size_t kMostSliceBytes = size_t{256} << 20;

  // `program` must have a loss. `columns`: of the readers. `learned` (may be null): what the job has learned. NotFound:
  // a metric names a loss that the program does not have. InvalidArgument: a metric cannot judge the loss's
  // predictions, or its sums would take too much memory; CataloguePlan::Create.
  static absl::StatusOr<std::shared_ptr<const MetricPlan>> Create(const v1::JobConfig& job,
                                                                  const v1::ProgramDesc& program,
                                                                  const std::vector<Column>& columns,
                                                                  const Learned* learned = nullptr);

  // The plan of the measures, and of those metrics of the first loss that are cheap enough for training, without slices
  // and weights. Errors as Create.
  static absl::StatusOr<std::shared_ptr<const MetricPlan>> CreateForTraining(const v1::JobConfig& job,
                                                                             const v1::ProgramDesc& program,
                                                                             const std::vector<Column>& columns);

  // Losses that some metric of the job judges; a loss of a metric is an index into them.
  const std::vector<v1::LossDesc>& losses() const { return losses_; }
  // Items to rank, each for the label of one loss; several metrics share one.
  struct Catalogue {
    CataloguePlan plan;
    size_t loss = 0;
    std::string key;  // of the settings
  };
  const std::vector<Catalogue>& catalogues() const { return catalogues_; }

  // Variables that Session reads for the metrics: predictions, labels and queries, and the vectors of candidates.
  std::vector<std::string> JudgedVariables() const;
  std::vector<std::string> ItemVariables() const;

  // Returns about the memory, in bytes, of a JobMetrics that has so many examples.
  int64_t BytesOf(int64_t examples) const;

 private:
  friend class JobMetrics;
  // Variable of the data whose values are keys, slices or weights.
  struct Key {
    size_t column = 0;  // of the reader
    std::string name;
    bool ids = false;
    bool shared = false;  // ids are not salted
    uint64_t salt = 0;
  };
  struct Metric {
    std::string name;
    std::string weight_in_name;  // WeightInName
    MetricRule rule;
    size_t loss = SIZE_MAX;  // of a measure none
    int64_t classes = 1;     // numbers of a prediction
    int by = -1;             // index into keys_; -1: one slice
    int weight = -1;         // index into keys_; -1: examples are not weighted
    int most_values = 10;
    size_t most_slices = 0;                      // of a metric without groups
    std::map<int64_t, std::string> value_names;  // by raw id
    std::set<std::string> always;                // names of slices that have figures however few examples they have
    size_t place = 0;                            // of its groups or slices
    int catalogue = -1;
  };
  // Examples by group that several metrics share.
  struct GroupSet {
    size_t loss = 0;
    int key = -1, by = -1, weight = -1;
    bool operator==(const GroupSet&) const = default;
  };

  // Add the measures of a loss, which come before all metrics, and the metric of an index in the job.
  void AddMeasures(std::vector<MetricRule> measures);
  absl::Status AddMetric(const v1::JobConfig& job, int index, const v1::ProgramDesc& program,
                         const std::vector<Column>& columns, const Learned* learned);
  absl::StatusOr<int> KeyOf(const std::string& variable, const v1::JobConfig& job, const std::vector<Column>& columns);
  std::string SliceName(const Metric& metric, uint64_t value) const;

  std::vector<v1::LossDesc> losses_;
  std::vector<Key> keys_;
  std::vector<Metric> metrics_;
  size_t measures_ = 0;  // the first of these metrics: measures of the first loss, of which the loss is the first
  std::vector<GroupSet> group_sets_;
  std::vector<Catalogue> catalogues_;
  size_t summed_ = 0;  // measures, and metrics without groups
};

// Not thread-safe.
class JobMetrics {
 public:
  explicit JobMetrics(std::shared_ptr<const MetricPlan> plan);

  const MetricPlan& plan() const { return *plan_; }

  // Adds the examples of a lane of the job to the measures of the first loss: loss [B, 1], or [] with their mean;
  // prediction [B, 1] or [B, C]; label [B, 1], or as the prediction, float32 or int64. A lane may be in one process
  // only. InvalidArgument when sizes or types differ.
  absl::Status AddMeasures(int job_lane, const Tensor& loss, const Tensor& prediction, const Tensor& label);
  // Keeps the keys of the examples of a batch, by lane of this process; call it before the batch is fed to the program.
  // A plan for training needs none. InvalidArgument: an example has no key, or several, or no weight that is finite and
  // not negative.
  absl::Status TakeKeys(const std::vector<LaneBatch>& batches);
  // Forgets all examples.
  void Clear() { *this = JobMetrics(plan_); }
  // Adds the examples of a lane of this process to the metrics of a loss: prediction [B, 1] or [B, C], label [B, 1].
  // `loss`: index into plan().losses().
  absl::Status Add(int lane, size_t loss, const Tensor& prediction, const Tensor& label);

  // Sets the vectors of a catalogue's candidates; call it before AddQueries. `catalogue`: index into
  // plan().catalogues(). `pool` is borrowed.
  void SetItems(size_t catalogue, std::shared_ptr<const PackedItems> items, ThreadPool* pool) {
    queries_[catalogue].SetItems(std::move(items), pool);
  }
  // Adds the examples of a lane to a catalogue: query [B, W], label [B, 1].
  absl::Status AddQueries(int lane, size_t catalogue, const Tensor& query, const Tensor& label);

  // Ranks what waits in the catalogues, and logs how many items are no candidates.
  void Serialize(v1::EvaluationPart* part);
  // Returns the bytes of that part. ResourceExhausted: they are more than server 0 can take of one trainer.
  absl::StatusOr<std::string> SerializedPart();
  // DataLoss: the part is not one of this plan. InvalidArgument: `by` has too many values over all parts. *this is then
  // unusable.
  absl::Status Merge(const v1::EvaluationPart& part);
  // Returns the result, with figures of the job's metrics only if there are examples.
  MetricResult Result();
  // Returns the figures of the job's metrics, in their order. A metric without `by` always has its figures, undefined
  // if no example has a label.
  std::vector<Figure> Figures();

 private:
  // Return the value and the weight of an example of the batch whose keys were taken. -1 stands for 0, or the weight 1.
  uint64_t KeyAt(int lane, int key, int64_t example) const;
  float WeightAt(int lane, int key, int64_t example) const;
  absl::Status TakeKey(const MetricPlan::Key& key, const LaneBatch& batch, std::vector<uint64_t>* values) const;
  absl::Status CheckWeights() const;
  absl::Status CheckGroupKeys() const;
  absl::Status AddSlices(const MetricPlan::Metric& metric, int lane, const Tensor& prediction,
                         const std::vector<float>& labels);
  absl::Status CheckSlices(const MetricPlan::Metric& metric) const;
  // Returns the sums of a measure over all lanes.
  SliceSums AllLanes(const MetricPlan::Metric& measure) const;
  // Returns the sums of a slice of a metric, to which examples with predictions of `classes` numbers are added.
  SliceSums* SumsOf(const MetricPlan::Metric& metric, uint64_t slice, int64_t classes = 1);
  // Returns the figure of an item. `gains` are those of the rule up to some rank, and may grow.
  double FigureOf(const MetricRule& rule, const ItemRank& rank, std::vector<double>* gains) const;
  void Rank(size_t catalogue);
  void AddFigures(const MetricPlan::Metric& metric, std::vector<Figure>* figures);

  std::shared_ptr<const MetricPlan> plan_;
  // Values of the present batch, by lane and key.
  std::vector<std::vector<std::vector<uint64_t>>> keys_;
  std::vector<GroupExamples> groups_;                  // by group set
  std::vector<std::map<uint64_t, SliceSums>> slices_;  // by measure, and by metric without groups
  std::vector<CatalogueQueries> queries_;              // by catalogue
  // By metric of a catalogue: the slices of the queries that wait, and their weights if it has some.
  std::vector<std::vector<uint64_t>> query_slices_;
  std::vector<std::vector<float>> query_weights_;
  std::vector<std::vector<double>> gains_;  // sums by rank, as far as they were wanted
};

}  // namespace weir

#endif  // WEIR_TRAINER_METRICS_JOB_METRICS_H_
