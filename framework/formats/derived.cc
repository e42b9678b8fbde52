#include "framework/formats/derived.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/formats/derived_rule.h"
#include "framework/formats/example_input.h"
#include "framework/formats/partitions.h"

namespace weir {
namespace {

absl::StatusOr<DerivedRulePtr> MakeRule(const std::vector<Column>& columns, const v1::Derived& derived,
                                        std::shared_ptr<const IdList> list, const std::string& path,
                                        const SettingErrors& errors) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return MakeCrossRule(columns, derived, path + ".cross", errors);
    case v1::Derived::kHash:
      return MakeHashRule(columns, derived, path + ".hash", errors);
    case v1::Derived::kBucketize:
      return MakeBucketizeRule(columns, derived, path + ".bucketize", errors);
    case v1::Derived::kTime:
      return MakeTimeRule(columns, derived, path + ".time", errors);
    case v1::Derived::kNegatives:
      return MakeNegativesRule(columns, derived, std::move(list), path + ".negatives", errors);
    case v1::Derived::kVocabulary:
      return MakeVocabularyRule(columns, derived, std::move(list), path + ".vocabulary", errors);
    case v1::Derived::kFrequency:
      return MakeFrequencyRule(columns, derived, std::move(list), path + ".frequency", errors);
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return errors.Error(path, "needs one of cross, hash, bucketize, time, negatives, vocabulary, frequency");
}

// Names of the inputs of a variable.
std::vector<std::string> InputsOf(const v1::Derived& derived) {
  switch (derived.kind_case()) {
    case v1::Derived::kCross:
      return {derived.cross().of().begin(), derived.cross().of().end()};
    case v1::Derived::kHash:
      return {derived.hash().of()};
    case v1::Derived::kBucketize:
      return {derived.bucketize().of()};
    case v1::Derived::kTime:
      return {derived.time().of()};
    case v1::Derived::kNegatives:
      return {derived.negatives().of()};
    case v1::Derived::kVocabulary:
      return {derived.vocabulary().of()};
    case v1::Derived::kFrequency:
      return {derived.frequency().of()};
    case v1::Derived::KIND_NOT_SET:
      break;
  }
  return {};
}

// Returns whether the values of a variable, whose settings are right, are not known before the pass over the data.
absl::StatusOr<bool> IsLearned(const std::vector<Column>& columns, const v1::Derived& derived, bool has_quantiles,
                               const SettingErrors& errors) {
  if (derived.has_frequency() || derived.vocabulary().has_learned() || has_quantiles ||
      (derived.negatives().has_popularity() && derived.negatives().popularity().file().empty())) {
    return true;
  }
  for (const std::string& of : InputsOf(derived)) {
    ASSIGN_OR_RETURN(const ExampleInput input, FindInput(columns, of, "", errors));
    if (input.learned) return true;
  }
  return false;
}

// Gives a column the ids of an input that FindInput has found.
void ShareIds(const std::vector<Column>& columns, const std::string& input, Column* shared) {
  for (const Column& column : columns) {
    if (column.kind != v1::IDS) continue;
    for (size_t slot = 0; slot < column.slot_names.size(); ++slot) {
      if ((column.width == 1 ? column.name : column.slot_names[slot]) != input) continue;
      shared->ids_of = column.ids_of.empty() ? column.name : column.ids_of;
      shared->slot_names = {column.slot_names[slot]};
      if (!column.id_kinds.empty()) shared->id_kinds = {column.id_kinds[slot]};
    }
  }
}

// The rules of a job, in order. Immutable.
struct Rules {
  struct Placed {
    DerivedRulePtr rule;
    size_t place;  // a slot, or a position among all floats
  };
  std::vector<Placed> all;
  size_t needed = 0;  // slots of the reader, from the first on, that the rules read
  // Rules that look up ids of the reader.
  std::vector<const DerivedRule*> lookups;
};

class DerivedParser : public LineParser {
 public:
  DerivedParser(std::vector<Column> columns, std::shared_ptr<const LineParser> reader,
                std::shared_ptr<const Rules> rules)
      : LineParser(std::move(columns)), reader_(std::move(reader)), rules_(std::move(rules)) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    HideDerived(example);
    const absl::Status parsed = reader_->Parse(line, example);
    return AddDerived(parsed, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    HideDerived(example);
    const absl::Status parsed = reader_->ParsePlain(line, example);
    return AddDerived(parsed, example);
  }
  bool looks_up() const override { return !rules_->lookups.empty(); }
  absl::Status Begin(std::string_view line, Example* example) const override {
    HideDerived(example);
    RETURN_IF_ERROR(reader_->Parse(line, example));
    const DerivedSlots view(example, static_cast<size_t>(reader_->slots()), rules_->needed);
    for (const DerivedRule* const rule : rules_->lookups) {
      const auto slot = static_cast<size_t>(rule->looked_up());
      const int64_t* const ids = view.ids(slot);
      for (size_t i = 0; i < view.count(slot); ++i) __builtin_prefetch(rule->PlaceOf(ids[i]));
    }
    return absl::OkStatus();
  }
  absl::Status End(Example* example) const override {
    example->counts.resize(static_cast<size_t>(slots()));
    example->floats.resize(static_cast<size_t>(floats()));
    DerivedSlots view(example);
    return Apply(&view);
  }
  // The reader's slots and floats are before derived ones.
  std::vector<NamedInput> named_inputs() const override { return reader_->named_inputs(); }
  std::string NamesIn(std::string_view line) const override { return reader_->NamesIn(line); }
  bool has_header() const override { return reader_->has_header(); }
  absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                        const std::vector<int64_t>& may_be_absent) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForHeader(header, may_be_absent));
    return std::make_unique<DerivedParser>(columns(), std::move(reader), rules_);
  }
  bool has_partitions() const override { return reader_->has_partitions(); }
  absl::StatusOr<std::unique_ptr<LineParser>> ForFile(std::string_view name) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForFile(name));
    return std::make_unique<DerivedParser>(columns(), std::move(reader), rules_);
  }
  absl::StatusOr<std::unique_ptr<LineParser>> ForExampleRecords(const std::vector<Column>& columns) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForExampleRecords(columns));
    return std::make_unique<DerivedParser>(this->columns(), std::move(reader), rules_);
  }

 private:
  // The reader sees an example of its own sizes.
  void HideDerived(Example* example) const {
    example->counts.resize(static_cast<size_t>(reader_->slots()));
    example->floats.resize(static_cast<size_t>(reader_->floats()));
  }
  absl::Status AddDerived(const absl::Status& parsed, Example* example) const {
    example->counts.resize(static_cast<size_t>(slots()));
    example->floats.resize(static_cast<size_t>(floats()));
    RETURN_IF_ERROR(parsed);
    DerivedSlots view(example, static_cast<size_t>(reader_->slots()), rules_->needed);
    return Apply(&view);
  }
  absl::Status Apply(DerivedSlots* view) const {
    for (const Rules::Placed& placed : rules_->all) RETURN_IF_ERROR(placed.rule->Add(placed.place, view));
    return absl::OkStatus();
  }

  const std::shared_ptr<const LineParser> reader_;
  const std::shared_ptr<const Rules> rules_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LineParser>> Derive(std::unique_ptr<LineParser> reader, const DerivedList& derived,
                                                   const Learned* learned, const SettingErrors& errors) {
  std::vector<Column> columns = reader->columns();
  auto rules = std::make_shared<Rules>();
  rules->needed = static_cast<size_t>(reader->slots());
  auto slots = static_cast<size_t>(reader->slots()), floats = static_cast<size_t>(reader->floats());
  for (int i = 0; i < derived.size(); ++i) {
    const std::string path = absl::StrCat("derived[", i, "]");
    const std::string& name = derived[i].name();
    if (name.empty()) return errors.Error(path, "needs a name");
    if (std::any_of(columns.begin(), columns.end(), [&](const Column& column) { return column.name == name; })) {
      return errors.Error(path + ".name", absl::StrCat("'", name, "' is a variable of the data already"));
    }
    ASSIGN_OR_RETURN(DerivedRulePtr rule,
                     MakeRule(columns, derived[i], learned == nullptr ? nullptr : learned->ListOf(i), path, errors));
    Column column{.name = name, .kind = v1::IDS, .width = 1, .slot_names = {name}, .id_kinds = {IdKind::kInteger}};
    if (derived[i].has_frequency()) column = {.name = name};
    if (derived[i].has_negatives()) ShareIds(columns, derived[i].negatives().of(), &column);
    // The boundaries that have been learned stand in the settings, as if the job had given them.
    const bool has_quantiles =
        derived[i].bucketize().has_quantiles() || (learned != nullptr && learned->Has(Lesson::kQuantiles, i));
    ASSIGN_OR_RETURN(column.learned, IsLearned(columns, derived[i], has_quantiles, errors));
    if (rule->looked_up() >= 0 && rule->looked_up() < reader->slots()) rules->lookups.push_back(rule.get());
    rules->all.push_back({std::move(rule), column.kind == v1::IDS ? slots++ : floats++});
    columns.push_back(std::move(column));
  }
  return std::make_unique<DerivedParser>(std::move(columns), std::move(reader), std::move(rules));
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeLineParser(const v1::Data& data, const Learned* learned) {
  if (learned == nullptr || learned->lessons.empty()) {
    absl::StatusOr<std::unique_ptr<LineParser>> reader = MakeReaderParser(data);
    if (!reader.ok() || data.derived_size() == 0) return reader;
    return Derive(*std::move(reader), data.derived(), nullptr, PlainSettingErrors("data"));
  }
  const Learned usable = learned->For(data);
  const v1::Data with = WithLearned(data, usable);
  ASSIGN_OR_RETURN(std::unique_ptr<LineParser> reader, MakeReaderParser(with));
  if (with.derived_size() == 0) return reader;
  return Derive(std::move(reader), with.derived(), &usable, PlainSettingErrors("data"));
}

}  // namespace weir
