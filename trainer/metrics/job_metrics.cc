#include "trainer/metrics/job_metrics.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>
#include <variant>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/exact_sum.h"
#include "framework/base/feature_id.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_view.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"
#include "transpiler/job/check_metrics.h"

namespace weir {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

absl::StatusOr<std::vector<float>> LabelsOf(const Tensor& label, size_t examples) {
  if (static_cast<size_t>(label.size()) != examples) {
    return absl::InvalidArgumentError(
        absl::StrCat("label ", ShapeString(label.dims()), " is not one number for each of ", examples, " examples"));
  }
  std::vector<float> labels(examples);
  for (size_t i = 0; i < examples; ++i) {
    labels[i] = label.dtype() == v1::INT64 ? static_cast<float>(label.data<int64_t>()[i]) : label.data<float>()[i];
  }
  return labels;
}

// Largest count in a message: sums over a few thousand trainers stay within int64.
constexpr int64_t kMostExamples = int64_t{1} << 48;
constexpr uint64_t kMostLanes = uint64_t{1} << 24;

// Returns whether parts of a metric leave counts out that are 0, as most of them may be.
bool LeavesZerosOut(const MetricRule& rule) { return rule.counts > 64 && !rule.weighted; }

// Reads the sums of the weights of a slice. Returns false if one is negative or not finite, or that of all examples 0.
bool ReadWeights(const v1::EvaluationPart::Slice& slice, SliceSums* sums) {
  for (const std::string& bytes : slice.weights()) {
    ExactSum& sum = sums->weights.emplace_back();
    if (bytes.empty()) continue;
    const absl::StatusOr<ExactSum> read = ExactSum::FromBytes(bytes);
    if (!read.ok() || !std::isfinite(read->Rounded()) || read->Rounded() < 0) return false;
    sum = *read;
  }
  return !sums->weights.empty() && sums->weights[0].Rounded() > 0 && slice.counts_size() == 0;
}

void WriteWeights(const SliceSums& sums, v1::EvaluationPart::Slice* slice) {
  for (const ExactSum& sum : sums.weights) slice->add_weights(sum.Rounded() == 0 ? "" : sum.ToBytes());
}

// Reads the sums of a slice. Returns false if they are not of the sizes that the rule's figures read, or no sums.
bool ReadSlice(const MetricRule& rule, const v1::EvaluationPart::Slice& slice, SliceSums* sums) {
  *sums = {.examples = slice.examples(),
           .counts = {slice.counts().begin(), slice.counts().end()},
           .doubles = {slice.doubles().begin(), slice.doubles().end()}};
  if (sums->examples < 1 || sums->examples > kMostExamples) return false;
  if (rule.add_lane != nullptr && slice.value() >= (rule.doubles > 0 ? kMostLanes : 1)) return false;
  if (rule.weighted ? !ReadWeights(slice, sums) : slice.weights_size() > 0) return false;
  for (const int64_t count : sums->counts) {
    if (count < 0 || count > kMostExamples) return false;
  }
  if (LeavesZerosOut(rule)) {
    if (slice.count_at_size() != slice.counts_size()) return false;
    sums->counts.assign(rule.counts, 0);
    for (int i = 0; i < slice.count_at_size(); ++i) {
      const int32_t at = slice.count_at(i);
      if (at <= (i == 0 ? -1 : slice.count_at(i - 1)) || static_cast<size_t>(at) >= rule.counts) return false;
      sums->counts[static_cast<size_t>(at)] = slice.counts(i);
    }
  }
  for (const std::string& bytes : slice.sums()) {
    if (!sums->sums.emplace_back().FromBytes(bytes).ok()) return false;
  }
  const size_t counts = sums->places();
  if (sums->sums.size() != rule.sums || sums->doubles.size() != rule.doubles) return false;
  if (rule.counts > 0 || rule.sums > 0 || rule.doubles > 0) return counts == rule.counts;
  const auto side = static_cast<size_t>(std::llround(std::sqrt(static_cast<double>(counts))));
  return counts >= 4 && side * side == counts;
}

// Returns why a metric of all examples has no figures.
std::string WhyNothing(const MetricRule& rule) {
  return absl::StrCat(rule.gain == nullptr ? "no example has a label" : rule.undefined,
                      rule.weighted ? " and a weight above 0" : "");
}

// Numbers of an example in a variable; 1 if the program does not say.
int64_t WidthOf(const std::string& name, const v1::ProgramDesc& program) {
  if (program.blocks_size() == 0) return 1;
  for (const v1::VarDesc& var : program.blocks(0).vars()) {
    if (var.name() == name && var.dims_size() == 2 && var.dims(1) > 0) return var.dims(1);
  }
  return 1;
}

// Returns whether a loss of the program judges predictions by a label. If not, the program makes a label of ones, as
// every example is a positive.
bool HasLabel(const v1::ProgramDesc& program, const v1::LossDesc& loss) {
  if (program.blocks_size() == 0) return true;
  const auto& ops = program.blocks(0).ops();
  return std::none_of(ops.begin(), ops.end(), [&](const v1::OpDesc& op) {
    return op.type() == "fill_like_batch" && OutputOf(op, "Out") == loss.label();
  });
}

// Returns the number whose bits are the value of a float key.
float FloatIn(uint64_t value) { return std::bit_cast<float>(static_cast<uint32_t>(value)); }

// The shortest text that reads as this number.
std::string FloatText(float x) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof(text), x);
  return {text, end.ptr};
}

}  // namespace

absl::StatusOr<int> MetricPlan::KeyOf(const std::string& variable, const v1::JobConfig& job,
                                      const std::vector<Column>& columns) {
  if (variable.empty()) return -1;
  for (size_t k = 0; k < keys_.size(); ++k) {
    if (keys_[k].name == variable) return static_cast<int>(k);
  }
  for (size_t c = 0; c < columns.size(); ++c) {
    const Column& column = columns[c];
    if (column.name != variable || column.width != 1) continue;
    Key key{.column = c, .name = variable, .ids = column.kind == v1::IDS};
    const auto& shared = job.data().ids().shared();
    const std::string& ids_of = column.ids_of.empty() ? variable : column.ids_of;
    key.shared = std::find(shared.begin(), shared.end(), ids_of) != shared.end();
    if (key.ids) key.salt = SlotSalt(ids_of, key.shared ? "" : column.slot_names[0]);
    keys_.push_back(std::move(key));
    return static_cast<int>(keys_.size()) - 1;
  }
  return absl::NotFoundError(absl::StrCat("'", variable, "' is no variable of the data with one value an example"));
}

absl::StatusOr<std::shared_ptr<const MetricPlan>> MetricPlan::Create(const v1::JobConfig& job,
                                                                     const v1::ProgramDesc& program,
                                                                     const std::vector<Column>& columns,
                                                                     const Learned* learned) {
  auto plan = std::make_shared<MetricPlan>();
  std::vector<MetricRule> measures = MeasuresOf(program.losses(0).kind());
  if (!HasLabel(program, program.losses(0))) measures.resize(1);
  plan->AddMeasures(std::move(measures));
  for (int i = 0; i < job.metric_size(); ++i) {
    RETURN_IF_ERROR(plan->AddMetric(job, i, program, columns, learned));
  }
  return plan;
}

void MetricPlan::AddMeasures(std::vector<MetricRule> measures) {
  for (MetricRule& rule : measures) metrics_.push_back({.rule = std::move(rule), .place = summed_++});
  measures_ = metrics_.size();
}

absl::Status MetricPlan::AddMetric(const v1::JobConfig& job, int index, const v1::ProgramDesc& program,
                                   const std::vector<Column>& columns, const Learned* learned) {
  const v1::Metric& config = job.metric(index);
  Metric metric{.name = NameOf(config),
                .weight_in_name = WeightInName(config),
                .rule = MetricKindOf(config).rule(config),
                .most_values = config.most_values()};
  ASSIGN_OR_RETURN(metric.weight, KeyOf(config.weight(), job, columns));
  metric.rule.weighted = metric.weight >= 0;
  const auto loss = std::find_if(program.losses().begin(), program.losses().end(), [&](const v1::LossDesc& l) {
    return !config.has_loss() || l.name() == config.loss();
  });
  if (loss == program.losses().end()) {
    return absl::NotFoundError(absl::StrCat("metric[", index, "].loss: the program has no loss '", config.loss(), "'"));
  }
  const auto known =
      std::find_if(losses_.begin(), losses_.end(), [&](const v1::LossDesc& l) { return l.var() == loss->var(); });
  metric.loss = static_cast<size_t>(known - losses_.begin());
  if (known == losses_.end()) losses_.push_back(*loss);
  const int64_t classes = WidthOf(loss->prediction(), program);
  metric.classes = classes;
  const std::string path = absl::StrCat("metric[", index, "]");
  if (metric.rule.one_number && classes != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", metric.name, " judges a prediction of one number; that of ", loss->name(), " has ", classes));
  }
  if (const int64_t labels = WidthOf(loss->label(), program); labels != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", metric.name, " judges by one label; ", loss->name(), " has ", labels));
  }
  if (metric.rule.two_classes && loss->kind() != v1::LossDesc::BINARY) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", metric.name, " judges probabilities of two classes; ",
                                                   loss->name(), " does not predict them"));
  }
  if (metric.rule.of_group == nullptr) {
    const size_t bytes = metric.rule.SliceBytes(classes);
    metric.most_slices = std::min(kMostSlices, kMostSliceBytes / bytes);
    if (metric.most_slices == 0) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", metric.name, " of ", classes, " classes would take ",
                                                     bytes >> 20, " MiB; at most ", kMostSliceBytes >> 20,
                                                     " are possible"));
    }
  }
  ASSIGN_OR_RETURN(metric.by, KeyOf(config.by(), job, columns));
  for (const std::string& value : config.value()) {
    metric.value_names[static_cast<int64_t>(StableHash(value))] = value;
    if (int64_t id = 0; absl::SimpleAtoi(value, &id)) metric.value_names[id] = value;
    metric.always.insert(FigureValue(value));
  }
  if (metric.rule.of_group != nullptr) {
    GroupSet set{.loss = metric.loss, .by = metric.by, .weight = metric.weight};
    ASSIGN_OR_RETURN(set.key, KeyOf(metric.rule.key, job, columns));
    const auto same = std::find(group_sets_.begin(), group_sets_.end(), set);
    metric.place = static_cast<size_t>(same - group_sets_.begin());
    if (same == group_sets_.end()) group_sets_.push_back(set);
  } else {
    metric.place = summed_++;
  }
  if (const RankedMetric ranked = RankedOf(config); ranked.catalogue != nullptr) {
    std::string key = absl::StrCat(metric.loss, " ", ranked.catalogue->SerializeAsString());
    const auto same =
        std::find_if(catalogues_.begin(), catalogues_.end(), [&](const Catalogue& other) { return other.key == key; });
    metric.catalogue = static_cast<int>(same - catalogues_.begin());
    if (same == catalogues_.end()) {
      ASSIGN_OR_RETURN(CataloguePlan catalogue,
                       CataloguePlan::Create(*ranked.catalogue, job, program, columns, learned,
                                             absl::StrCat(path, ".", ranked.kind, ".catalogue")));
      catalogues_.push_back({std::move(catalogue), metric.loss, std::move(key)});
    }
  }
  metrics_.push_back(std::move(metric));
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<const MetricPlan>> MetricPlan::CreateForTraining(const v1::JobConfig& job,
                                                                                const v1::ProgramDesc& program,
                                                                                const std::vector<Column>& columns) {
  auto plan = std::make_shared<MetricPlan>();
  plan->AddMeasures(MeasuresOf(program.losses(0).kind()));
  for (int i = 0; i < job.metric_size(); ++i) {
    const v1::Metric& metric = job.metric(i);
    const bool of_first = !metric.has_loss() || metric.loss() == program.losses(0).name();
    if (!of_first || metric.has_by() || metric.has_weight() || !MetricKindOf(metric).rule(metric).in_training) continue;
    RETURN_IF_ERROR(plan->AddMetric(job, i, program, columns, /*learned=*/nullptr));
  }
  return plan;
}

std::string MetricPlan::SliceName(const Metric& metric, uint64_t value) const {
  const Key& key = keys_[static_cast<size_t>(metric.by)];
  if (!key.ids) return FloatText(FloatIn(value));
  if (value == static_cast<uint64_t>(MissingId(key.salt))) return "missing";
  const auto raw = static_cast<int64_t>(key.shared ? value : UnmixId(UnmixId(value) ^ key.salt));
  const auto named = metric.value_names.find(raw);
  if (named != metric.value_names.end()) return FigureValue(named->second);
  // Hashes of texts are nearly all beyond this.
  constexpr int64_t kLargestNumber = int64_t{1} << 48;
  return raw < kLargestNumber && raw > -kLargestNumber ? absl::StrCat(raw) : absl::StrCat("0x", absl::Hex(raw));
}

std::vector<std::string> MetricPlan::JudgedVariables() const {
  std::vector<std::string> names;
  for (const v1::LossDesc& loss : losses_) names.insert(names.end(), {loss.prediction(), loss.label()});
  for (const Catalogue& catalogue : catalogues_) names.push_back(catalogue.plan.query);
  return names;
}

std::vector<std::string> MetricPlan::ItemVariables() const {
  std::vector<std::string> names;
  for (const Catalogue& catalogue : catalogues_) names.push_back(catalogue.plan.item);
  return names;
}

int64_t MetricPlan::BytesOf(int64_t examples) const {
  // Values of `by` that are likely; each has sums of its own.
  constexpr size_t kSlices = 16;
  size_t bytes = 0;
  for (const Metric& metric : metrics_) {
    if (metric.rule.of_group == nullptr)
      bytes += metric.rule.SliceBytes(metric.classes) * (metric.by < 0 ? 1 : kSlices);
  }
  return static_cast<int64_t>(bytes) + examples * static_cast<int64_t>(group_sets_.size() * sizeof(uint64_t) * 3);
}

JobMetrics::JobMetrics(std::shared_ptr<const MetricPlan> plan)
    : plan_(std::move(plan)),
      slices_(plan_->summed_),
      query_slices_(plan_->metrics_.size()),
      query_weights_(plan_->metrics_.size()),
      gains_(plan_->metrics_.size()) {
  for (const MetricPlan::GroupSet& set : plan_->group_sets_) groups_.emplace_back(/*weighted=*/set.weight >= 0);
  for (const MetricPlan::Catalogue& catalogue : plan_->catalogues_) queries_.emplace_back(&catalogue.plan);
}

absl::Status JobMetrics::TakeKeys(const std::vector<LaneBatch>& batches) {
  for (CatalogueQueries& queries : queries_) queries.TakeIds(batches);
  keys_.resize(batches.size());
  for (size_t lane = 0; lane < batches.size(); ++lane) {
    keys_[lane].resize(plan_->keys_.size());
    for (size_t k = 0; k < plan_->keys_.size(); ++k) {
      RETURN_IF_ERROR(TakeKey(plan_->keys_[k], batches[lane], &keys_[lane][k]));
    }
  }
  RETURN_IF_ERROR(CheckWeights());
  return CheckGroupKeys();
}

absl::Status JobMetrics::TakeKey(const MetricPlan::Key& key, const LaneBatch& batch,
                                 std::vector<uint64_t>* values) const {
  const auto examples = static_cast<size_t>(batch.examples);
  values->resize(examples);
  if (!key.ids) {
    const float* const floats = std::get<Tensor>(batch.vars[key.column]).data<float>();
    // Adding 0 makes one zero of the two.
    for (size_t i = 0; i < examples; ++i) (*values)[i] = std::bit_cast<uint32_t>(floats[i] + 0.0f);
    return absl::OkStatus();
  }
  const IdBatch& ids = std::get<IdBatch>(batch.vars[key.column]);
  for (size_t i = 0; i < examples; ++i) {
    if (ids.offsets[i + 1] - ids.offsets[i] > 1) {
      return absl::InvalidArgumentError(absl::StrCat("an example has ", ids.offsets[i + 1] - ids.offsets[i],
                                                     " ids of '", key.name,
                                                     "', by which a metric groups: it needs one"));
    }
    (*values)[i] = ids.offsets[i + 1] == ids.offsets[i] ? static_cast<uint64_t>(MissingId(key.salt))
                                                        : static_cast<uint64_t>(ids.values[ids.offsets[i]]);
  }
  return absl::OkStatus();
}

absl::Status JobMetrics::CheckWeights() const {
  for (const MetricPlan::Metric& metric : plan_->metrics_) {
    if (metric.weight < 0) continue;
    const auto k = static_cast<size_t>(metric.weight);
    for (const std::vector<std::vector<uint64_t>>& lane : keys_) {
      for (const uint64_t value : lane[k]) {
        const float weight = FloatIn(value);
        // The reader refuses such a weight by its line.
        if (weight >= 0 && std::isfinite(weight)) continue;
        return absl::InvalidArgumentError(absl::StrCat("an example has the weight ", weight, " in '",
                                                       plan_->keys_[k].name, "'; metric ", metric.name,
                                                       " needs a number that is finite and not negative"));
      }
    }
  }
  return absl::OkStatus();
}

absl::Status JobMetrics::CheckGroupKeys() const {
  for (const MetricPlan::GroupSet& set : plan_->group_sets_) {
    if (set.key < 0) continue;
    const auto k = static_cast<size_t>(set.key);
    const MetricPlan::Key& key = plan_->keys_[k];
    if (!key.ids) continue;
    const auto missing = static_cast<uint64_t>(MissingId(key.salt));
    for (size_t lane = 0; lane < keys_.size(); ++lane) {
      const std::vector<uint64_t>& values = keys_[lane][k];
      for (auto at = std::find(values.begin(), values.end(), missing); at != values.end();
           at = std::find(at + 1, values.end(), missing)) {
        if (WeightAt(static_cast<int>(lane), set.weight, at - values.begin()) == 0) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "an example has no '", key.name,
            "', by which a metric groups: give it a value of its own in the file, or take the metric out of the job"));
      }
    }
  }
  return absl::OkStatus();
}

uint64_t JobMetrics::KeyAt(int lane, int key, int64_t example) const {
  return key < 0 ? 0 : keys_[static_cast<size_t>(lane)][static_cast<size_t>(key)][static_cast<size_t>(example)];
}

float JobMetrics::WeightAt(int lane, int key, int64_t example) const {
  return key < 0 ? 1 : FloatIn(KeyAt(lane, key, example));
}

absl::Status JobMetrics::AddMeasures(int job_lane, const Tensor& loss, const Tensor& prediction, const Tensor& label) {
  // A scalar is the mean over the examples, whose number is the size of the label.
  const int64_t n = loss.rank() == 0 && loss.size() == 1 ? label.size() : loss.size();
  if (n == 0) return absl::OkStatus();
  const int64_t classes = prediction.size() / n;
  // A label for each example, or for each of its numbers.
  if ((label.size() != n && label.size() != prediction.size()) || classes * n != prediction.size() || classes < 1) {
    return absl::InvalidArgumentError(absl::StrCat("loss ", ShapeString(loss.dims()), ", prediction ",
                                                   ShapeString(prediction.dims()), " and label ",
                                                   ShapeString(label.dims()), " are not of the same examples"));
  }
  const JudgedLane lane{.examples = n, .classes = classes, .loss = loss, .prediction = prediction, .label = label};
  for (size_t m = 0; m < plan_->measures_; ++m) {
    const MetricPlan::Metric& measure = plan_->metrics_[m];
    // Counts are the same in any order.
    SliceSums* const sums = SumsOf(measure, measure.rule.doubles > 0 ? static_cast<uint64_t>(job_lane) : 0);
    sums->examples += n;
    RETURN_IF_ERROR(measure.rule.add_lane(lane, sums));
  }
  return absl::OkStatus();
}

SliceSums* JobMetrics::SumsOf(const MetricPlan::Metric& metric, uint64_t slice, int64_t classes) {
  std::map<uint64_t, SliceSums>& slices = slices_[metric.place];
  const auto found = slices.find(slice);
  if (found != slices.end()) return &found->second;
  return &slices.emplace(slice, metric.rule.NoExamples(classes)).first->second;
}

absl::Status JobMetrics::Add(int lane, size_t loss, const Tensor& prediction, const Tensor& label) {
  const auto at_lane = static_cast<size_t>(lane);
  const bool keyed = at_lane < keys_.size() && !keys_[at_lane].empty();
  const size_t examples = keyed ? keys_[at_lane][0].size() : static_cast<size_t>(label.size());
  if (examples == 0) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<float> labels, LabelsOf(label, examples));
  const auto classes = static_cast<int64_t>(static_cast<size_t>(prediction.size()) / examples);
  if (classes < 1 || static_cast<size_t>(classes) * examples != static_cast<size_t>(prediction.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat("prediction ", ShapeString(prediction.dims()), " is not of ", examples, " examples"));
  }
  for (const MetricPlan::Metric& metric : plan_->metrics_) {
    if (metric.loss != loss) continue;
    if (metric.catalogue >= 0) continue;
    if (metric.rule.one_number && classes != 1) {
      return absl::InvalidArgumentError(absl::StrCat("metric ", metric.name, " needs a prediction of one number, not ",
                                                     ShapeString(prediction.dims())));
    }
    if (metric.rule.add != nullptr) RETURN_IF_ERROR(AddSlices(metric, lane, prediction, labels));
  }
  const float* const p = prediction.data<float>();
  for (size_t s = 0; s < groups_.size(); ++s) {
    const MetricPlan::GroupSet& set = plan_->group_sets_[s];
    if (set.loss != loss) continue;
    for (size_t i = 0; i < examples; ++i) {
      if (std::isnan(labels[i])) continue;
      const auto at = static_cast<int64_t>(i);
      const float weight = WeightAt(lane, set.weight, at);
      if (weight == 0) continue;
      groups_[s].Add(KeyAt(lane, set.by, at), KeyAt(lane, set.key, at), {p[i], labels[i]}, weight);
    }
  }
  return absl::OkStatus();
}

absl::Status JobMetrics::AddQueries(int lane, size_t catalogue, const Tensor& query, const Tensor& label) {
  ASSIGN_OR_RETURN(const std::vector<float> labels, LabelsOf(label, static_cast<size_t>(label.size())));
  RETURN_IF_ERROR(queries_[catalogue].Add(lane, query, labels, [&](size_t example) {
    for (size_t m = 0; m < plan_->metrics_.size(); ++m) {
      const MetricPlan::Metric& metric = plan_->metrics_[m];
      if (metric.catalogue != static_cast<int>(catalogue)) continue;
      const auto at = static_cast<int64_t>(example);
      query_slices_[m].push_back(KeyAt(lane, metric.by, at));
      if (metric.weight >= 0) query_weights_[m].push_back(WeightAt(lane, metric.weight, at));
    }
  }));
  if (!queries_[catalogue].full()) return absl::OkStatus();
  Rank(catalogue);
  for (const MetricPlan::Metric& metric : plan_->metrics_) {
    if (metric.catalogue == static_cast<int>(catalogue)) RETURN_IF_ERROR(CheckSlices(metric));
  }
  return absl::OkStatus();
}

double JobMetrics::FigureOf(const MetricRule& rule, const ItemRank& rank, std::vector<double>* gains) const {
  const int64_t first = rank.above + 1, end = rank.above + rank.equal + 1;
  const int64_t last = rule.last_rank > 0 ? std::min(end, rule.last_rank) : end;
  if (last < first) return 0;
  // Where many products are equal, the sums of all gains up to a rank are kept: the next item often has as many.
  constexpr int64_t kManyEqual = 64;
  double sum = 0;
  if (last - first < kManyEqual) {
    for (int64_t r = first; r <= last; ++r) sum += rule.gain(r);
  } else {
    if (gains->empty()) gains->push_back(0);
    while (static_cast<int64_t>(gains->size()) <= last) {
      gains->push_back(gains->back() + rule.gain(static_cast<int64_t>(gains->size())));
    }
    sum = (*gains)[static_cast<size_t>(last)] - (*gains)[static_cast<size_t>(first - 1)];
  }
  return sum / static_cast<double>(rank.equal + 1);
}

void JobMetrics::Rank(size_t catalogue) {
  queries_[catalogue].Rank([&](int64_t index, const ItemRank* rank) {
    for (size_t m = 0; m < plan_->metrics_.size(); ++m) {
      const MetricPlan::Metric& metric = plan_->metrics_[m];
      if (metric.catalogue != static_cast<int>(catalogue)) continue;
      const auto query = static_cast<size_t>(index);
      const float weight = metric.weight < 0 ? 1 : query_weights_[m][query];
      if (weight == 0) continue;
      SliceSums* const sums = SumsOf(metric, query_slices_[m][query]);
      sums->AddExample(weight);
      if (rank != nullptr) sums->sums[0].Add(FigureOf(metric.rule, *rank, &gains_[m]), weight);
    }
  });
  for (size_t m = 0; m < plan_->metrics_.size(); ++m) {
    if (plan_->metrics_[m].catalogue != static_cast<int>(catalogue)) continue;
    query_slices_[m].clear();
    query_weights_[m].clear();
  }
}

absl::Status JobMetrics::AddSlices(const MetricPlan::Metric& metric, int lane, const Tensor& prediction,
                                   const std::vector<float>& labels) {
  const auto classes = prediction.size() / static_cast<int64_t>(labels.size());
  // Examples of one slice often follow each other.
  uint64_t last = 0;
  SliceSums* sums = nullptr;
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::isnan(labels[i])) continue;  // Loss.label_may_be_missing
    const auto at = static_cast<int64_t>(i);
    const float weight = WeightAt(lane, metric.weight, at);
    if (weight == 0) continue;
    const uint64_t slice = KeyAt(lane, metric.by, at);
    if (sums == nullptr || slice != last) {
      sums = SumsOf(metric, slice, classes);
      last = slice;
    }
    sums->AddExample(weight);
    metric.rule.add({prediction.data<float>() + at * classes, classes, labels[i], weight}, sums);
  }
  return CheckSlices(metric);
}

absl::Status JobMetrics::CheckSlices(const MetricPlan::Metric& metric) const {
  if (metric.by < 0 || slices_[metric.place].size() <= metric.most_slices) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("metric ", metric.name, ": '", plan_->keys_[static_cast<size_t>(metric.by)].name, "' has more than ",
                   metric.most_slices, " values, and each would have sums of its own; for many groups there is gauc"));
}

void JobMetrics::Serialize(v1::EvaluationPart* part) {
  for (size_t c = 0; c < queries_.size(); ++c) {
    Rank(c);
    if (queries_[c].unknown() == 0) continue;
    LOG(WARNING) << queries_[c].unknown() << " of this trainer's " << queries_[c].ranked()
                 << " queries of the evaluation have a '" << plan_->catalogues_[c].plan.id.name
                 << "' that is no candidate of the catalogue, and count as not found";
  }
  for (GroupExamples& groups : groups_) groups.Serialize(part->add_groups());
  for (const MetricPlan::Metric& metric : plan_->metrics_) {
    if (metric.rule.of_group != nullptr) continue;
    v1::EvaluationPart::Slices* const out = part->add_slices();
    for (const auto& [value, sums] : slices_[metric.place]) {
      v1::EvaluationPart::Slice* const slice = out->add_slice();
      slice->set_value(value);
      slice->set_examples(sums.examples);
      for (size_t i = 0; i < sums.counts.size(); ++i) {
        if (LeavesZerosOut(metric.rule)) {
          if (sums.counts[i] == 0) continue;
          slice->add_count_at(static_cast<int32_t>(i));
        }
        slice->add_counts(sums.counts[i]);
      }
      WriteWeights(sums, slice);
      for (const DoubleSum& sum : sums.sums) slice->add_sums(sum.ToBytes());
      slice->mutable_doubles()->Add(sums.doubles.begin(), sums.doubles.end());
    }
  }
}

absl::StatusOr<std::string> JobMetrics::SerializedPart() {
  v1::EvaluationPart part;
  Serialize(&part);
  // Metrics of groups send every example. Server 0 has room for twice as much of one trainer: the evaluation before may
  // still be there.
  constexpr size_t kMostBytes = size_t{512} << 20;
  if (part.ByteSizeLong() > kMostBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the evaluation of one trainer has ", part.ByteSizeLong() >> 20,
                     " MiB of examples for auc, gauc and the metrics of groups; ", kMostBytes >> 20,
                     " MiB are possible, of about 60 million examples: evaluate fewer examples, on more trainers, or "
                     "without these metrics"));
  }
  return part.SerializeAsString();
}

absl::Status JobMetrics::Merge(const v1::EvaluationPart& part) {
  const absl::Status bad = absl::DataLossError("metrics of a trainer cannot be read: they are of another job");
  if (static_cast<size_t>(part.groups_size()) != groups_.size() ||
      static_cast<size_t>(part.slices_size()) != slices_.size()) {
    return bad;
  }
  for (int s = 0; s < part.groups_size(); ++s) {
    if (!groups_[static_cast<size_t>(s)].Merge(part.groups(s))) return bad;
  }
  std::vector<const MetricPlan::Metric*> summed;
  for (const MetricPlan::Metric& metric : plan_->metrics_) {
    if (metric.rule.of_group == nullptr) summed.push_back(&metric);
  }
  for (int m = 0; m < part.slices_size(); ++m) {
    for (const v1::EvaluationPart::Slice& slice : part.slices(m).slice()) {
      SliceSums sums;
      if (!ReadSlice(summed[static_cast<size_t>(m)]->rule, slice, &sums)) return bad;
      slices_[static_cast<size_t>(m)][slice.value()].Merge(sums);
      // However the examples are spread over trainers, the same evaluation is too much.
      RETURN_IF_ERROR(CheckSlices(*summed[static_cast<size_t>(m)]));
    }
  }
  return absl::OkStatus();
}

void JobMetrics::AddFigures(const MetricPlan::Metric& metric, std::vector<Figure>* figures) {
  struct Slice {
    uint64_t value = 0;
    double examples = 0;  // or the sum of their weights
    std::vector<Figure> parts = {};
  };
  std::vector<Slice> slices;
  if (metric.rule.of_group != nullptr) {
    for (const GroupExamples::SliceFigure& figure : groups_[metric.place].Figures(metric.rule)) {
      slices.push_back({figure.slice, figure.examples, {{"", figure.value}}});
    }
  } else {
    for (const auto& [value, sums] : slices_[metric.place]) {
      slices.push_back({value, sums.Examples(), metric.rule.figures(sums)});
    }
  }
  const bool nothing = metric.by < 0 && slices.empty();
  if (nothing) {
    const MetricRule& rule = metric.rule;
    slices.push_back(
        {0, 0,
         rule.of_group != nullptr ? std::vector<Figure>{{"", kNan}} : rule.figures(rule.NoExamples(metric.classes))});
  }
  std::stable_sort(slices.begin(), slices.end(),
                   [](const Slice& x, const Slice& y) { return x.examples > y.examples; });
  if (metric.by >= 0 && slices.size() > static_cast<size_t>(metric.most_values)) {
    const auto fewer = slices.begin() + metric.most_values;
    const auto is_left_out = [&](const Slice& slice) {
      return metric.always.count(plan_->SliceName(metric, slice.value)) == 0;
    };
    slices.erase(metric.always.empty() ? fewer : std::remove_if(fewer, slices.end(), is_left_out), slices.end());
  }
  for (const Slice& slice : slices) {
    const std::string by = metric.by < 0 ? ""
                                         : absl::StrCat("[", plan_->keys_[static_cast<size_t>(metric.by)].name, "=",
                                                        plan_->SliceName(metric, slice.value), "]");
    for (const Figure& part : slice.parts) {
      figures->push_back({.name = absl::StrCat(metric.name, part.name, metric.weight_in_name, by),
                          .value = part.value,
                          .lower_is_better = part.lower_is_better,
                          .is_count = part.is_count,
                          .undefined = nothing ? WhyNothing(metric.rule) : metric.rule.undefined});
    }
  }
}

std::vector<Figure> JobMetrics::Figures() {
  std::vector<Figure> figures;
  for (size_t m = plan_->measures_; m < plan_->metrics_.size(); ++m) AddFigures(plan_->metrics_[m], &figures);
  return figures;
}

SliceSums JobMetrics::AllLanes(const MetricPlan::Metric& measure) const {
  std::vector<LaneRange> nodes;
  std::vector<SliceSums> sums;
  for (const auto& [lane, of_lane] : slices_[measure.place]) {
    nodes.push_back({static_cast<int>(lane), 1});
    sums.push_back(of_lane);
  }
  if (nodes.empty()) return measure.rule.NoExamples(1);
  for (const LaneAdd& add : TreeAdds(nodes, nodes.back().begin + 1)) sums[add.left].Merge(sums[add.right]);
  return std::move(sums[0]);
}

MetricResult JobMetrics::Result() {
  MetricResult result;
  for (size_t m = 0; m < plan_->measures_; ++m) {
    const MetricPlan::Metric& measure = plan_->metrics_[m];
    const SliceSums sums = AllLanes(measure);
    if (m == 0) {
      result.samples = sums.examples;
      result.not_finite = sums.counts[0];
    }
    std::vector<Figure> figures = measure.rule.figures(sums);
    std::move(figures.begin(), figures.end(), std::back_inserter(result.measures));
  }
  if (result.samples > 0) result.figures = Figures();
  return result;
}

}  // namespace weir
