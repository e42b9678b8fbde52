#include "framework/formats/partitions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/example_input.h"
#include "framework/formats/float_bound.h"
#include "framework/formats/numbers.h"

namespace weir {
namespace {

constexpr std::string_view kMissingPartition = "__HIVE_DEFAULT_PARTITION__";

// The value of a partition in the names of some files.
struct PartitionValue {
  bool missing = true;
  float number = std::numeric_limits<float>::quiet_NaN();
  int64_t id = 0;
};

std::string Decoded(std::string_view text) {
  std::string decoded;
  const auto digit = [&](size_t at) {
    return at < text.size() && absl::ascii_isxdigit(static_cast<unsigned char>(text[at]));
  };
  for (size_t i = 0; i < text.size(); ++i) {
    uint32_t byte = 0;
    if (text[i] == '%' && digit(i + 1) && digit(i + 2) &&
        absl::SimpleHexAtoi(absl::string_view(text.data() + i + 1, 2), &byte)) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

// Returns the error of a value that is not of its type.
absl::Status Unfit(const v1::Partition& partition, const std::string& text, std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("the directory '", partition.name(), "=", text, "': '", text, "' ", std::string(why)));
}

absl::StatusOr<float> NumberOf(const v1::Partition& partition, const std::string& text) {
  float number = 0;
  if (!ParseFinite(text, &number)) {
    return Unfit(partition, text, absl::StrCat(WhyNotFinite(text), "; data.partition reads it as TEXT, ID or TIME"));
  }
  double exact = 0;
  if (!absl::SimpleAtod(text, &exact)) exact = number;
  std::optional<int64_t> other = SameFloatBelow(exact);
  if (!other.has_value()) other = SameFloatAbove(exact);
  if (!other.has_value()) return number;
  return Unfit(partition, text,
               absl::StrCat("cannot be told from ", *other,
                            ": float32 has one value for both; `type: ID` of data.partition keeps it exactly"));
}

absl::StatusOr<PartitionValue> ValueOf(const v1::Partition& partition, const std::string& text) {
  PartitionValue value{.missing = text.empty()};
  if (value.missing) return value;
  switch (partition.type()) {
    case v1::Partition::FLOAT: {
      ASSIGN_OR_RETURN(value.number, NumberOf(partition, text));
      return value;
    }
    case v1::Partition::ID:
      if (ParseId(text, &value.id)) return value;
      return Unfit(partition, text, "is not a 64-bit integer; `type: TEXT` of data.partition takes any value");
    case v1::Partition::TEXT:
      value.id = static_cast<int64_t>(StableHash(text));
      return value;
    case v1::Partition::TIME: {
      absl::Time time;
      // Words for times that never come are times to the library.
      if (!absl::ParseTime(partition.time_format(), text, &time, nullptr) || time == absl::InfiniteFuture() ||
          time == absl::InfinitePast()) {
        return Unfit(partition, text,
                     absl::StrCat("is no time of the form '", partition.time_format(), "' (time_format)"));
      }
      value.id = absl::ToUnixSeconds(time);
      return value;
    }
  }
  return value;
}

absl::StatusOr<std::string> TextOf(const v1::Partition& partition, const std::vector<HiveDirectory>& directories) {
  const HiveDirectory* found = nullptr;
  std::string known;
  for (const HiveDirectory& directory : directories) {
    absl::StrAppend(&known, known.empty() ? "" : ", ", directory.key);
    if (directory.key != partition.name()) continue;
    if (found != nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("two directories of its name are '", partition.name(),
                                                     "=...', and data.partition takes one value"));
    }
    found = &directory;
  }
  if (found == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "no directory of its name is '", partition.name(), "=...', from which data.partition takes '", partition.name(),
        "'; ",
        known.empty() ? "no directory there has a value: begin the pattern of `files` above those that have"
                      : absl::StrCat("those with a value are of ", known)));
  }
  return found->value == kMissingPartition ? "" : found->value;
}

absl::StatusOr<std::vector<PartitionValue>> ValuesOf(const PartitionList& partitions, std::string_view name,
                                                     std::vector<std::string>* texts) {
  const std::vector<HiveDirectory> directories = HiveDirectories(name);
  std::vector<PartitionValue> values;
  for (const v1::Partition& partition : partitions) {
    absl::StatusOr<std::string> text = TextOf(partition, directories);
    absl::StatusOr<PartitionValue> value = text.ok() ? ValueOf(partition, *text) : text.status();
    if (!value.ok()) return absl::InvalidArgumentError(absl::StrCat(std::string(name), ": ", value.status().message()));
    values.push_back(*value);
    if (texts != nullptr) texts->push_back(*std::move(text));
  }
  return values;
}

bool IsFloat(const v1::Partition& partition) { return partition.type() == v1::Partition::FLOAT; }

// Parser of a reader's lines that adds the values of their file. Without them it only knows the columns.
class PartitionParser : public LineParser {
 public:
  PartitionParser(std::vector<Column> columns, std::shared_ptr<const LineParser> reader,
                  std::shared_ptr<const PartitionList> partitions, std::vector<PartitionValue> values)
      : LineParser(std::move(columns)),
        reader_(std::move(reader)),
        partitions_(std::move(partitions)),
        values_(std::move(values)) {}

  absl::Status Parse(std::string_view line, Example* example) const override {
    HideValues(example);
    const absl::Status parsed = reader_->Parse(line, example);
    return AddValues(parsed, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override {
    HideValues(example);
    const absl::Status parsed = reader_->ParsePlain(line, example);
    return AddValues(parsed, example);
  }
  // The reader's slots and floats are before those of partitions.
  std::vector<NamedInput> named_inputs() const override { return reader_->named_inputs(); }
  std::string NamesIn(std::string_view line) const override { return reader_->NamesIn(line); }
  bool has_header() const override { return reader_->has_header(); }
  absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                        const std::vector<int64_t>& may_be_absent) const override {
    ASSIGN_OR_RETURN(std::shared_ptr<const LineParser> reader, reader_->ForHeader(header, may_be_absent));
    return std::make_unique<PartitionParser>(columns(), std::move(reader), partitions_, values_);
  }
  bool has_partitions() const override { return true; }
  absl::StatusOr<std::unique_ptr<LineParser>> ForFile(std::string_view name) const override {
    ASSIGN_OR_RETURN(std::vector<PartitionValue> values, ValuesOf(*partitions_, name, nullptr));
    return std::make_unique<PartitionParser>(columns(), reader_, partitions_, std::move(values));
  }

 private:
  // The reader sees an example of its own sizes.
  void HideValues(Example* example) const {
    example->counts.resize(static_cast<size_t>(reader_->slots()));
    example->floats.resize(static_cast<size_t>(reader_->floats()));
  }
  absl::Status AddValues(const absl::Status& parsed, Example* example) const {
    if (parsed.ok() && values_.empty()) return absl::InternalError("a line of a file whose name has not been read");
    auto slot = static_cast<size_t>(reader_->slots()), place = static_cast<size_t>(reader_->floats());
    example->counts.resize(static_cast<size_t>(slots()));
    example->floats.resize(static_cast<size_t>(floats()));
    RETURN_IF_ERROR(parsed);
    for (size_t i = 0; i < values_.size(); ++i) {
      const PartitionValue& value = values_[i];
      if (IsFloat((*partitions_)[static_cast<int>(i)])) {
        example->floats[place++] = value.number;
        continue;
      }
      example->counts[slot++] = value.missing ? 0 : 1;
      if (value.missing) continue;
      example->ids.push_back(value.id);
      if (!example->weights.empty()) example->weights.push_back(1.0f);
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const LineParser> reader_;
  const std::shared_ptr<const PartitionList> partitions_;
  const std::vector<PartitionValue> values_;  // empty: not known
};

}  // namespace

std::vector<HiveDirectory> HiveDirectories(std::string_view name) {
  std::vector<HiveDirectory> directories;
  for (size_t end = name.find('/'); end != std::string_view::npos; end = name.find('/')) {
    const std::string_view directory = name.substr(0, end);
    name.remove_prefix(end + 1);
    const size_t mark = directory.find('=');
    if (mark == std::string_view::npos || mark == 0) continue;
    directories.push_back({.key = Decoded(directory.substr(0, mark)), .value = Decoded(directory.substr(mark + 1))});
  }
  return directories;
}

absl::StatusOr<std::vector<std::string>> PartitionTexts(const PartitionList& partitions, std::string_view name) {
  std::vector<std::string> texts;
  RETURN_IF_ERROR(ValuesOf(partitions, name, &texts).status());
  return texts;
}

absl::Status CheckPartitions(const PartitionList& partitions, const std::vector<std::string>& taken,
                             const SettingErrors& errors) {
  std::vector<std::string> names = taken;
  for (int i = 0; i < partitions.size(); ++i) {
    const v1::Partition& partition = partitions[i];
    const std::string path = absl::StrCat("partition[", i, "]");
    if (partition.name().empty()) return errors.Error(path, "needs a name, that of directories NAME=VALUE");
    if (std::find(names.begin(), names.end(), partition.name()) != names.end()) {
      return errors.Error(path + ".name", absl::StrCat("'", partition.name(), "' is a variable of the data already"));
    }
    names.push_back(partition.name());
    if (partition.type() != v1::Partition::TIME) {
      if (partition.has_time_format()) return errors.Error(path + ".time_format", "is for type: TIME");
    } else if (partition.time_format().find('%') == std::string::npos) {
      return errors.Error(path + ".time_format",
                          absl::StrCat("'", partition.time_format(), "' has no letter of strftime, as %Y"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<LineParser>> AddPartitions(std::unique_ptr<LineParser> reader,
                                                          const PartitionList& partitions) {
  std::vector<Column> columns = reader->columns();
  std::vector<std::string> taken;
  for (const Column& column : columns) taken.push_back(column.name);
  RETURN_IF_ERROR(CheckPartitions(partitions, taken, PlainSettingErrors("data")));
  for (const v1::Partition& partition : partitions) {
    if (IsFloat(partition)) {
      columns.push_back({.name = partition.name()});
      continue;
    }
    const IdKind kind = partition.type() == v1::Partition::TEXT ? IdKind::kText : IdKind::kInteger;
    columns.push_back(
        {.name = partition.name(), .kind = v1::IDS, .width = 1, .slot_names = {partition.name()}, .id_kinds = {kind}});
  }
  return std::make_unique<PartitionParser>(std::move(columns), std::move(reader),
                                           std::make_shared<PartitionList>(partitions), std::vector<PartitionValue>());
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeReaderParser(const v1::Data& data) {
  absl::StatusOr<std::unique_ptr<LineParser>> reader = MakeFormatParser(data);
  if (!reader.ok() || data.partition().empty()) return reader;
  return AddPartitions(*std::move(reader), data.partition());
}

}  // namespace weir
