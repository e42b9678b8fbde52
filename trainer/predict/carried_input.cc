#include "trainer/predict/carried_input.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/formats/csv_fields.h"
#include "framework/formats/derived.h"
#include "framework/formats/example_input.h"
#include "trainer/data/features.h"
#include "trainer/files/line_source.h"
#include "trainer/files/open_records.h"

namespace weir {
namespace {

constexpr size_t kMostKnown = 40;  // names in a message

bool IsPredictionName(std::string_view name) {
  constexpr std::string_view kName = "prediction";
  if (!name.starts_with(kName)) return false;
  name.remove_prefix(kName.size());
  if (name.empty()) return true;
  return name.size() > 1 && name[0] == '_' && std::all_of(name.begin() + 1, name.end(), absl::ascii_isdigit);
}

// Reads the header of a file. Returns no names if the file has no line.
absl::StatusOr<std::vector<std::string>> ReadHeader(const DataFile& file, const v1::Csv& csv) {
  std::vector<std::string> names;
  ASSIGN_OR_RETURN(const std::unique_ptr<LineSource> source, LineSource::Open(file, ToFirstRecord(file)));
  std::string_view header;
  int64_t offset;
  if (!source->Next(&header, &offset)) {
    RETURN_IF_ERROR(source->status());
    return names;
  }
  const absl::Status split = SplitCsvFields(header, DialectOf(csv), &names);
  if (split.ok()) return names;
  return absl::InvalidArgumentError(absl::StrCat(RecordPlace(file, offset), ": ", split.message()));
}

std::string Known(std::vector<std::string> names) {
  const size_t all = names.size();
  if (all > kMostKnown) {
    names.resize(kMostKnown);
    names.push_back(absl::StrCat("and ", all - kMostKnown, " more"));
  }
  return absl::StrJoin(names, ", ");
}

// Sets the text that the name of a file has of a partition; an example file has its values only.
void SetPartition(const CarriedColumn& column, const DataFile& file, size_t partition, CarriedValue* value) {
  value->has_field = partition < file.partitions.size();
  value->texts.clear();
  if (!value->has_field) return;
  value->field = file.partitions[partition];
  if (column.id_kind == IdKind::kText && !value->field.empty()) value->texts.push_back(value->field);
}

bool IsMissing(const v1::Csv::Column& column, std::string_view text) {
  return text.empty() || std::find(column.missing().begin(), column.missing().end(), text) != column.missing().end();
}

}  // namespace

absl::StatusOr<std::unique_ptr<CarriedInput>> CarriedInput::Create(const DataSpec& spec, DataSet data,
                                                                   const std::vector<std::string>& names,
                                                                   PredictionFormat format,
                                                                   const DataStatistics* statistics) {
  std::unique_ptr<CarriedInput> made(new CarriedInput(spec, std::move(data)));
  if (made->csv() != nullptr) made->dialect_ = DialectOf(*made->csv());
  ASSIGN_OR_RETURN(made->parser_,
                   MakeLineParser(spec.config, statistics == nullptr ? nullptr : &statistics->learned()));
  if (made->csv() != nullptr) made->AddCsvColumns();
  if (made->reads_features()) made->AddFeatures();
  made->AddPartitions();
  made->AddVariables();
  if (made->csv() != nullptr) RETURN_IF_ERROR(made->AddHeaderColumns());
  RETURN_IF_ERROR(made->Choose(names));
  RETURN_IF_ERROR(made->FindFields(format));
  RETURN_IF_ERROR(made->OpenStream());
  return made;
}

std::map<std::string, size_t> CarriedInput::Begins() const {
  std::map<std::string, size_t> begins;
  size_t floats = 0, slots = 0;
  for (const Column& variable : parser_->columns()) {
    size_t& begin = variable.kind == v1::IDS ? slots : floats;
    begins[variable.name] = begin;
    begin += static_cast<size_t>(variable.width);
  }
  return begins;
}

// Lets the name of an output stand for its columns, unless a column has it. `name`: the next of its columns.
void CarriedInput::AddOutput(const std::string& name, const std::string& output) {
  const Offer& one = offers_[name];
  Offer& all = offers_[output];
  if (all.columns.empty()) offered_.push_back(output);
  all.columns.push_back(one.columns[0]);
  all.places.push_back(one.places[0]);
}

// Offers the columns of the job's data.csv, and SKIP columns that have a name.
void CarriedInput::AddCsvColumns() {
  // Columns with one output stand side by side in one variable, in the order of the job.
  std::map<std::string, size_t> next = Begins();
  for (int i = 0; i < csv()->column_size(); ++i) {
    const v1::Csv::Column& in = csv()->column(i);
    const bool skipped = in.type() == v1::Csv::Column::SKIP;
    if (skipped && (has_header() || in.name().empty())) continue;
    CarriedColumn column{.name = in.name(), .has_values = !skipped, .is_field = true};
    Place place{.csv = skipped ? nullptr : &in, .field = static_cast<size_t>(i)};
    if (!skipped) {
      column.floats = in.type() == v1::Csv::Column::FLOAT;
      column.width = column.floats ? in.dim() : 1;
      column.id_kind = in.type() == v1::Csv::Column::TEXT ? IdKind::kText : IdKind::kInteger;
      if (in.list().size() == 1) column.list = in.list()[0];
      if (in.weight().size() == 1) column.weight = in.weight()[0];
      size_t& at = next[in.output().empty() ? in.name() : in.output()];
      place.values = at;
      at += static_cast<size_t>(column.width);
    }
    Offer& offer = offers_[in.name()];
    if (skipped && !offer.columns.empty()) continue;
    if (offer.columns.empty()) offered_.push_back(in.name());
    offer = {{std::move(column)}, {place}};
  }
  const std::set<std::string> names(offered_.begin(), offered_.end());
  for (const v1::Csv::Column& in : csv()->column()) {
    if (in.type() == v1::Csv::Column::SKIP || in.output().empty() || names.contains(in.output())) continue;
    AddOutput(in.name(), in.output());
  }
}

// Offers the features of the job's data.tf_record.
void CarriedInput::AddFeatures() {
  std::map<std::string, size_t> next = Begins();
  for (const v1::TfRecord::Feature& in : spec_.config.tf_record().feature()) {
    const bool text = in.type() == v1::TfRecord::Feature::TEXT;
    CarriedColumn column{.name = in.name(), .is_field = text, .list = text ? '|' : ' '};
    column.floats = in.type() == v1::TfRecord::Feature::FLOAT;
    column.width = column.floats ? in.dim() : 1;
    column.id_kind = text ? IdKind::kText : IdKind::kInteger;
    size_t& at = next[in.output().empty() ? in.name() : in.output()];
    offers_[in.name()] = {{std::move(column)}, {{.values = at}}};
    offered_.push_back(in.name());
    at += in.type() == v1::TfRecord::Feature::FLOAT ? static_cast<size_t>(in.dim()) : 1;
  }
  const std::set<std::string> names(offered_.begin(), offered_.end());
  for (const v1::TfRecord::Feature& in : spec_.config.tf_record().feature()) {
    if (!in.output().empty() && !names.contains(in.output())) AddOutput(in.name(), in.output());
  }
}

// Offers the job's partitions, unless a column of the files has the name.
void CarriedInput::AddPartitions() {
  const std::map<std::string, size_t> begins = Begins();
  for (int i = 0; i < spec_.config.partition_size(); ++i) {
    const v1::Partition& in = spec_.config.partition(i);
    CarriedColumn column{.name = in.name(), .floats = in.type() == v1::Partition::FLOAT, .is_field = true};
    column.id_kind = in.type() == v1::Partition::TEXT ? IdKind::kText : IdKind::kInteger;
    const Place place{.values = begins.at(in.name()), .partition = i};
    if (offers_.try_emplace(in.name(), Offer{.columns = {std::move(column)}, .places = {place}}).second) {
      offered_.push_back(in.name());
    }
  }
}

// Offers variables, then their slots and floats, each by a name that nothing has yet.
void CarriedInput::AddVariables() {
  struct NamedOffer {
    std::string name;
    Offer offer;
  };
  std::vector<NamedOffer> parts;
  std::map<std::string, int> uses;  // of the names of slots
  size_t floats = 0, slots = 0;
  const auto add = [this](const std::string& name, Offer offer) {
    if (offers_.try_emplace(name, std::move(offer)).second) offered_.push_back(name);
  };
  for (const Column& variable : parser_->columns()) {
    const auto width = static_cast<size_t>(variable.width);
    if (variable.kind != v1::IDS) {
      add(variable.name, {{{.name = variable.name, .floats = true, .width = variable.width}}, {{.values = floats}}});
      for (size_t i = 0; i < width && width > 1; ++i) {
        const std::string name = absl::StrCat(variable.name, "[", i, "]");
        parts.push_back({name, {{{.name = name, .floats = true}}, {{.values = floats + i}}}});
      }
      floats += width;
      continue;
    }
    Offer all;
    for (size_t s = 0; s < width; ++s) {
      // A variable of one slot is that slot, whatever its name.
      CarriedColumn column{.name = width == 1 ? variable.name : variable.slot_names[s]};
      column.id_kind = variable.id_kinds.empty() ? IdKind::kUnknown : variable.id_kinds[s];
      const Place place{.values = slots + s};
      all.columns.push_back(column);
      all.places.push_back(place);
      if (width == 1) continue;
      ++uses[column.name];
      parts.push_back({column.name, {{column}, {place}}});
    }
    add(variable.name, std::move(all));
    slots += width;
  }
  for (NamedOffer& part : parts) {
    part.offer.several = uses[part.name] > 1;
    // A message lists the variables and not all of their floats.
    if (!part.offer.columns[0].floats) {
      add(part.name, std::move(part.offer));
    } else {
      offers_.try_emplace(part.name, std::move(part.offer));
    }
  }
}

// Offers the columns that the header of a file names and the job does not: of the first file that has a line.
absl::Status CarriedInput::AddHeaderColumns() {
  if (!has_header()) return absl::OkStatus();
  for (const DataFile& file : data_.files()) {
    if (!file.lines()) continue;
    ASSIGN_OR_RETURN(const std::vector<std::string> names, ReadHeader(file, *csv()));
    for (const std::string& name : names) {
      if (offers_.contains(name)) continue;
      offered_.push_back(name);
      offers_[name] = {{{.name = name, .has_values = false, .is_field = true}}, {{}}};
    }
    if (!names.empty()) return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status CarriedInput::Choose(const std::vector<std::string>& names) {
  std::set<std::string> chosen;
  for (const std::string& name : names) {
    const auto found = offers_.find(name);
    if (found == offers_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--carry: the data has no column '", name, "'; there are ", Known(offered_)));
    }
    const Offer& offer = found->second;
    if (offer.several) {
      return absl::InvalidArgumentError(
          absl::StrCat("--carry: several variables have a slot '", name, "'; name one of the variables"));
    }
    for (const CarriedColumn& column : offer.columns) {
      if (IsPredictionName(column.name)) {
        return absl::InvalidArgumentError(absl::StrCat("--carry: '", column.name,
                                                       "' is a name of predictions in the output; a column with that "
                                                       "name cannot be carried"));
      }
      if (!chosen.insert(column.name).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("--carry: '", column.name, "' would be there twice; name every column once"));
      }
    }
    columns_.insert(columns_.end(), offer.columns.begin(), offer.columns.end());
    places_.insert(places_.end(), offer.places.begin(), offer.places.end());
  }
  return absl::OkStatus();
}

// Finds the fields of the columns that are texts in every file.
absl::Status CarriedInput::FindFields(PredictionFormat format) {
  fields_.resize(data_.files().size());
  bool texts = false;
  for (size_t c = 0; c < columns_.size(); ++c) {
    const CarriedColumn& column = columns_[c];
    const bool text = column.is_field && format != PredictionFormat::kExamples;
    texts = texts || text;
    needs_fields_ = needs_fields_ || (text && places_[c].partition < 0);
    if (column.has_values || format != PredictionFormat::kExamples) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--carry: the job does not read '", column.name,
        "', and an example file holds no texts; write .csv or .tfrecord, or name the column in data.csv.column"));
  }
  if (!texts) return absl::OkStatus();
  for (size_t f = 0; f < data_.files().size(); ++f) {
    const DataFile& file = data_.files()[f];
    std::vector<std::string> names;
    if (file.lines() && has_header()) {
      ASSIGN_OR_RETURN(names, ReadHeader(file, *csv()));
      if (names.empty()) continue;
    }
    for (size_t c = 0; c < columns_.size(); ++c) {
      const CarriedColumn& column = columns_[c];
      fields_[f].push_back(places_[c].field);
      if (!column.is_field) continue;
      if (file.examples != nullptr) {
        if (column.has_values && column.id_kind != IdKind::kText) continue;
        return absl::InvalidArgumentError(absl::StrCat(
            "--carry: ", file.name, " is an example file, which does not hold the texts of '", column.name,
            "'; score the file that it was converted from", column.has_values ? ", or write .examples" : ""));
      }
      if (!has_header() || places_[c].partition >= 0) continue;
      const auto found = std::find(names.begin(), names.end(), column.name);
      if (found == names.end() || std::find(found + 1, names.end(), column.name) != names.end()) {
        return absl::InvalidArgumentError(absl::StrCat("--carry: ", file.name, ":1: the header has ",
                                                       found == names.end() ? "no column '" : "two columns '",
                                                       column.name, "'; its ", names.size(), " are ", Known(names)));
      }
      fields_[f].back() = static_cast<size_t>(found - names.begin());
    }
  }
  return absl::OkStatus();
}

absl::Status CarriedInput::OpenStream() {
  ASSIGN_OR_RETURN(where_,
                   RowFilter::Create(parser_->columns(), data_.where(), data_.where_path(), PlainSettingErrors("")));
  ASSIGN_OR_RETURN(const Features features, Features::Create(spec_, *parser_));
  ExampleStream::Options options{.data = &data_,
                                 .parser = parser_.get(),
                                 .seed = spec_.seed,
                                 .bad_line = spec_.config.bad_line(),
                                 .where = where_.empty() ? nullptr : &where_};
  // Allow absent inputs as scoring does, where a label outside of its range is no reason to leave an example out.
  for (const auto& [position, name] : features.required()) options.may_be_absent.push_back(position);
  stream_ = std::make_unique<ExampleStream>(std::move(options));
  ExampleStream::Prepare(*parser_, &example_);
  return absl::OkStatus();
}

absl::Status CarriedInput::Changed(const InputPosition& position) const {
  // Another trainer has sent the position.
  const bool known = position.file >= 0 && position.file < static_cast<int64_t>(data_.files().size());
  return absl::FailedPreconditionError(
      absl::StrCat(known ? data_.files()[static_cast<size_t>(position.file)].name : "a file of the input",
                   " has changed while it was scored; start the prediction again"));
}

bool CarriedInput::ReadFields() {
  const std::string_view line = stream_->line();
  if (reads_features()) return message_.ParseFromArray(line.data(), static_cast<int>(line.size()));
  return SplitCsvFields(line, dialect_, &texts_).ok();
}

// Sets the texts of the elements of a list, or of the field as a whole.
void CarriedInput::SetTexts(const CarriedColumn& column, const Place& place, CarriedValue* value) {
  value->texts.clear();
  if (place.csv == nullptr) {
    if (!value->field.empty()) value->texts.push_back(value->field);
    return;
  }
  if (column.id_kind != IdKind::kText || IsMissing(*place.csv, value->field)) return;
  const std::string_view field = value->field;
  for (size_t begin = 0; begin <= field.size();) {
    const size_t end =
        place.csv->list().empty() ? field.size() : std::min(field.find(column.list, begin), field.size());
    std::string_view element = field.substr(begin, end - begin);
    begin = end + 1;
    if (IsMissing(*place.csv, element)) continue;
    if (!place.csv->weight().empty()) element = element.substr(0, element.rfind(column.weight));
    if (!IsMissing(*place.csv, element)) value->texts.emplace_back(element);
  }
}

// Sets the texts of a feature, and for .csv one text of them all.
void CarriedInput::SetFeature(const CarriedColumn& column, CarriedValue* value) const {
  value->texts.clear();
  value->field.clear();
  v1::TfFeature feature;
  // If two features have one name, the last counts.
  for (const v1::TfFeatures::Entry& entry : message_.features().feature()) {
    if (entry.key() == column.name) (void)feature.ParseFromString(entry.value());
  }
  for (const std::string& text : feature.bytes_list().value()) {
    if (!value->texts.empty()) value->field += column.list;
    value->field += text;
    if (!value->weights.empty()) {
      absl::StrAppend(&value->field, std::string(1, column.weight), value->weights[value->texts.size()]);
    }
    value->texts.push_back(text);
  }
}

void CarriedInput::SetValues(const CarriedColumn& column, const Place& place, CarriedValue* value) const {
  if (column.floats) {
    const float* const from = example_.floats.data() + place.values;
    value->floats.assign(from, from + column.width);
    return;
  }
  const auto from = static_cast<ptrdiff_t>(slot_begins_[place.values]);
  const auto to = from + example_.counts[place.values];
  value->ids.assign(example_.ids.begin() + from, example_.ids.begin() + to);
  value->weights.clear();
  // All ids of an example have weights if one has; those of a slot without are 1.
  if (example_.weights.empty()) return;
  const auto weights = example_.weights.begin();
  if (std::all_of(weights + from, weights + to, [](float weight) { return weight == 1; })) return;
  value->weights.assign(weights + from, weights + to);
}

absl::Status CarriedInput::Next(const InputPosition& position, std::vector<CarriedValue>* row) {
  InputPosition got;
  if (!stream_->Next(&example_, &got)) {
    RETURN_IF_ERROR(stream_->status());
    return Changed(position);
  }
  if (got != position) return Changed(position);
  const std::vector<size_t>& fields = fields_[static_cast<size_t>(got.file)];
  const bool texts = needs_fields_ && data_.files()[static_cast<size_t>(got.file)].examples == nullptr;
  if (texts && (fields.empty() || !ReadFields())) return Changed(position);
  slot_begins_.resize(example_.counts.size());
  size_t begin = 0;
  for (size_t s = 0; s < example_.counts.size(); ++s) {
    slot_begins_[s] = begin;
    begin += example_.counts[s];
  }
  row->resize(columns_.size());
  for (size_t c = 0; c < columns_.size(); ++c) {
    const CarriedColumn& column = columns_[c];
    CarriedValue& value = (*row)[c];
    if (column.has_values) SetValues(column, places_[c], &value);
    if (const int partition = places_[c].partition; partition >= 0) {
      SetPartition(column, data_.files()[static_cast<size_t>(got.file)], static_cast<size_t>(partition), &value);
      continue;
    }
    value.has_field = texts && column.is_field;
    if (!value.has_field) continue;
    if (reads_features()) {
      SetFeature(column, &value);
      continue;
    }
    if (fields[c] >= texts_.size()) return Changed(position);
    value.field.assign(texts_[fields[c]]);
    SetTexts(column, places_[c], &value);
  }
  return absl::OkStatus();
}

}  // namespace weir
