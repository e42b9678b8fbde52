// Any bytes as what trainers tell each other: data statistics (also a file of checkpoints), metrics, evaluations,
// scores, and the sums behind norms. The first byte says which, and of statistics whether they end with a right
// checksum.
#include <cstdlib>
#include <memory>
#include <vector>

#include "framework/base/exact_sum.h"
#include "framework/base/stable_hash.h"
#include "google/protobuf/text_format.h"
#include "tests/fuzz/input.h"
#include "trainer/data/statistics.h"
#include "trainer/metrics/job_metrics.h"
#include "trainer/predict/scores.h"

namespace weir {
namespace {

std::string WithChecksum(std::string bytes) {
  const uint64_t sum = StableHash(bytes);
  bytes.append(reinterpret_cast<const char*>(&sum), sizeof(sum));
  return bytes;
}

void ReadStatistics(const std::string& bytes) {
  const auto statistics = DataStatistics::Parse(bytes);
  if (!statistics.ok()) return;
  for (const uint64_t key : {uint64_t{0}, uint64_t{1} << 63, ~uint64_t{0}}) (void)statistics->Keeps(key);
  for (const Moments& moments : statistics->moments()) (void)moments.Deviation();
  const auto again = DataStatistics::Parse(statistics->Serialize());
  if (!again.ok() || again->Serialize() != statistics->Serialize()) std::abort();
}

// Of a job that learns something, the first four bytes say so.
void MergeContributions(std::string first, std::string second) {
  static const DataSpec* const spec = [] {
    auto* made = new DataSpec;
    made->lanes = 4;
    made->config.mutable_ids()->set_min_count(3);
    return made;
  }();
  static const DataSpec* const learning = [] {
    auto* made = new DataSpec(*spec);
    if (!google::protobuf::TextFormat::ParseFromString(
            "csv { column { name: 'c' learn_classes: true } column { name: 'a' type: ID } } "
            "derived { name: 'v' vocabulary { of: 'a' learned { min_count: 2 most: 9 } } } "
            "derived { name: 'f' vocabulary { of: 'a' file: 'f' } } "
            "derived { name: 'q' bucketize { of: 'a' quantiles: 4 } } "
            "derived { name: 'p' negatives { of: 'a' popularity { file: 'w' } } }",
            &made->config)) {
      std::abort();
    }
    made->lanes = 1;
    return made;
  }();
  if (first.starts_with("WSC2")) {
    const auto learned = MergeStatistics(*learning, {first});
    if (learned.ok()) ReadStatistics(learned->Serialize());
    return;
  }
  const auto merged = MergeStatistics(*spec, {std::move(first), std::move(second)});
  if (merged.ok()) ReadStatistics(merged->Serialize());
}

constexpr char kMetrics[] =
    "metric { gauc { key: 'a' } } metric { auc {} by: 'a' } metric { confusion {} by: 'a' } metric { calibration { "
    "buckets: 2 } } metric { rmse {} } metric { ndcg { key: 'a' gain: EXPONENTIAL } }";
constexpr char kWeightedMetrics[] =
    "metric { gauc { key: 'a' } weight: 'w' } metric { confusion {} by: 'a' weight: 'w' } "
    "metric { calibration { buckets: 2 } weight: 'w' }";

std::shared_ptr<const MetricPlan> PlanFor(v1::LossDesc::Kind kind, const char* metrics = kMetrics) {
  v1::JobConfig job;
  if (!google::protobuf::TextFormat::ParseFromString(metrics, &job)) std::abort();
  v1::ProgramDesc program;
  program.add_losses()->set_var("loss");
  program.mutable_losses(0)->set_kind(kind);
  return MetricPlan::Create(job, program,
                            {{.name = "label"}, {.name = "a", .kind = v1::IDS, .slot_names = {"a"}}, {.name = "w"}})
      .value();
}

void MergeEvaluations(const std::shared_ptr<const MetricPlan>& plan, const std::string& first,
                      const std::string& second) {
  JobMetrics metrics(plan);
  for (const std::string* const bytes : {&first, &second}) {
    v1::EvaluationPart part;
    if (!part.ParseFromString(*bytes) || !metrics.Merge(part).ok()) return;
  }
  (void)metrics.Result().ToString();
  v1::EvaluationPart merged, twice;
  metrics.Serialize(&merged);
  // Sums of two may be more than one can have counted.
  JobMetrics again(plan);
  if (!again.Merge(merged).ok()) return;
  again.Serialize(&twice);
  if (twice.SerializeAsString() != merged.SerializeAsString()) std::abort();
}

void MergeEvaluations(v1::LossDesc::Kind kind, const std::string& first, const std::string& second) {
  static const auto* const plans = new std::vector<std::shared_ptr<const MetricPlan>>(
      {PlanFor(v1::LossDesc::BINARY), PlanFor(v1::LossDesc::MULTI_CLASS), PlanFor(v1::LossDesc::REGRESSION)});
  MergeEvaluations((*plans)[static_cast<size_t>(kind)], first, second);
}

void MergeWeighted(const std::string& first, const std::string& second) {
  static const auto* const plan =
      new std::shared_ptr<const MetricPlan>(PlanFor(v1::LossDesc::BINARY, kWeightedMetrics));
  MergeEvaluations(*plan, first, second);
}

void ReadScores(const std::string& first, const std::string& second) {
  Scores scores;
  (void)scores.Append(first);
  (void)scores.Append(second);
  (void)scores.InOrder();
  Scores again;
  if (!again.Append(scores.Serialize()).ok() || again.Serialize() != scores.Serialize()) std::abort();
}

void ReadSum(const std::string& first, const std::string& second) {
  auto sum = ExactSum::FromBytes(first);
  const auto other = ExactSum::FromBytes(second);
  if (!sum.ok() || !other.ok()) return;
  sum->Add(*other);
  (void)sum->Rounded();
  const auto again = ExactSum::FromBytes(sum->ToBytes());
  if (again.ok() && again->ToBytes() != sum->ToBytes()) std::abort();
}

}  // namespace
}  // namespace weir

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weir;
  FuzzInput input(data, size);
  const uint8_t which = input.Byte();
  if (which >= 192) {
    const std::string first = input.Piece();
    MergeWeighted(first, input.Rest());
  } else if (which >= 128) {
    const std::string first = input.Piece();
    MergeEvaluations(v1::LossDesc::BINARY, first, input.Rest());
  } else if (which % 8 == 0) {
    ReadStatistics(input.Rest());
  } else if (which % 8 == 1) {
    ReadStatistics(WithChecksum(input.Rest()));
  } else {
    const std::string first = input.Piece();
    switch (which % 8) {
      case 2:
        MergeContributions(WithChecksum(first), WithChecksum(input.Rest()));
        break;
      case 3:
        ReadSum(first, input.Rest());
        break;
      case 4:
        MergeEvaluations(v1::LossDesc::BINARY, first, input.Rest());
        break;
      case 5:
        MergeEvaluations(v1::LossDesc::MULTI_CLASS, first, input.Rest());
        break;
      case 6:
        MergeEvaluations(v1::LossDesc::REGRESSION, first, input.Rest());
        break;
      default:
        ReadScores(first, input.Rest());
    }
  }
  return 0;
}
