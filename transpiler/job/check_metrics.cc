#include "transpiler/job/check_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"
#include "framework/base/status_macros.h"
#include "framework/graph/loss_facts.h"
#include "transpiler/base/setting.h"
#include "transpiler/job/check_values.h"

namespace weir {
namespace {

constexpr int64_t kMostValues = 4096;

// Returns the kind of a loss or a metric, with a setting that has no place.
absl::StatusOr<Kind> KindIn(const google::protobuf::Message& message) {
  static const auto* const nowhere = new TextPositions;
  return KindOf(Setting(&message, "", nowhere), "kind");
}

// Returns null if the message has no such field.
const google::protobuf::FieldDescriptor* FieldOf(const google::protobuf::Message& message, const std::string& field) {
  return message.GetDescriptor()->FindFieldByName(field);
}

// Returns the text in a field of a message; "" if it has no such field.
std::string TextOf(const google::protobuf::Message& message, const std::string& field) {
  const google::protobuf::FieldDescriptor* const found = FieldOf(message, field);
  const bool text = found != nullptr && !found->is_repeated() &&
                    found->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_STRING;
  return text ? message.GetReflection()->GetString(message, found) : "";
}

// Returns the field k of a metric's settings, if it has one.
std::optional<int> KOf(const google::protobuf::Message& settings) {
  const google::protobuf::FieldDescriptor* const k = FieldOf(settings, "k");
  if (k == nullptr) return std::nullopt;
  return settings.GetReflection()->GetInt32(settings, k);
}

// Returns the facts of a loss. One without a kind has none, like a loss that is registered without facts.
LossFacts FactsOf(const v1::Loss& loss) {
  const absl::StatusOr<Kind> kind = KindIn(loss);
  const LossFacts* const facts = kind.ok() ? LossFactsOf(kind->key) : nullptr;
  return facts != nullptr ? *facts : LossFacts();
}

// Whether predictions are judged by a label. Without one every example is a positive.
bool HasLabel(const v1::Loss& loss) {
  return !FactsOf(loss).label_is_optional || !TextOf(KindIn(loss)->setting.message(), "label").empty();
}

// Figures that an evaluation has besides the loss: all of them if it is not known which the first loss brings.
std::vector<std::string> BuiltInFigures(const v1::JobConfig& job) {
  const LossFacts facts = job.model().loss_size() > 0 ? FactsOf(job.model().loss(0)) : LossFacts();
  if (facts.several_numbers || (job.model().loss_size() > 0 && !HasLabel(job.model().loss(0)))) return {"loss"};
  if (!facts.kind.has_value()) return {"loss", "auc", "accuracy", "rmse", "mae"};
  switch (*facts.kind) {
    case v1::LossDesc::BINARY:
      return {"loss", "auc"};
    case v1::LossDesc::MULTI_CLASS:
      return {"loss", "accuracy"};
    case v1::LossDesc::REGRESSION:
      return {"loss", "rmse", "mae"};
  }
  return {"loss"};
}

// Whether a loss names the variable as a number that it takes as it is in the data.
bool IsOfLoss(const std::string& name, const v1::Loss& loss) {
  const absl::StatusOr<Kind> kind = KindIn(loss);
  if (!kind.ok()) return false;
  std::vector<std::string> fields = {"label", "sample_weight"};
  for (const LossFacts::Number& number : FactsOf(loss).numbers) fields.push_back(number.field);
  return std::any_of(fields.begin(), fields.end(),
                     [&](const std::string& field) { return TextOf(kind->setting.message(), field) == name; });
}

// Returns whether the values of a float variable reach a metric changed from what the data has.
bool IsTransformed(const std::string& name, const v1::JobConfig& job) {
  const v1::DenseTransform& dense = job.data().dense();
  for (const v1::DenseTransform::Column& column : dense.column()) {
    if (column.variable() == name) return column.transform() != v1::DenseTransform::NONE;
  }
  const auto& except = dense.except();
  if (dense.transform() == v1::DenseTransform::NONE) return false;
  if (!except.empty()) return std::find(except.begin(), except.end(), name) == except.end();
  return !IsLabelOrWeight(name, job);
}

// Returns the name of a figure, in front of what `by` adds: "calibration.error[weight=w]".
std::string FigureName(const v1::Metric& metric, const std::string& part) {
  return absl::StrCat(NameOf(metric), part, WeightInName(metric));
}

// Returns whether two figures may have one name. A name that ends in "=" stands for all with a value of `by` behind it.
bool MayBeOne(const std::string& x, const std::string& y) {
  const auto [begin, whole] = std::minmax(x, y, [](const auto& a, const auto& b) { return a.size() < b.size(); });
  if (begin == whole) return true;
  return begin.ends_with('=') && whole.starts_with(begin) && whole.find('[', begin.size()) == std::string::npos;
}

// Checks the variable that says how often each example counts.
absl::Status CheckWeight(const Setting& at, const v1::Metric& metric, const v1::JobConfig& job,
                         const std::vector<v1::VarDesc>& schema) {
  const std::string& name = metric.weight();
  const RankedMetric ranked = RankedOf(metric);
  if (!MetricKindOf(metric).weighs_groups && ranked.catalogue == nullptr) {
    return at.Error("weight", absl::StrCat("'", name, "' would count examples several times, and ", ranked.kind,
                                           " gives each of a group one place among the others: take it out, or use "
                                           "gauc, or a catalogue, whose queries it weights"));
  }
  std::vector<std::string> known;
  for (const v1::VarDesc& var : schema) {
    if (var.kind() != v1::DENSE || var.dims(1) != 1) continue;
    known.push_back(var.name());
    if (var.name() != name) continue;
    if (!IsTransformed(name, job)) return absl::OkStatus();
    return at.Error("weight", absl::StrCat("'", name,
                                           "' is transformed by data.dense, and its values would not be those of the "
                                           "data: give it a data.dense.column with transform: NONE, or use another "
                                           "variable"));
  }
  return at.Error("weight", absl::StrCat("'", name, "' is no float variable of the data with one value an example; ",
                                         known.empty() ? "there is none" : "there are: " + absl::StrJoin(known, ", ")));
}

// Checks a variable whose values tell examples apart.
absl::Status CheckKey(const Setting& at, std::string_view field, const std::string& name, const v1::JobConfig& job,
                      const std::vector<v1::VarDesc>& schema) {
  std::vector<std::string> known;
  for (const v1::VarDesc& var : schema) {
    if (var.dims(1) != 1) continue;
    if (var.kind() == v1::IDS || field == "by") known.push_back(var.name());
    if (var.name() != name) continue;
    if (var.kind() == v1::IDS && job.data().ids().min_count() > 1) {
      return at.Error(field, absl::StrCat("'", name,
                                          "' is ids, of which data.ids.min_count makes one id where they are "
                                          "rare: groups would be mixed. Take min_count out, or use another variable"));
    }
    if (var.kind() == v1::DENSE && field != "by") {
      return at.Error(field, absl::StrCat("'", name,
                                          "' is floats, in which a missing value is 0, and would be a group with the "
                                          "others: read it as ids"));
    }
    if (var.kind() == v1::DENSE && IsTransformed(name, job)) {
      return at.Error(field, absl::StrCat("'", name,
                                          "' is transformed by data.dense, and its values would not be those of the "
                                          "data: name it in data.dense.except, or use another variable"));
    }
    return absl::OkStatus();
  }
  return at.Error(field, absl::StrCat("'", name, "' is no variable of the data with one ",
                                      field == "by" ? "value" : "id", " an example; ",
                                      known.empty() ? "there is none" : "there are: " + absl::StrJoin(known, ", ")));
}

// `field`: "recall.catalogue".
absl::Status CheckCatalogue(const Setting& at, const std::string& field, const v1::Metric::Catalogue& catalogue,
                            const v1::JobConfig& job, const std::vector<v1::VarDesc>& schema) {
  if (catalogue.query().empty() || catalogue.item().empty() || catalogue.id().empty()) {
    return at.Error(
        field,
        "needs a query and an item, the layers whose outputs are multiplied, and an id, the variable of the "
        "data with the id of the item");
  }
  const auto id = std::find_if(schema.begin(), schema.end(), [&](const v1::VarDesc& var) {
    return var.name() == catalogue.id() && var.kind() == v1::IDS && var.dims(1) == 1;
  });
  if (id == schema.end()) {
    return at.Error(field + ".id", absl::StrCat("'", catalogue.id(), "' is no ids of the data with one slot"));
  }
  const auto& derived = job.data().derived();
  const bool is_vocabulary = std::any_of(derived.begin(), derived.end(), [&](const v1::Derived& variable) {
    return variable.has_vocabulary() && variable.name() == catalogue.id();
  });
  if (job.data().ids().min_count() > 1 && !is_vocabulary) {
    return at.Error(field + ".id", absl::StrCat("'", catalogue.id(),
                                                "' is ids, of which data.ids.min_count makes one id where they are "
                                                "rare: items would be one. Take min_count out, or make a vocabulary "
                                                "(data.derived)"));
  }
  if (!catalogue.has_items() && !is_vocabulary) {
    return at.Error(field, absl::StrCat("needs items: so many ids from `first` on are the candidates. It can be left "
                                        "out if '",
                                        catalogue.id(), "' is a vocabulary (data.derived)"));
  }
  if (!catalogue.has_items() && catalogue.has_first()) {
    return at.Error(field + ".first",
                    "is for a range of ids, whose number `items` says; without it the candidates are "
                    "all values of the vocabulary");
  }
  if (catalogue.has_items()) {
    RETURN_IF_ERROR(AtLeast(at, field + ".items", catalogue.items(), 2));
    if (catalogue.first() > std::numeric_limits<int64_t>::max() - catalogue.items()) {
      return at.Error(field + ".items", "goes beyond the largest id");
    }
  }
  for (const std::string& without : catalogue.without()) {
    const auto var = std::find_if(schema.begin(), schema.end(), [&](const v1::VarDesc& desc) {
      return desc.name() == without && desc.kind() == v1::IDS;
    });
    if (var == schema.end()) return at.Error(field + ".without", absl::StrCat("'", without, "' is no ids of the data"));
    if (job.data().ids().min_count() > 1) {
      return at.Error(field + ".without", absl::StrCat("'", without,
                                                       "' is ids, of which data.ids.min_count makes one id where they "
                                                       "are rare: take min_count out, or leave this out"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRanked(const Setting& at, const RankedMetric& ranked, const v1::JobConfig& job,
                         const std::vector<v1::VarDesc>& schema) {
  RETURN_IF_ERROR(AtLeast(at, absl::StrCat(ranked.kind, ".k"), ranked.k, 0));
  if (ranked.catalogue != nullptr) {
    const std::string field = absl::StrCat(ranked.kind, ".catalogue");
    if (!ranked.key.empty()) {
      return at.Error(absl::StrCat(ranked.kind, ".key"),
                      "makes groups, each of which is ranked by itself, and catalogue ranks all items: set one");
    }
    return CheckCatalogue(at, field, *ranked.catalogue, job, schema);
  }
  if (ranked.key.empty()) {
    return at.Error(ranked.kind,
                    absl::StrCat("needs a key: the variable of the data whose values make the groups, such as a user",
                                 ranked.may_have_catalogue ? "; or a catalogue, to rank among all items" : ""));
  }
  return CheckKey(at, absl::StrCat(ranked.kind, ".key"), ranked.key, job, schema);
}

absl::Status CheckMetric(const Setting& at, const v1::Metric& metric, const v1::JobConfig& job,
                         const std::vector<v1::VarDesc>& schema) {
  ASSIGN_OR_RETURN(const Kind kind, KindOf(at, "kind"));
  ASSIGN_OR_RETURN(const MetricKind* const rules, MetricKinds().Find(kind));
  if (const RankedMetric ranked = RankedOf(metric); !ranked.kind.empty()) {
    RETURN_IF_ERROR(CheckRanked(at, ranked, job, schema));
  }
  if (rules->check != nullptr) RETURN_IF_ERROR(rules->check(at, metric));
  const auto& losses = job.model().loss();
  const auto named = [&](const v1::Loss& loss) {
    if (loss.has_name()) return loss.name() == metric.loss();
    const absl::StatusOr<Kind> kind = KindOf(at.Member(&loss, "model.loss"), "kind");
    return kind.ok() && kind->key == metric.loss();
  };
  if (metric.has_loss() && job.has_model()) {
    if (std::none_of(losses.begin(), losses.end(), named)) {
      return at.Error("loss", absl::StrCat("'", metric.loss(),
                                           "' is the name of no loss of the model; give the loss a "
                                           "name, or leave this out for the first"));
    }
  }
  const auto judged = metric.has_loss() ? std::find_if(losses.begin(), losses.end(), named) : losses.begin();
  if (judged != losses.end() && !HasLabel(*judged) && RankedOf(metric).catalogue == nullptr) {
    return at.Error("",
                    "judges predictions by a label, and the loss has none: every example is a positive. Give the "
                    "loss a label, or take the metric out");
  }
  if (metric.has_weight()) RETURN_IF_ERROR(CheckWeight(at, metric, job, schema));
  // Figures of the first loss have these names.
  const std::vector<std::string> built_in = BuiltInFigures(job);
  const std::string name = FigureName(metric, "");
  const bool first = !metric.has_loss() || (!losses.empty() && named(losses[0]));
  v1::Metric unnamed = metric;
  unnamed.clear_name();
  if (std::find(built_in.begin(), built_in.end(), name) != built_in.end() &&
      (!first || FigureName(unnamed, "") != name)) {
    return at.Error(metric.has_name() ? "name" : "",
                    absl::StrCat("would be called ", name,
                                 ", as a figure that every evaluation has of the first loss; "
                                 "give it a name of its own"));
  }
  if (!metric.has_by() && metric.value_size() > 0) return at.Error("value", "names values of `by`, which is not set");
  if (!metric.has_by()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckKey(at, "by", metric.by(), job, schema));
  RETURN_IF_ERROR(AtLeast(at, "most_values", metric.most_values(), 1));
  return AtMost(at, "most_values", metric.most_values(), kMostValues);
}

// Checks that every evaluation has a figure of this name, by which one can be better than another.
absl::Status CheckFigure(const Setting& at, std::string_view field, const std::string& name, const v1::JobConfig& job) {
  std::vector<std::string> known = BuiltInFigures(job);
  for (const v1::Metric& metric : job.metric()) {
    const MetricKind& kind = MetricKindOf(metric);
    for (const std::string& part : kind.parts) {
      const std::string figure = FigureName(metric, part);
      if (!metric.has_by()) {
        if (figure == name && !kind.ranks_nothing.empty() && part.empty()) {
          return at.Error(field,
                          absl::StrCat("'", name, "' ",
                                       absl::Substitute(kind.ranks_nothing, NameOf(metric), WeightInName(metric))));
        }
        known.push_back(figure);
        continue;
      }
      for (const std::string& value : metric.value()) {
        known.push_back(absl::StrCat(figure, "[", metric.by(), "=", FigureValue(value), "]"));
      }
      if (name.starts_with(absl::StrCat(figure, "[", metric.by(), "=")) &&
          std::find(known.begin(), known.end(), name) == known.end()) {
        return at.Error(field, absl::StrCat("'", name,
                                            "' is in an evaluation only if many examples have that value; "
                                            "name the value in metric.value, so that it always is"));
      }
    }
  }
  if (std::find(known.begin(), known.end(), name) != known.end()) return absl::OkStatus();
  return at.Error(field,
                  absl::StrCat("'", name, "' is no figure of the evaluations; there are: ", absl::StrJoin(known, ", "),
                               job.model().loss_size() > 0 && !HasLabel(job.model().loss(0))
                                   ? ". Other figures need a loss with a label, or a metric with a catalogue"
                                   : ". Add a metric to the job"));
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

RankedMetric RankedOf(const v1::Metric& metric) {
  const absl::StatusOr<Kind> kind = KindIn(metric);
  if (!kind.ok() || FieldOf(kind->setting.message(), "key") == nullptr) return {};
  const google::protobuf::Message& settings = kind->setting.message();
  const google::protobuf::FieldDescriptor* const catalogue = FieldOf(settings, "catalogue");
  const bool has_catalogue = catalogue != nullptr && settings.GetReflection()->HasField(settings, catalogue);
  return {.kind = kind->key,
          .key = TextOf(settings, "key"),
          .k = KOf(settings).value_or(0),
          .may_have_catalogue = catalogue != nullptr,
          .catalogue = has_catalogue ? static_cast<const v1::Metric::Catalogue*>(
                                           &settings.GetReflection()->GetMessage(settings, catalogue))
                                     : nullptr};
}

const MetricKind& MetricKindOf(const v1::Metric& metric) { return **MetricKinds().Find(*KindIn(metric)); }

std::string NameOf(const v1::Metric& metric) {
  if (metric.has_name()) return metric.name();
  const absl::StatusOr<Kind> kind = KindIn(metric);
  if (!kind.ok()) return "";
  const std::optional<int> k = KOf(kind->setting.message());
  // The whole group; of a metric without groups the best one.
  const int plain = RankedOf(metric).kind.empty() ? 1 : 0;
  return k.value_or(plain) == plain ? kind->key : absl::StrCat(kind->key, "@", *k);
}

std::string WeightInName(const v1::Metric& metric) {
  return metric.has_weight() && !metric.has_name() ? absl::StrCat("[weight=", metric.weight(), "]") : "";
}

bool IsLabelOrWeight(const std::string& variable, const v1::JobConfig& job) {
  const auto& losses = job.model().loss();
  return std::any_of(losses.begin(), losses.end(), [&](const v1::Loss& loss) { return IsOfLoss(variable, loss); });
}

std::string FigureValue(const std::string& value) {
  std::string name = value;
  for (char& c : name) {
    if (static_cast<unsigned char>(c) <= ' ' || c == '[' || c == ']') c = '_';
  }
  return name;
}

absl::Status CheckMetrics(const Job& job, const std::vector<v1::VarDesc>& schema) {
  const v1::JobConfig& config = job.config;
  std::vector<std::string> names;
  for (int i = 0; i < config.metric_size(); ++i) {
    const v1::Metric& metric = config.metric(i);
    const Setting at(&metric, absl::StrCat("metric[", i, "]"), &job.positions);
    if (config.data().eval().files_size() == 0) {
      return at.Error("", "is a figure of evaluations, but data.eval names no files");
    }
    RETURN_IF_ERROR(CheckMetric(at, metric, config, schema));
    if (metric.has_name()) RETURN_IF_ERROR(CheckName(at, "name", metric.name()));
    for (const std::string& part : MetricKindOf(metric).parts) {
      const std::string figure = FigureName(metric, part);
      names.push_back(metric.has_by() ? absl::StrCat(figure, "[", metric.by(), "=") : figure);
      const auto same = [&](const std::string& earlier) { return MayBeOne(earlier, names.back()); };
      if (std::none_of(names.begin(), names.end() - 1, same)) continue;
      return at.Error(metric.has_name() ? "name" : "",
                      absl::StrCat("is the second metric with a figure named ", figure, "; give it a name of its own"));
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
