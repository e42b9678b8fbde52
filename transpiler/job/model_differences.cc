#include "transpiler/job/model_differences.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "framework/base/textproto.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "transpiler/job/decided.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

namespace pb = google::protobuf;

constexpr char kNotSet[] = "not set";
constexpr char kAny[] = "google.protobuf.Any";
constexpr int kMostDepth = 64;  // messages of a job are five deep

bool IsMessage(const pb::FieldDescriptor& field) { return field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE; }

// Returns true if the initial values of a row depend on the seed.
bool IsRandom(const v1::Initializer& initializer, int width) {
  // The default is constant for rows of one value.
  if (initializer.kind_case() == v1::Initializer::KIND_NOT_SET) return width != 1;
  return !initializer.has_constant();
}

bool HasRandomRows(const v1::Table& table) {
  if (!table.is_distributed()) return false;
  if (table.segment().empty()) return IsRandom(table.initializer(), table.width());
  const auto& segments = table.segment();
  return std::any_of(segments.begin(), segments.end(), [&](const v1::Segment& segment) {
    return IsRandom(segment.has_initializer() ? segment.initializer() : table.initializer(), table.width());
  });
}

// Returns true if a prediction may draw random numbers.
bool Draws(const v1::JobConfig& job) {
  const auto& tables = job.table();
  const auto& derived = job.data().derived();
  return std::any_of(tables.begin(), tables.end(), HasRandomRows) ||
         std::any_of(derived.begin(), derived.end(), [](const v1::Derived& each) { return each.has_negatives(); });
}

// The variables of the data on which predictions may depend.
class ReadVariables {
 public:
  explicit ReadVariables(const v1::JobConfig& job) : all_(job.has_program()) {
    const pb::FieldDescriptor& model = *v1::JobConfig::descriptor()->FindFieldByName("model");
    AddTexts(job.model(), Decided().In(model));
    // A derived variable may be made of those before it.
    for (auto each = job.data().derived().rbegin(); each != job.data().derived().rend(); ++each) {
      if (!Has(each->name())) continue;
      const Decided of_derived = Decided()
                                     .In(*v1::JobConfig::descriptor()->FindFieldByName("data"))
                                     .In(*v1::Data::descriptor()->FindFieldByName("derived"));
      AddTexts(*each, of_derived);
    }
  }

  // `name`: of a variable, or of a slot of one.
  bool Has(const std::string& name) const { return all_ || texts_.contains(name); }
  const std::set<std::string>& texts() const { return texts_; }

 private:
  // Adds every text, whether it is a name of a variable or not.
  void AddTexts(const pb::Message& message, const Decided& decided) {
    if (message.GetDescriptor()->full_name() == kAny) {
      all_ = true;  // a user's layer or loss may read anything
      return;
    }
    std::vector<const pb::FieldDescriptor*> fields;
    const pb::Reflection& reflection = *message.GetReflection();
    reflection.ListFields(message, &fields);
    for (const pb::FieldDescriptor* field : fields) {
      const Decided inside = decided.In(*field);
      if (inside.what() != v1::SCORES) continue;
      const int size = field->is_repeated() ? reflection.FieldSize(message, field) : 1;
      for (int i = 0; i < size; ++i) {
        if (IsMessage(*field)) {
          AddTexts(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                        : reflection.GetMessage(message, field),
                   inside);
        } else if (field->cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
          const std::string text = field->is_repeated() ? reflection.GetRepeatedString(message, field, i)
                                                        : reflection.GetString(message, field);
          texts_.insert(text);
          // A column of a wider variable: "dense[3]".
          texts_.insert(text.substr(0, text.find('[')));
        }
      }
    }
  }

  bool all_;
  std::set<std::string> texts_;
};

bool IsWord(const std::string& name, const std::string& words) {
  const std::vector<std::string> all = absl::StrSplit(words, ' ');
  return std::find(all.begin(), all.end(), name) != all.end();
}

std::string InBraces(const pb::Message& message) {
  const std::string text = SingleLineText(message);
  return absl::StrCat("{ ", text, text.empty() ? "}" : " }");
}

class Comparer {
 public:
  Comparer(const v1::JobConfig& trained, const v1::JobConfig& job, CheckpointUse use,
           std::vector<SettingDifference>* found)
      : use_(use),
        draws_(Draws(trained) || Draws(job)),
        without_model_(trained.has_program() || job.has_program()),
        read_before_(trained),
        read_now_(job),
        found_(*found) {}

  // `known_by`: fields of the messages that are known to mean the same, separated by blanks.
  void Compare(const pb::Message& was, const pb::Message& is, const Decided& decided, const std::string& prefix,
               int depth, const std::string& known_by = "") {
    const pb::Descriptor* const descriptor = was.GetDescriptor();
    if (descriptor->full_name() == kAny || depth > kMostDepth) {
      Differ(prefix, InBraces(was), InBraces(is));
      return;
    }
    std::set<const pb::OneofDescriptor*> other_kinds;
    for (int i = 0; i < descriptor->field_count(); ++i) {
      const pb::FieldDescriptor& field = *descriptor->field(i);
      const Decided inside = decided.In(field);
      if (!Counts(inside, was, is, field) || IsWord(field.name(), known_by)) continue;
      const std::string path = prefix.empty() ? field.name() : absl::StrCat(prefix, ".", field.name());
      if (field.is_repeated()) {
        CompareRepeated(was, is, field, inside, prefix, path, depth);
      } else if (const pb::OneofDescriptor* const kind = field.containing_oneof();
                 kind != nullptr && KindOf(was, *kind) != KindOf(is, *kind)) {
        const std::string now = KindOf(is, *kind);
        if (IsSetInEither(was, is, field) && other_kinds.insert(kind).second) {
          Differ(absl::StrCat(prefix, ".", kind->name()), KindOf(was, *kind), now,
                 now == kNotSet ? prefix : absl::StrCat(prefix, ".", now));
        }
      } else if (IsMessage(field)) {
        CompareMessages(was, is, field, inside, path, depth);
      } else {
        Differ(path, Value(was, field), Value(is, field));
      }
    }
  }

 private:
  bool Counts(const Decided& inside, const pb::Message& was, const pb::Message& is,
              const pb::FieldDescriptor& field) const {
    const bool predicts = use_ == CheckpointUse::kPrediction;
    const bool of_table = was.GetDescriptor() == v1::Table::descriptor();
    const bool was_distributed = of_table && static_cast<const v1::Table&>(was).is_distributed();
    const bool is_distributed = of_table && static_cast<const v1::Table&>(is).is_distributed();
    if (predicts && without_model_ && field.message_type() == v1::Model::descriptor()) return false;
    // What is inside says it, and a table or an element that is not there counts. A field that says nothing counts too.
    if (!inside.what().has_value()) return true;
    switch (*inside.what()) {
      case v1::COURSE:
        return false;
      case v1::SCORES:
        return true;
      case v1::SCORES_OF_NEW_IDS:
        return !predicts || (of_table ? was_distributed || is_distributed : draws_);
      case v1::SCORES_IF_DENSE:
        return !predicts || !was_distributed || !is_distributed;
      case v1::TRAINING:
        return !predicts;
      case v1::STATE:
        return use_ == CheckpointUse::kLoading;
    }
    return true;
  }

  void Differ(const std::string& path, const std::string& was, const std::string& is) { Differ(path, was, is, path); }
  void Differ(const std::string& path, const std::string& was, const std::string& is, const std::string& place) {
    if (was != is) found_.push_back({.path = path, .was = was, .is = is, .place = place});
  }

  static bool IsSetInEither(const pb::Message& was, const pb::Message& is, const pb::FieldDescriptor& field) {
    return was.GetReflection()->HasField(was, &field) || is.GetReflection()->HasField(is, &field);
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
                       const Decided& inside, const std::string& path, int depth) {
    const pb::Reflection& reflection = *was.GetReflection();
    const bool had = reflection.HasField(was, &field), has = reflection.HasField(is, &field);
    if (!had && !has) return;
    const pb::Message& earlier = reflection.GetMessage(was, &field);
    const pb::Message& now = reflection.GetMessage(is, &field);
    if (had != has && !field.options().GetExtension(v1::absent_is_default)) {
      Differ(path, had ? InBraces(earlier) : kNotSet, has ? InBraces(now) : kNotSet);
    } else {
      Compare(earlier, now, inside, path, depth + 1);
    }
  }

  // Removes elements about variables on which no prediction depends.
  void KeepRead(const pb::Message& message, const pb::FieldDescriptor& field, std::vector<Element>* elements) const {
    if (use_ != CheckpointUse::kPrediction) return;
    std::erase_if(*elements, [&](const Element& element) {
      std::string variable;
      if (!IsAboutVariable(field, element, &variable)) return false;
      std::string name = variable;
      if (IsMessage(field) && field.message_type()->FindFieldByName("name") != nullptr) {
        // A rule may name a slot of a wider variable.
        const pb::Message& of = message.GetReflection()->GetRepeatedMessage(message, &field, element.index);
        name = of.GetReflection()->GetString(of, field.message_type()->FindFieldByName("name"));
      }
      return !read_before_.Has(variable) && !read_now_.Has(variable) && !read_before_.Has(name) && !read_now_.Has(name);
    });
  }

  void CompareRepeated(const pb::Message& was, const pb::Message& is, const pb::FieldDescriptor& field,
                       const Decided& inside, const std::string& prefix, const std::string& path, int depth) {
    std::vector<Element> had = ElementsOf(was, field), has = ElementsOf(is, field);
    KeepRead(was, field, &had);
    KeepRead(is, field, &has);
    // In the order of this job; what it lacks comes last.
    std::map<std::pair<std::string, int>, int> earlier;
    for (const Element& element : had) earlier[{element.key, element.number}] = element.index;
    for (const Element& element : has) {
      const auto found = earlier.find({element.key, element.number});
      CompareElements(was, is, field, inside, found == earlier.end() ? -1 : found->second, element.index, prefix, path,
                      depth);
      if (found != earlier.end()) earlier.erase(found);
    }
    for (const Element& element : had) {
      if (!earlier.contains({element.key, element.number})) continue;
      CompareElements(was, is, field, inside, element.index, -1, prefix, path, depth);
    }
  }

  // `before`, `now`: indices; -1: there is none.
  void CompareElements(const pb::Message& was, const pb::Message& is, const pb::FieldDescriptor& field,
                       const Decided& inside, int before, int now, const std::string& prefix, const std::string& path,
                       int depth) {
    const std::string element = absl::StrCat(path, "[", now >= 0 ? now : before, "]");
    if (before < 0 || now < 0) {
      Differ(element, before < 0 ? kNotSet : ElementText(was, field, before),
             now < 0 ? kNotSet : ElementText(is, field, now), now < 0 ? prefix : element);
    } else if (IsMessage(field)) {
      const pb::Reflection& reflection = *was.GetReflection();
      Compare(reflection.GetRepeatedMessage(was, &field, before), reflection.GetRepeatedMessage(is, &field, now),
              inside, element, depth + 1, field.options().GetExtension(v1::known_by));
    } else {
      Differ(element, Value(was, field, before), Value(is, field, now));
    }
  }

  static std::string ElementText(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
    return IsMessage(field) ? InBraces(message.GetReflection()->GetRepeatedMessage(message, &field, index))
                            : Value(message, field, index);
  }

  const CheckpointUse use_;
  const bool draws_;
  const bool without_model_;
  const ReadVariables read_before_, read_now_;
  std::vector<SettingDifference>& found_;
};

}  // namespace

std::vector<SettingDifference> ModelDifferences(const v1::JobConfig& trained, const v1::JobConfig& job,
                                                CheckpointUse use) {
  std::vector<SettingDifference> found;
  Comparer(trained, job, use, &found).Compare(trained, job, Decided(), "", 0);
  return found;
}

std::set<std::string> VariablesRead(const v1::JobConfig& job) { return ReadVariables(job).texts(); }

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
