#include "transpiler/job/check_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/check_values.h"

namespace weir {
namespace {

constexpr int64_t kMostBuckets = 10'000;
constexpr int64_t kMostClasses = int64_t{1} << 20;
constexpr int64_t kMostValues = 4096;
// Figures of every evaluation, as far as the first loss has them.
constexpr const char* kBuiltIn[] = {"loss", "auc", "accuracy", "rmse", "mae"};

std::string AtK(const char* name, int k, int plain) { return k == plain ? name : absl::StrCat(name, "@", k); }

// What follows a metric's name in the names of its figures.
std::vector<std::string> PartsOf(const v1::Metric& metric) {
  if (metric.has_confusion()) return {".precision", ".recall", ".f1", ".tn", ".fp", ".fn", ".tp"};
  if (metric.has_calibration()) return {"", ".error"};
  return {""};
}

// The member of the oneof, and the variable by which it groups; null for a kind without groups.
struct Grouped {
  const char* kind = "";
  const std::string* key = nullptr;
  int k = 0;
};
Grouped GroupedOf(const v1::Metric& metric) {
  if (metric.has_gauc()) return {"gauc", &metric.gauc().key()};
  if (metric.has_ndcg()) return {"ndcg", &metric.ndcg().key(), metric.ndcg().k()};
  if (metric.has_hit_rate()) return {"hit_rate", &metric.hit_rate().key(), metric.hit_rate().k()};
  if (metric.has_recall()) return {"recall", &metric.recall().key(), metric.recall().k()};
  if (metric.has_mrr()) return {"mrr", &metric.mrr().key(), metric.mrr().k()};
  return {};
}

// Checks a variable whose values tell examples apart.
absl::Status CheckKey(const Setting& at, std::string_view field, const std::string& name, const v1::Data& data,
                      const std::vector<v1::VarDesc>& schema) {
  std::vector<std::string> known;
  for (const v1::VarDesc& var : schema) {
    if (var.dims(1) != 1) continue;
    known.push_back(var.name());
    if (var.name() != name) continue;
    if (var.kind() == v1::IDS && data.ids().min_count() > 1) {
      return at.Error(field, absl::StrCat("'", name,
                                          "' is ids, of which data.ids.min_count makes one id where they are "
                                          "rare: groups would be mixed. Take min_count out, or use another variable"));
    }
    return absl::OkStatus();
  }
  return at.Error(field, absl::StrCat("'", name, "' is no variable of the data with one value an example; there are: ",
                                      absl::StrJoin(known, ", ")));
}

absl::Status CheckKind(const Setting& at, const v1::Metric& metric, const v1::Data& data,
                       const std::vector<v1::VarDesc>& schema) {
  const Grouped grouped = GroupedOf(metric);
  if (grouped.key != nullptr) {
    const std::string field = absl::StrCat(grouped.kind, ".key");
    if (grouped.key->empty()) {
      return at.Error(grouped.kind,
                      "needs a key: the variable of the data whose values make the groups, such as a user");
    }
    RETURN_IF_ERROR(CheckKey(at, field, *grouped.key, data, schema));
    return AtLeast(at, absl::StrCat(grouped.kind, ".k"), grouped.k, 0);
  }
  if (metric.has_accuracy()) {
    RETURN_IF_ERROR(AtLeast(at, "accuracy.k", metric.accuracy().k(), 1));
    return AtMost(at, "accuracy.k", metric.accuracy().k(), kMostClasses);
  }
  if (metric.has_calibration()) {
    RETURN_IF_ERROR(AtLeast(at, "calibration.buckets", metric.calibration().buckets(), 1));
    return AtMost(at, "calibration.buckets", metric.calibration().buckets(), kMostBuckets);
  }
  if (metric.has_confusion() && !std::isfinite(metric.confusion().threshold())) {
    return at.Error("confusion.threshold", "must be a number");
  }
  return absl::OkStatus();
}

absl::Status CheckMetric(const Setting& at, const v1::Metric& metric, const v1::JobConfig& job,
                         const std::vector<v1::VarDesc>& schema) {
  RETURN_IF_ERROR(KindOf(at, "kind").status());
  RETURN_IF_ERROR(CheckKind(at, metric, job.data(), schema));
  if (metric.has_loss() && job.has_model()) {
    const auto& losses = job.model().loss();
    const auto named = [&](const v1::Loss& loss) {
      if (loss.has_name()) return loss.name() == metric.loss();
      const absl::StatusOr<Kind> kind = KindOf(at.Member(&loss, "model.loss"), "kind");
      return kind.ok() && kind->key == metric.loss();
    };
    if (std::none_of(losses.begin(), losses.end(), named)) {
      return at.Error("loss", absl::StrCat("'", metric.loss(),
                                           "' is the name of no loss of the model; give the loss a "
                                           "name, or leave this out for the first"));
    }
  }
  if (!metric.has_by() && metric.value_size() > 0) return at.Error("value", "names values of `by`, which is not set");
  if (!metric.has_by()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckKey(at, "by", metric.by(), job.data(), schema));
  RETURN_IF_ERROR(AtLeast(at, "most_values", metric.most_values(), 1));
  return AtMost(at, "most_values", metric.most_values(), kMostValues);
}

// Checks that an evaluation has a figure of this name.
absl::Status CheckFigure(const Setting& at, std::string_view field, const std::string& name, const v1::JobConfig& job) {
  std::vector<std::string> known(std::begin(kBuiltIn), std::end(kBuiltIn));
  const std::string plain = name.substr(0, name.find('['));
  for (const v1::Metric& metric : job.metric()) {
    for (const std::string& part : PartsOf(metric)) {
      const std::string figure = NameOf(metric) + part;
      if (metric.has_by() ? figure == plain && name != plain : figure == name) return absl::OkStatus();
      known.push_back(metric.has_by() ? absl::StrCat(figure, "[", metric.by(), "=...]") : figure);
    }
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return at.Error(field, absl::StrCat("'", name, "' is no figure of the evaluations; there are: ",
                                      absl::StrJoin(known, ", "), ". Add a metric to the job"));
}

absl::Status CheckEarlyStop(const Job& job) {
  const v1::Train& train = job.config.train();
  if (!train.has_early_stop()) return absl::OkStatus();
  const v1::EarlyStop& stop = train.early_stop();
  const Setting at(&stop, "train.early_stop", &job.positions);
  if (train.eval_every_steps() == 0) return at.Error("", "needs train.eval_every_steps: it judges evaluations");
  if (!job.config.distribute().sync()) {
    return at.Error("", "needs distribute.sync: true: without it trainers evaluate at steps of their own");
  }
  RETURN_IF_ERROR(AtLeast(at, "patience", stop.patience(), 1));
  if (!(stop.min_delta() >= 0) || !std::isfinite(stop.min_delta())) {
    return at.Error("min_delta", absl::StrCat("must be a number, at least 0, got ", stop.min_delta()));
  }
  return stop.has_metric() ? CheckFigure(at, "metric", stop.metric(), job.config) : absl::OkStatus();
}

}  // namespace

std::string NameOf(const v1::Metric& metric) {
  if (metric.has_name()) return metric.name();
  switch (metric.kind_case()) {
    case v1::Metric::kAuc:
      return "auc";
    case v1::Metric::kGauc:
      return "gauc";
    case v1::Metric::kNdcg:
      return AtK("ndcg", metric.ndcg().k(), 0);
    case v1::Metric::kHitRate:
      return AtK("hit_rate", metric.hit_rate().k(), 0);
    case v1::Metric::kRecall:
      return AtK("recall", metric.recall().k(), 0);
    case v1::Metric::kMrr:
      return AtK("mrr", metric.mrr().k(), 0);
    case v1::Metric::kAccuracy:
      return AtK("accuracy", metric.accuracy().k(), 1);
    case v1::Metric::kConfusion:
      return "confusion";
    case v1::Metric::kCalibration:
      return "calibration";
    case v1::Metric::kNormalizedEntropy:
      return "normalized_entropy";
    case v1::Metric::kRmse:
      return "rmse";
    case v1::Metric::kMae:
      return "mae";
    case v1::Metric::KIND_NOT_SET:
      return "";
  }
  return "";
}

absl::Status CheckMetrics(const Job& job, const std::vector<v1::VarDesc>& schema) {
  const v1::JobConfig& config = job.config;
  std::set<std::string> names;
  for (int i = 0; i < config.metric_size(); ++i) {
    const v1::Metric& metric = config.metric(i);
    const Setting at(&metric, absl::StrCat("metric[", i, "]"), &job.positions);
    if (config.data().eval().files_size() == 0) {
      return at.Error("", "is a figure of evaluations, but data.eval names no files");
    }
    RETURN_IF_ERROR(CheckMetric(at, metric, config, schema));
    if (metric.has_name()) RETURN_IF_ERROR(CheckName(at, "name", metric.name()));
    const std::string unique = absl::StrCat(NameOf(metric), metric.has_by() ? absl::StrCat("[", metric.by()) : "");
    if (!names.insert(unique).second) {
      return at.Error(metric.has_name() ? "name" : "",
                      absl::StrCat("is the second metric named ", NameOf(metric), "; give it a name of its own"));
    }
  }
  const v1::CheckpointConfig& checkpoint = config.checkpoint();
  if (checkpoint.has_best_by()) {
    const Setting at(&checkpoint, "checkpoint", &job.positions);
    RETURN_IF_ERROR(CheckFigure(at, "best_by", checkpoint.best_by(), config));
    if (checkpoint.keep_best() == 0 && !config.train().has_early_stop()) {
      return at.Error("best_by", "ranks checkpoints for keep_best, which is 0");
    }
  }
  return CheckEarlyStop(job);
}

}  // namespace weir
