#include "transpiler/job/model_differences.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/textproto.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "proto/agreement.pb.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

constexpr char kNotSet[] = "not set";
constexpr int kMostDepth = 64;  // messages of a job are five deep

// Fields that determine what state servers keep beside the values.
bool IsOfState(const pb::FieldDescriptor& field) {
  static const auto* const of_state = new std::set<std::string, std::less<>>{
      "weir.v1.JobConfig.optimizer", "weir.v1.Table.optimizer", "weir.v1.Table.logical_shards",
      "weir.v1.Table.lifecycle", "weir.v1.Segment.optimizer"};
  return of_state->count(field.full_name()) > 0;
}

// Fields that make no difference, with all that is inside them.
bool IsIgnored(const pb::FieldDescriptor& field) {
  static const auto* const ignored = new std::set<std::string, std::less<>>{
      "weir.v1.Data.train",
      "weir.v1.Data.eval",
      "weir.v1.Data.shuffle",
      "weir.v1.Data.shuffle_memory_mb",
      "weir.v1.Data.shuffle_window",
      "weir.v1.Data.batch_size",
      "weir.v1.Data.bad_line",
      "weir.v1.Data.drop_last",
      "weir.v1.Data.prefetch_batches",
      "weir.v1.Data.pipe",
      "weir.v1.Data.pipe_list",
      "weir.v1.Data.pipe_deadline_s",
      "weir.v1.Data.follow",
      "weir.v1.Data.may_be_absent",
      // Layout of a file, on which its examples do not depend.
      "weir.v1.Csv.header",
      "weir.v1.Csv.separator",
      "weir.v1.Csv.trim",
      "weir.v1.Csv.quote",
      "weir.v1.Csv.decimal_comma",
      "weir.v1.Csv.skip_lines",
      "weir.v1.Csv.skip_blank_lines",
      "weir.v1.Csv.comment",
      "weir.v1.Csv.Column.whole_floats",
      "weir.v1.Table.fetch",
      "weir.v1.Table.bad_gradient",
      "weir.v1.Table.disk",
      "weir.v1.Table.wire",
      "weir.v1.Table.cache",
      "weir.v1.Table.load",
  };
  const std::string& of = field.containing_type()->full_name();
  if (of == "weir.v1.JobConfig") {
    return field.name() != "data" && field.name() != "model" && field.name() != "table";
  }
  if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE &&
      field.message_type()->full_name() == "weir.v1.Initializer") {
    // The values of other parameters are those of the checkpoint.
    return of != "weir.v1.Table" && of != "weir.v1.Segment";
  }
  return ignored->count(field.full_name()) > 0;
}

bool IsLoss(const pb::Descriptor& message) {
  static const auto* const kinds = [] {
    auto* const kinds = new std::set<const pb::Descriptor*>;
    const pb::Descriptor* const loss = v1::Loss::descriptor();
    for (int i = 0; i < loss->field_count(); ++i) {
      if (loss->field(i)->message_type() != nullptr) kinds->insert(loss->field(i)->message_type());
    }
    return kinds;
  }();
  return kinds->count(&message) > 0;
}

// Fields that only training reads.
bool IsOfTraining(const pb::FieldDescriptor& field) {
  static const auto* const of_training = new std::set<std::string, std::less<>>{
      "weir.v1.Mlp.dropout",
      "weir.v1.Dropout.rate",
      "weir.v1.BatchNorm.momentum",
      "weir.v1.Dice.momentum",
      "weir.v1.Prelu.initial",
      "weir.v1.Table.trainable",
      "weir.v1.Table.min_value",
      "weir.v1.Table.max_value",
      "weir.v1.Loss.name",
      "weir.v1.Loss.weight",
      "weir.v1.Loss.label_may_be_missing",
      "weir.v1.Loss.learned_weight",
  };
  static const auto* const of_losses = new std::set<std::string, std::less<>>{
      "label", "sample_weight", "epsilon", "gamma", "alpha", "margin", "delta", "quantile", "item_id"};
  if (of_training->count(field.full_name()) > 0) return true;
  return IsLoss(*field.containing_type()) && of_losses->count(field.name()) > 0;
}

std::string InBraces(const pb::Message& message) {
  const std::string text = SingleLineText(message);
  return absl::StrCat("{ ", text, text.empty() ? "}" : " }");
}

// One element of a repeated field, or none of it where the other job has one.
struct Element {
  std::string key;
  int index = -1;
};

class Comparer {
 public:
  Comparer(CheckpointUse use, std::vector<SettingDifference>* found) : use_(use), found_(*found) {}

  void Compare(const pb::Message& was, const pb::Message& is, const std::string& prefix, int depth) {
    const pb::Descriptor* const descriptor = was.GetDescriptor();
    if (descriptor->full_name() == "google.protobuf.Any" || depth > kMostDepth) {
      Differ(prefix, InBraces(was), InBraces(is));
      return;
    }
    std::set<const pb::OneofDescriptor*> other_kinds;
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const pb::FieldDescriptor& field = *descriptor->field(i);
      if (IsOfState(field) ? use_ != CheckpointUse::kLoading : IsIgnored(field)) continue;
      if (use_ == CheckpointUse::kPrediction && IsOfTraining(field)) continue;
      const std::string path = prefix.empty() ? field.name() : absl::StrCat(prefix, ".", field.name());
      if (field.is_repeated()) {
        CompareRepeated(was, is, field, path, depth);
      } else if (const pb::OneofDescriptor* const kind = field.containing_oneof();
                 kind != nullptr && KindOf(was, *kind) != KindOf(is, *kind)) {
        if (other_kinds.insert(kind).second) {
          Differ(absl::StrCat(prefix, ".", kind->name()), KindOf(was, *kind), KindOf(is, *kind));
        }
      } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
        CompareMessages(was, is, field, path, depth);
      } else {
        Differ(path, Value(was, field), Value(is, field));
      }
    }
  }

 private:
  void Differ(const std::string& path, const std::string& was, const std::string& is) {
    if (was != is) found_.push_back({.path = path, .was = was, .is = is});
  }

  static std::string KindOf(const pb::Message& message, const pb::OneofDescriptor& kind) {
    const pb::FieldDescriptor* const set = message.GetReflection()->GetOneofFieldDescriptor(message, &kind);
    return set == nullptr ? kNotSet : set->name();
  }

  static std::string Value(const pb::Message& message, const pb::FieldDescriptor& field, int index = -1) {
    // A field without a written default may mean something of its own when it is absent (padding_id).
    if (index < 0 && !message.GetReflection()->HasField(message, &field) &&
        (!field.has_default_value() || field.containing_oneof() != nullptr)) {
      return kNotSet;
    }
    std::string text;
    pb::TextFormat::PrintFieldValueToString(message, &field, index, &text);
    return text;
  }

  void CompareMessages(const pb::Message& was, const pb::Message& is, const pb::FieldDescriptor& field,
                       const std::string& path, int depth) {
    const pb::Reflection& reflection = *was.GetReflection();
    const bool had = reflection.HasField(was, &field), has = reflection.HasField(is, &field);
    if (!had && !has) return;
    const pb::Message& earlier = reflection.GetMessage(was, &field);
    const pb::Message& now = reflection.GetMessage(is, &field);
    if (had != has && !field.options().GetExtension(v1::absent_is_default)) {
      Differ(path, had ? InBraces(earlier) : kNotSet, has ? InBraces(now) : kNotSet);
    } else {
      Compare(earlier, now, path, depth + 1);
    }
  }

  // Returns what counts of a repeated field, with a key where elements are known by their names and not by their place.
  static std::vector<Element> Elements(const pb::Message& message, const pb::FieldDescriptor& field) {
    std::vector<Element> elements;
    const auto* const csv = field.full_name() == "weir.v1.Csv.column" ? static_cast<const v1::Csv*>(&message) : nullptr;
    for (int i = 0; i < message.GetReflection()->FieldSize(message, &field); ++i) {
      // A column that is not read belongs to the layout of a file.
      if (csv != nullptr && csv->column(i).type() == v1::Csv::Column::SKIP) continue;
      Element element = {.index = i};
      if (field.full_name() == "weir.v1.Model.layer") {
        element.key = static_cast<const v1::Model&>(message).layer(i).name();
      } else if (field.full_name() == "weir.v1.JobConfig.table") {
        element.key = static_cast<const v1::JobConfig&>(message).table(i).name();
      }
      elements.push_back(std::move(element));
    }
    return elements;
  }

  void CompareRepeated(const pb::Message& was, const pb::Message& is, const pb::FieldDescriptor& field,
                       const std::string& path, int depth) {
    std::vector<Element> had = Elements(was, field);
    const std::vector<Element> has = Elements(is, field);
    const bool by_name = std::any_of(has.begin(), has.end(), [](const Element& e) { return !e.key.empty(); });
    if (by_name) {
      // Bring the elements into the order of this job; those that it lacks come last.
      std::map<std::string, int> earlier;
      for (const Element& element : had) earlier.emplace(element.key, element.index);
      std::vector<Element> sorted;
      for (const Element& element : has) {
        const auto found = earlier.find(element.key);
        sorted.push_back({.key = element.key, .index = found == earlier.end() ? -1 : found->second});
        if (found != earlier.end()) earlier.erase(found);
      }
      for (const Element& element : had) {
        if (earlier.count(element.key) > 0) sorted.push_back(element);
      }
      had = std::move(sorted);
    }
    for (size_t i = 0; i < std::max(had.size(), has.size()); ++i) {
      const int before = i < had.size() ? had[i].index : -1, now = i < has.size() ? has[i].index : -1;
      const std::string element = absl::StrCat(path, "[", now >= 0 ? now : before, "]");
      if (before < 0 || now < 0) {
        Differ(element, before < 0 ? kNotSet : ElementText(was, field, before),
               now < 0 ? kNotSet : ElementText(is, field, now));
      } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
        const pb::Reflection& reflection = *was.GetReflection();
        Compare(reflection.GetRepeatedMessage(was, &field, before), reflection.GetRepeatedMessage(is, &field, now),
                element, depth + 1);
      } else {
        Differ(element, Value(was, field, before), Value(is, field, now));
      }
    }
  }

  static std::string ElementText(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
    return field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE
               ? InBraces(message.GetReflection()->GetRepeatedMessage(message, &field, index))
               : Value(message, field, index);
  }

  const CheckpointUse use_;
  std::vector<SettingDifference>& found_;
};

}  // namespace

std::vector<SettingDifference> ModelDifferences(const v1::JobConfig& trained, const v1::JobConfig& job,
                                                CheckpointUse use) {
  std::vector<SettingDifference> found;
  Comparer(use, &found).Compare(trained, job, "", 0);
  return found;
}

absl::StatusOr<v1::JobConfig> ReadTrainedJob(std::string_view job_text) {
  v1::JobConfig job;
  if (ParseForeignText(job_text, &job)) return job;
  return absl::InvalidArgumentError("the job text of the checkpoint cannot be read by this build");
}

std::string ModelDifferenceText(std::string_view job_text, const v1::JobConfig& job, CheckpointUse use) {
  if (job_text.empty()) return "";
  const absl::StatusOr<v1::JobConfig> trained = ReadTrainedJob(job_text);
  if (!trained.ok()) return "";
  const std::vector<SettingDifference> all = ModelDifferences(*trained, job, use);
  const size_t shown = std::min<size_t>(all.size(), 3);
  std::string text;
  for (size_t i = 0; i < shown; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", all[i].path, " was ", all[i].was, ", and is ", all[i].is,
                    " in this job");
  }
  if (const size_t more = all.size() - shown; more > 0) {
    absl::StrAppend(&text, "; ", more, more == 1 ? " more setting differs" : " more settings differ");
  }
  return text;
}

}  // namespace weir
