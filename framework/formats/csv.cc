// Text in columns with a separator, quotes, lists in a field, and a header line or none.
//
// A field in quotes ends at the next quote that is not doubled; behind it stands a separator or the end of the line. A
// quote that does not begin a field is a character like others. An empty field is missing: NaN in a float column, no id
// in a slot; so is an empty element of a list, and what a column names as missing. Lines that the reader passes over
// (skip_lines, skip_blank_lines, comment) do not come here.

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/base/attributes.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/formats/csv_fields.h"
#include "framework/formats/example_input.h"
#include "framework/formats/line_parser.h"
#include "framework/formats/numbers.h"
#include "framework/formats/schema.h"
#include "framework/formats/slot_columns.h"
#include "framework/formats/slot_schema.h"

namespace weir {
namespace {

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();
constexpr int kSkipped = -1;
constexpr size_t kShownNames = 300;  // bytes of a message

using Type = v1::Csv::Column;

struct CsvColumn {
  DataSlot slot;
  Type::Type type = Type::FLOAT;
  std::optional<char> list = {};
  std::optional<char> weight = {};
  std::vector<std::string> missing = {};  // texts besides the empty one
  // Texts of classes with the numbers of the classes; empty: fields are numbers.
  std::vector<std::pair<std::string, float>> classes = {};
  // Classes of a column with many of them.
  absl::flat_hash_map<std::string, float> many_classes = {};
  // Place in Example.texts of a text whose class is yet to be learned; -1: there is none.
  int learns = -1;
  // TIME
  std::string time_format = {};
  char point = '.';           // of decimal numbers
  bool whole_floats = false;  // "12.0" is the id 12
  bool has_texts() const { return !missing.empty() || !classes.empty() || learns >= 0; }

  bool IsMissing(std::string_view text) const {
    return text.empty() || std::find(missing.begin(), missing.end(), text) != missing.end();
  }
  // Returns the number of the class; nullptr if none has the text.
  const float* ClassOf(std::string_view text) const {
    if (!many_classes.empty()) {
      const auto found = many_classes.find(absl::string_view(text.data(), text.size()));
      return found == many_classes.end() ? nullptr : &found->second;
    }
    for (const auto& [of_class, number] : classes) {
      if (of_class == text) return &number;
    }
    return nullptr;
  }
};

struct Config {
  std::vector<CsvColumn> columns;  // as the job has them
  CsvDialect dialect;
  bool decimal_comma = false;
};

int64_t TextId(std::string_view text) { return static_cast<int64_t>(StableHash(text)); }

// Parses a time of a form as v1::Csv.Column.time_format.
bool ParseSeconds(const std::string& format, std::string_view text, int64_t* seconds) {
  absl::Time time;
  if (!absl::ParseTime(format, absl::string_view(text.data(), text.size()), &time, nullptr)) return false;
  // Words for times that never come are times to the library.
  if (time == absl::InfiniteFuture() || time == absl::InfinitePast()) return false;
  *seconds = absl::ToUnixSeconds(time);
  return true;
}

void SetText(int place, std::string_view text, Example* example) {
  const auto at = static_cast<size_t>(place);
  if (example->texts.size() <= at) example->texts.resize(at + 1);
  example->texts[at] = text;
}

std::string Shown(std::string_view text) { return std::string(text.substr(0, 40)); }

// Returns the number as ParseFinite takes it, with a point in place of the column's; a point that is not the column's
// makes it none.
std::string WithPoint(std::string_view text, char point) {
  std::string number(text);
  if (point == '.') return number;
  if (number.find('.') != std::string::npos) return "";
  if (const size_t at = number.find(point); at != std::string::npos) number[at] = '.';
  return number;
}

bool ParseDecimal(std::string_view text, char point, float* value) {
  return point == '.' ? ParseFinite(text, value) : ParseFinite(WithPoint(text, point), value);
}

// Returns true for a point with one zero or more behind it.
bool IsZeroFraction(std::string_view text, char point) {
  return text.size() > 1 && text[0] == point && text.find_first_not_of('0', 1) == std::string_view::npos;
}

// Parses an id, with CsvColumn::whole_floats also one that is written as a number with zeros behind the point.
bool ParseCsvId(const CsvColumn& column, std::string_view text, int64_t* id) {
  if (column.whole_floats) {
    const size_t at = text.find(column.point);
    if (at != std::string_view::npos)
      return IsZeroFraction(text.substr(at), column.point) && ParseId(text.substr(0, at), id);
  }
  return ParseId(text, id);
}

// Returns what else may be wrong with a text that is no number, or no id: a setting that the file needs.
const char* NumberAdvice(const CsvColumn& column, std::string_view text) {
  float unused;
  if (column.type == Type::ID) {
    const bool whole = !column.whole_floats && text.find(column.point) != std::string_view::npos &&
                       IsZeroFraction(text.substr(text.find(column.point)), column.point);
    return whole ? "; whole_floats of the column takes such numbers" : "";
  }
  if (column.point == '.') {
    return ParseFinite(WithPoint(text, ','), &unused) ? "; data.csv.decimal_comma reads numbers with a comma" : "";
  }
  return ParseFinite(text, &unused) ? "; data.csv.decimal_comma is set, so that numbers have a comma and no point" : "";
}

// Adds an id of the slot that is being read. Weights begin with the first that there is.
void AddId(int64_t id, std::optional<float> weight, Example* example) {
  if (weight.has_value() && example->weights.empty()) example->weights.resize(example->ids.size(), 1.0f);
  example->ids.push_back(id);
  if (weight.has_value() || !example->weights.empty()) example->weights.push_back(weight.value_or(1.0f));
}

class CsvParser : public LineParser {
 public:
  // `order`: for each field of a line the place of its column in config->columns, or kSkipped.
  CsvParser(std::vector<Column> columns, std::shared_ptr<const Config> config, std::vector<int> order)
      : LineParser(std::move(columns)),
        config_(std::move(config)),
        order_(std::move(order)),
        fast_(config_->dialect.separator.size() == 1 && !config_->decimal_comma),
        separator_(config_->dialect.separator[0]),
        quote_(config_->dialect.quote),
        trim_(config_->dialect.trim) {
    std::vector<bool> there(config_->columns.size());
    for (const int place : order_) {
      if (place == kSkipped) continue;
      const CsvColumn& column = config_->columns[static_cast<size_t>(place)];
      there[static_cast<size_t>(place)] = true;
      if (column.slot.is_float) continue;
      ids_in_order_ = ids_in_order_ && (slots_in_line_.empty() || column.slot.position > slots_in_line_.back());
      slots_in_line_.push_back(column.slot.position);
    }
    for (size_t i = 0; i < there.size(); ++i) {
      if (!there[i] && !config_->columns[i].slot.skip) absent_.push_back(config_->columns[i].slot.position);
    }
  }

  absl::Status Parse(std::string_view line, Example* example) const override {
    return fast_ && ParseFast(line, example) ? absl::OkStatus() : ParsePlain(line, example);
  }
  absl::Status ParsePlain(std::string_view line, Example* example) const override;

 private:
  bool ParseFast(std::string_view line, Example* example) const;
  static bool ReadOne(const CsvColumn& column, const char* p, const char* end, size_t* ids, Example* example);
  static bool ReadList(const CsvColumn& column, const char* p, const char* end, size_t* ids, Example* example);

  static absl::Status ParseFloats(const CsvColumn& column, std::string_view field, Example* example);
  static absl::Status ParseIds(const CsvColumn& column, std::string_view field, Example* example);
  static absl::Status AddElement(const CsvColumn& column, std::string_view element, Example* example);

  const std::shared_ptr<const Config> config_;
  const std::vector<int> order_;
  // ParseFast knows separators of one character and decimal points.
  const bool fast_;
  const char separator_;
  const char quote_;
  const bool trim_;
  std::vector<int> absent_;  // float positions that no field gives
  std::vector<int> slots_in_line_;
  bool ids_in_order_ = true;
};

bool CsvParser::ParseFast(std::string_view line, Example* example) const {
  const char* p = line.data();
  const char* const end = p + line.size();
  const char quote = quote_;
  const bool trim = trim_;
  Marks separators(p, end, separator_);
  example->ids.resize(slots_in_line_.size());
  example->weights.clear();
  size_t ids = 0;
  for (size_t i = 0; i < order_.size(); ++i) {
    if (p > end) return false;  // the line ended with the field before
    const char* stop = separators.Next();
    if (trim) {
      while (p < stop && IsBlank(*p)) ++p;
    }
    const bool quoted = p < end && *p == quote;
    const char* next = stop + 1;
    if (quoted) {
      const char* const closing = FindByte(p + 1, end, quote);
      while (stop <= closing && stop < end) stop = separators.Next();
      if (closing + 1 != stop) return false;  // not closed, a doubled quote, or blanks behind it
      next = stop + 1;
      stop = closing;
      ++p;
    } else if (trim) {
      while (stop > p && IsBlank(stop[-1])) --stop;
    }
    if (order_[i] != kSkipped) {
      const CsvColumn& column = config_->columns[static_cast<size_t>(order_[i])];
      const bool read = column.list.has_value() || column.weight.has_value() ? ReadList(column, p, stop, &ids, example)
                                                                             : ReadOne(column, p, stop, &ids, example);
      if (!read) return false;
    }
    p = next;
  }
  if (p != end + 1) return false;
  example->ids.resize(ids);
  for (const int position : absent_) example->floats[static_cast<size_t>(position)] = kMissing;
  if (!ids_in_order_) OrderIds(slots_in_line_, example);
  return true;
}

// Returns true if an id that ends at `stop`, or null, goes on to `end` as CsvColumn::whole_floats permits. Apart from
// ReadCsvId, whose callers are to stay small.
ABSL_ATTRIBUTE_NOINLINE bool EndsInZeros(const CsvColumn& column, const char* stop, const char* end) {
  return column.whole_floats && stop != nullptr &&
         IsZeroFraction({stop, static_cast<size_t>(end - stop)}, column.point);
}

// Reads an id of a field or of an element that ends at `end`.
WEIR_INLINE bool ReadCsvId(const CsvColumn& column, const char* p, const char* end, int64_t* id) {
  const char* const stop = ReadId(p, end, id);
  return stop == end || EndsInZeros(column, stop, end);
}

// Reads a field that is no list, without its quotes. `ids`: number of ids that the example has so far.
WEIR_INLINE bool CsvParser::ReadOne(const CsvColumn& column, const char* p, const char* end, size_t* ids,
                                    Example* example) {
  const size_t position = static_cast<size_t>(column.slot.position);
  if (column.has_texts() && column.IsMissing({p, static_cast<size_t>(end - p)})) end = p;
  const ptrdiff_t size = end - p;
  if (column.slot.is_float) {
    float* const out = &example->floats[position];
    if (column.learns >= 0) {
      SetText(column.learns, {p, static_cast<size_t>(size)}, example);
      *out = size == 0 ? kMissing : 0;
      return true;
    }
    if (!column.classes.empty() && size > 0) {
      const float* const number = column.ClassOf({p, static_cast<size_t>(size)});
      if (number != nullptr) *out = *number;
      return number != nullptr;
    }
    bool bad = false;
    if (size == 0) {
      *out = kMissing;
    } else if (size <= 8) {
      *out = ShortFloat(p, size, &bad);
    } else {
      bad = ReadFloat(p, end, out) != end;
    }
    return !bad;
  }
  example->counts[position] = size > 0;
  if (size == 0) return true;
  if (*ids == example->ids.size()) example->ids.resize(2 * *ids);  // lists have taken what was there
  int64_t* const id = &example->ids[(*ids)++];
  if (column.type == Type::TEXT) {
    *id = TextId({p, static_cast<size_t>(size)});
    return true;
  }
  if (column.type == Type::TIME) return ParseSeconds(column.time_format, {p, static_cast<size_t>(size)}, id);
  return ReadCsvId(column, p, end, id);
}

// Reads a field without its quotes, which may be a list.
bool CsvParser::ReadList(const CsvColumn& column, const char* p, const char* end, size_t* ids, Example* example) {
  const size_t position = static_cast<size_t>(column.slot.position);
  if (column.slot.is_float) {
    // Elements may be missing: the plain way looks at each.
    if (!column.missing.empty()) return false;
    float* out = &example->floats[position];
    if (p == end) {
      std::fill_n(out, column.slot.dim, kMissing);
      return true;
    }
    for (int i = 0;; ++i) {
      if (i == column.slot.dim) return false;
      p = ReadFloat(p, end, out + i);
      if (p == nullptr) return false;
      if (p == end) return i + 1 == column.slot.dim;
      if (*p != column.list) return false;
      ++p;
    }
  }
  if (column.weight.has_value()) return false;
  if (column.IsMissing({p, static_cast<size_t>(end - p)})) {
    example->counts[position] = 0;
    return true;
  }
  const size_t before = *ids;
  for (; p < end; ++p) {
    const char* const stop = column.list.has_value() ? FindByte(p, end, *column.list) : end;
    if (p == stop) continue;
    if (!column.missing.empty() && column.IsMissing({p, static_cast<size_t>(stop - p)})) {
      p = stop;
      continue;
    }
    int64_t id;
    if (column.type == Type::TEXT) {
      id = TextId({p, static_cast<size_t>(stop - p)});
    } else if (!ReadCsvId(column, p, stop, &id)) {
      return false;
    }
    if (*ids == example->ids.size()) example->ids.resize(2 * *ids);
    example->ids[(*ids)++] = id;
    p = stop;
  }
  const size_t count = *ids - before;
  if (count > Example::kMaxSlotIds) return false;
  example->counts[position] = static_cast<uint16_t>(count);
  return true;
}

absl::Status CsvParser::ParsePlain(std::string_view line, Example* example) const {
  example->ids.clear();
  example->weights.clear();
  std::vector<std::string> fields;
  RETURN_IF_ERROR(SplitCsvFields(line, config_->dialect, &fields));
  if (fields.size() != order_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", order_.size(), " fields, got ", fields.size()));
  }
  for (size_t i = 0; i < order_.size(); ++i) {
    if (order_[i] == kSkipped) continue;
    const CsvColumn& column = config_->columns[static_cast<size_t>(order_[i])];
    const absl::Status status =
        column.slot.is_float ? ParseFloats(column, fields[i], example) : ParseIds(column, fields[i], example);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("field ", i + 1, " (", column.slot.name, "): ", std::string(status.message())));
    }
  }
  for (const int position : absent_) example->floats[static_cast<size_t>(position)] = kMissing;
  if (!ids_in_order_) OrderIds(slots_in_line_, example);
  return absl::OkStatus();
}

// Returns the elements of a list, or the field itself if it is no list.
std::vector<std::string_view> Elements(std::string_view field, const std::optional<char>& list) {
  std::vector<std::string_view> elements;
  for (size_t begin = 0;;) {
    const size_t end = list.has_value() ? field.find(*list, begin) : std::string_view::npos;
    elements.push_back(field.substr(begin, end - begin));
    if (end == std::string_view::npos) return elements;
    begin = end + 1;
  }
}

// Returns "'no', 'yes'", cut where there are many.
std::string ClassesOf(const CsvColumn& column) {
  std::string text;
  for (const auto& [of_class, number] : column.classes) {
    if (text.size() > kShownNames) return text + " ...";
    absl::StrAppend(&text, text.empty() ? "'" : ", '", of_class, "'");
  }
  return text;
}

absl::Status CsvParser::ParseFloats(const CsvColumn& column, std::string_view field, Example* example) {
  float* out = &example->floats[static_cast<size_t>(column.slot.position)];
  if (column.learns >= 0) {
    const bool missing = column.IsMissing(field);
    SetText(column.learns, missing ? "" : field, example);
    *out = missing ? kMissing : 0;
    return absl::OkStatus();
  }
  if (column.IsMissing(field)) {
    std::fill_n(out, column.slot.dim, kMissing);
    return absl::OkStatus();
  }
  if (!column.classes.empty()) {
    const float* const number = column.ClassOf(field);
    if (number == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Shown(field), "' is no class; classes are ", ClassesOf(column)));
    }
    *out = *number;
    return absl::OkStatus();
  }
  const std::vector<std::string_view> elements = Elements(field, column.list);
  if (elements.size() != static_cast<size_t>(column.slot.dim)) {
    return absl::InvalidArgumentError(absl::StrCat("expected ", column.slot.dim, " values, got ", elements.size()));
  }
  for (size_t i = 0; i < elements.size(); ++i) {
    out[i] = kMissing;
    if (column.IsMissing(elements[i]) || ParseDecimal(elements[i], column.point, &out[i])) continue;
    const char* const why = WhyNotFinite(WithPoint(elements[i], column.point));
    std::string advice = why != kNotFinite ? "" : NumberAdvice(column, elements[i]);
    if (why == kNotFinite && advice.empty()) {
      advice =
          "; for texts there are classes, learn_classes and type: TEXT, and `missing` names what stands for nothing";
    }
    return absl::InvalidArgumentError(absl::StrCat("'", Shown(elements[i]), "' ", why, advice));
  }
  return absl::OkStatus();
}

absl::Status CsvParser::ParseIds(const CsvColumn& column, std::string_view field, Example* example) {
  const size_t before = example->ids.size();
  // Look for the whole text first: it may hold the character that separates elements.
  if (column.IsMissing(field)) field = "";
  for (const std::string_view element : Elements(field, column.list))
    RETURN_IF_ERROR(AddElement(column, element, example));
  const size_t count = example->ids.size() - before;
  if (count > Example::kMaxSlotIds) {
    return absl::InvalidArgumentError(
        absl::StrCat("has ", count, " values; at most ", Example::kMaxSlotIds, " are possible"));
  }
  example->counts[static_cast<size_t>(column.slot.position)] = static_cast<uint16_t>(count);
  return absl::OkStatus();
}

absl::Status CsvParser::AddElement(const CsvColumn& column, std::string_view element, Example* example) {
  if (column.IsMissing(element)) return absl::OkStatus();
  std::string_view value = element;
  std::optional<float> weight;
  // A text may hold the character, too: what stands behind the last one is the weight.
  const size_t mark = column.weight.has_value() ? element.rfind(*column.weight) : std::string_view::npos;
  if (mark != std::string_view::npos) {
    value = element.substr(0, mark);
    const std::string_view number = element.substr(mark + 1);
    if (!ParseDecimal(number, column.point, &weight.emplace())) {
      return absl::InvalidArgumentError(
          absl::StrCat("the weight in '", Shown(element), "' ", WhyNotFinite(WithPoint(number, column.point))));
    }
  }
  if (!value.empty() && column.IsMissing(value)) return absl::OkStatus();
  if (value.empty()) {
    if (!weight.has_value()) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("there is no value before the weight in '", Shown(element), "'"));
  }
  int64_t id = 0;
  if (column.type == Type::TEXT) {
    id = TextId(value);
  } else if (column.type == Type::TIME) {
    if (!ParseSeconds(column.time_format, value, &id)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", Shown(value), "' is no time of the form '", column.time_format, "' (time_format)"));
    }
  } else if (!ParseCsvId(column, value, &id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Shown(value), "' is not a 64-bit integer", NumberAdvice(column, value)));
  }
  AddId(id, weight, example);
  return absl::OkStatus();
}

// The format where files have headers: knows the columns, and each file's header makes the parser of its lines.
class CsvWithHeader : public LineParser {
 public:
  CsvWithHeader(std::vector<Column> columns, std::shared_ptr<const Config> config)
      : LineParser(std::move(columns)), config_(std::move(config)) {}

  absl::Status Parse(std::string_view, Example*) const override {
    return absl::InternalError("a line of a file whose header has not been read");
  }
  bool has_header() const override { return true; }
  absl::StatusOr<std::unique_ptr<LineParser>> ForHeader(std::string_view header,
                                                        const std::vector<int64_t>& may_be_absent) const override;

 private:
  const std::shared_ptr<const Config> config_;
};

absl::StatusOr<std::unique_ptr<LineParser>> CsvWithHeader::ForHeader(std::string_view header,
                                                                     const std::vector<int64_t>& may_be_absent) const {
  std::vector<std::string> names;
  RETURN_IF_ERROR(SplitCsvFields(header, config_->dialect, &names));
  std::vector<int> order(names.size(), kSkipped);
  for (size_t i = 0; i < config_->columns.size(); ++i) {
    const DataSlot& slot = config_->columns[i].slot;
    if (slot.skip) continue;
    const auto found = std::find(names.begin(), names.end(), slot.name);
    if (found == names.end()) {
      const bool may =
          slot.is_float && std::find(may_be_absent.begin(), may_be_absent.end(), slot.position) != may_be_absent.end();
      if (may) continue;
      std::string known = absl::StrJoin(names, ", ");
      if (known.size() > kShownNames) known = absl::StrCat(known.substr(0, kShownNames), " ...");
      return absl::InvalidArgumentError(
          absl::StrCat("the header has no column '", slot.name, "'; its ", names.size(), " are ", known));
    }
    if (std::find(found + 1, names.end(), slot.name) != names.end()) {
      return absl::InvalidArgumentError(absl::StrCat("the header has two columns '", slot.name, "'"));
    }
    order[static_cast<size_t>(found - names.begin())] = static_cast<int>(i);
  }
  return std::make_unique<CsvParser>(columns(), config_, std::move(order));
}

constexpr std::string_view kInNumbers = "0123456789+-.eE";

// A character that separates something in the fields of `csv`; `beside_numbers`: from numbers.
absl::Status CheckCharacter(const v1::Csv& csv, const std::string& text, bool beside_numbers, const std::string& field,
                            const SettingErrors& at) {
  if (text.size() != 1) return at.Error(field, absl::StrCat("must be one character, got '", text, "'"));
  if (text == csv.quote() || text == "\n" || text == "\r") {
    return at.Error(field, "must be no quote and no end of line");
  }
  const bool in_number = kInNumbers.find(text[0]) != std::string_view::npos || (csv.decimal_comma() && text == ",");
  if (!beside_numbers || !in_number) return absl::OkStatus();
  return at.Error(field, absl::StrCat("'", text, "' may stand in a number"));
}

// Checks the settings that say how lines are written.
absl::Status CheckDialect(const v1::Csv& csv, const SettingErrors& at) {
  constexpr std::string_view kEnds = "\r\n";
  const std::string &separator = csv.separator(), &quote = csv.quote();
  if (quote.size() > 1) {
    return at.Error("quote",
                    absl::StrCat("must be one character, or empty where fields have no quotes, got '", quote, "'"));
  }
  if (!quote.empty() && (kEnds.find(quote[0]) != std::string_view::npos || IsBlank(quote[0]) ||
                         kInNumbers.find(quote[0]) != std::string_view::npos)) {
    return at.Error("quote",
                    absl::StrCat("must be no end of line, no blank and nothing that numbers hold, got '", quote, "'"));
  }
  if (separator.empty()) return at.Error("separator", "must be one character or several, got ''");
  if ((!quote.empty() && separator.find(quote[0]) != std::string::npos) ||
      separator.find_first_of(kEnds) != std::string::npos) {
    return at.Error("separator", "must be no quote and no end of line");
  }
  if (separator.find_first_not_of(kInNumbers) == std::string::npos)
    return at.Error("separator", absl::StrCat("'", separator, "' may stand in a number"));
  if (csv.decimal_comma() && separator == "," && quote.empty()) {
    return at.Error("decimal_comma", "cannot be told from the separator ',' where fields have no quotes");
  }
  if (csv.skip_lines() < 0) return at.Error("skip_lines", absl::StrCat("must not be negative, got ", csv.skip_lines()));
  if (csv.comment().find_first_of(kEnds) != std::string::npos)
    return at.Error("comment", "begins a line, and has no end of line in it");
  return absl::OkStatus();
}

// Checks the characters that separate elements and weights in the fields of a column.
absl::Status CheckMarks(const v1::Csv& csv, const v1::Csv::Column& column, const std::string& path,
                        const SettingErrors& at) {
  const bool numbers = column.type() != Type::TEXT;
  if (!column.list().empty() || column.has_list()) {
    // Behind a text there may be a weight, which is a number.
    const bool beside = numbers || (csv.decimal_comma() && column.list() == "," && !column.weight().empty());
    RETURN_IF_ERROR(CheckCharacter(csv, column.list(), beside, path + ".list", at));
  }
  if (!column.has_weight()) return absl::OkStatus();
  return CheckCharacter(csv, column.weight(), numbers || (csv.decimal_comma() && column.weight() == ","),
                        path + ".weight", at);
}

std::optional<char> CharacterOf(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional<char>(text[0]);
}

absl::StatusOr<std::unique_ptr<LineParser>> MakeCsvParser(const v1::Csv& config) {
  auto made = std::make_shared<Config>();
  const PlainSettingErrors errors("data.csv");
  RETURN_IF_ERROR(CheckDialect(config, errors));
  made->dialect = DialectOf(config);
  made->decimal_comma = config.decimal_comma();
  constexpr size_t kManyClasses = 16;
  std::vector<DataSlot> slots;
  std::vector<int> order;
  int learning = 0;
  for (int i = 0; i < config.column_size(); ++i) {
    const v1::Csv::Column& in = config.column(i);
    const std::string where = absl::StrCat("data.csv.column[", i, "]");
    const bool skip = in.type() == Type::SKIP;
    CsvColumn column{.type = in.type(), .point = config.decimal_comma() ? ',' : '.', .whole_floats = in.whole_floats()};
    if (!skip) RETURN_IF_ERROR(CheckMarks(config, in, absl::StrCat("column[", i, "]"), errors));
    column.list = CharacterOf(in.list());
    column.weight = CharacterOf(in.weight());
    column.missing.assign(in.missing().begin(), in.missing().end());
    for (int c = 0; c < in.classes_size(); ++c) {
      for (const std::string& text : in.classes(c).text()) column.classes.emplace_back(text, static_cast<float>(c));
    }
    if (column.classes.size() > kManyClasses) {
      column.many_classes.insert(column.classes.begin(), column.classes.end());
    }
    if (in.learn_classes() && !skip && in.classes_size() == 0) column.learns = learning++;
    column.time_format = in.time_format();
    if (in.dim() != 1 && !column.list.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(where, ".dim: is for a column with a list, got ", in.dim()));
    }
    // A column that is thrown away need have no name.
    slots.push_back({.name = skip ? absl::StrCat("\n", i) : in.name(),
                     .output = in.output(),
                     .is_float = in.type() == Type::FLOAT,
                     .skip = skip,
                     .dim = in.dim(),
                     .id_kind = in.type() == Type::TEXT ? IdKind::kText : IdKind::kInteger});
    order.push_back(skip ? kSkipped : i);
    made->columns.push_back(std::move(column));
  }
  ASSIGN_OR_RETURN(std::vector<Column> columns, LayOutSlots("data.csv.column", {}, &slots));
  for (int i = 0; i < config.column_size(); ++i) {
    if (!config.column(i).learn_classes()) continue;
    for (Column& column : columns) column.learned = column.learned || column.name == config.column(i).name();
  }
  for (size_t i = 0; i < slots.size(); ++i) made->columns[i].slot = std::move(slots[i]);
  if (config.header()) return std::make_unique<CsvWithHeader>(std::move(columns), std::move(made));
  return std::make_unique<CsvParser>(std::move(columns), std::move(made), std::move(order));
}

// Texts that a field is compared with: each has one meaning, and a field can be equal to it.
absl::Status CheckTexts(const v1::Csv::Column& column, bool trim, const std::string& path, const SettingErrors& at) {
  std::set<std::string> texts;
  const auto check = [&](const std::string& text, const std::string& field) -> absl::Status {
    if (text.empty()) return at.Error(field, "must not be empty: an empty field is missing");
    if (trim && (IsBlank(text.front()) || IsBlank(text.back())))
      return at.Error(field, absl::StrCat("'", text, "' has blanks at its ends, which trim takes from every field"));
    if (!texts.insert(text).second) return at.Error(field, absl::StrCat("'", text, "' stands there twice"));
    return absl::OkStatus();
  };
  for (int i = 0; i < column.missing_size(); ++i)
    RETURN_IF_ERROR(check(column.missing(i), absl::StrCat(path, ".missing[", i, "]")));
  if (column.learn_classes()) {
    const std::string field = path + ".learn_classes";
    if (column.classes_size() > 0) return at.Error(field, "is for a column without a list of classes");
    if (column.type() != v1::Csv::Column::FLOAT)
      return at.Error(field, "is for FLOAT columns; the texts of a TEXT column need no list");
    if (column.has_list()) return at.Error(field, "is for a field that is no list");
  }
  if (column.classes_size() == 0) return absl::OkStatus();
  if (column.type() != v1::Csv::Column::FLOAT)
    return at.Error(path + ".classes", "is for FLOAT columns; the texts of a TEXT column need no list");
  if (column.has_list()) return at.Error(path + ".classes", "is for a field that is no list");
  for (int c = 0; c < column.classes_size(); ++c) {
    const std::string field = absl::StrCat(path, ".classes[", c, "]");
    if (column.classes(c).text_size() == 0) return at.Error(field, "has no text");
    for (int i = 0; i < column.classes(c).text_size(); ++i)
      RETURN_IF_ERROR(check(column.classes(c).text(i), absl::StrCat(field, ".text[", i, "]")));
  }
  return absl::OkStatus();
}

absl::Status CheckCsvColumn(const v1::Csv& csv, const v1::Csv::Column& column, const std::string& path,
                            const SettingErrors& at) {
  using Column = v1::Csv::Column;
  const bool is_float = column.type() == Column::FLOAT;
  if (column.type() == Column::TIME) {
    if (column.has_list()) return at.Error(path + ".list", "is for numbers and texts; a TIME column holds one time");
    if (column.time_format().empty())
      return at.Error(path + ".time_format", "is empty; \"%Y-%m-%d %H:%M:%S\" is a form");
    if (column.time_format().find('%') == std::string::npos)
      return at.Error(path + ".time_format",
                      absl::StrCat("'", column.time_format(), "' has no letter of strftime, as %Y"));
  } else if (column.has_time_format()) {
    return at.Error(path + ".time_format", "is for TIME columns");
  }
  if (column.whole_floats() && column.type() != Column::ID)
    return at.Error(path + ".whole_floats", "is for ID columns; a FLOAT column takes such numbers by itself");
  RETURN_IF_ERROR(CheckMarks(csv, column, path, at));
  RETURN_IF_ERROR(CheckSlotDim(column.dim(), is_float, column.has_dim(), path,
                               "is for FLOAT columns; a list of ids holds any number of them", at));
  if (column.has_dim() && !column.has_list())
    return at.Error(path + ".dim", "is for a list; say which character separates its values");
  if (!column.has_weight()) return absl::OkStatus();
  if (is_float) return at.Error(path + ".weight", "is for ID and TEXT columns");
  if (!column.has_list()) return at.Error(path + ".weight", "is for a list; say which character separates its values");
  if (column.weight() == column.list()) return at.Error(path + ".weight", "must differ from list");
  return absl::OkStatus();
}

// A column whose classes are learned is a variable of its own: nothing is done with its numbers in the pass that
// learns.
absl::Status CheckLearnedOutput(const v1::Csv& m, int learned, const SettingErrors& at) {
  const std::string& name = m.column(learned).name();
  for (int i = 0; i < m.column_size(); ++i) {
    const v1::Csv::Column& column = m.column(i);
    if (column.type() == v1::Csv::Column::SKIP || !column.has_output()) continue;
    if (i == learned ? column.output() == name : column.output() != name) continue;
    return at.Error(absl::StrCat("column[", i, "].output"),
                    absl::StrCat("'", name, "', whose classes are learned, is a variable of its own"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::VarDesc>> CsvSchema(const v1::Csv& m, const SettingErrors& at) {
  RETURN_IF_ERROR(CheckDialect(m, at));
  SlotSchema vars("column", at);
  for (int i = 0; i < m.column_size(); ++i) {
    const v1::Csv::Column& column = m.column(i);
    const std::string path = absl::StrCat("column[", i, "]");
    if (column.type() == v1::Csv::Column::SKIP) continue;
    RETURN_IF_ERROR(vars.Name(column.name(), path));
    RETURN_IF_ERROR(CheckCsvColumn(m, column, path, at));
    RETURN_IF_ERROR(CheckTexts(column, m.trim(), path, at));
    if (column.learn_classes()) RETURN_IF_ERROR(CheckLearnedOutput(m, i, at));
    const bool is_float = column.type() == v1::Csv::Column::FLOAT;
    RETURN_IF_ERROR(vars.Add(column.output().empty() ? column.name() : column.output(), is_float ? v1::DENSE : v1::IDS,
                             is_float ? column.dim() : 1, path, path + ".dim"));
  }
  return std::move(vars).Finish(" that is not skipped");
}

WEIR_REGISTER_DATA_SCHEMA(v1::Csv, CsvSchema);
WEIR_REGISTER_LINE_PARSER(v1::Csv, MakeCsvParser);

}  // namespace
}  // namespace weir
