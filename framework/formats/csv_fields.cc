#include "framework/formats/csv_fields.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace weir {
namespace {

constexpr size_t kShownField = 40;  // bytes of a message

// Reads fields from `at` on, one after the other.
class FieldReader {
 public:
  FieldReader(std::string_view line, const CsvDialect& dialect) : line_(line), dialect_(dialect) {}

  // Reads the next field. Sets *last if no other one follows.
  absl::Status Read(size_t number, std::string* field, bool* last) {
    PassBlanks();
    if (at_ < line_.size() && line_[at_] == dialect_.quote) {
      if (absl::Status read = ReadQuoted(number, field); !read.ok()) return read;
    } else {
      const size_t end = std::min(NextSeparator(), line_.size());
      size_t stop = end;
      while (stop > at_ && Blank(stop - 1)) --stop;
      *field = line_.substr(at_, stop - at_);
      at_ = end;
    }
    *last = at_ >= line_.size();
    at_ += dialect_.separator.size();
    return absl::OkStatus();
  }

 private:
  size_t NextSeparator() const {
    const std::string& separator = dialect_.separator;
    return separator.size() == 1 ? line_.find(separator[0], at_) : line_.find(separator, at_);
  }
  // A separator is no blank, even if it is a tab.
  bool Blank(size_t i) const {
    return dialect_.trim && IsBlank(line_[i]) && (dialect_.separator.size() > 1 || line_[i] != dialect_.separator[0]);
  }
  bool SeparatorAt(size_t i) const { return line_.substr(i).starts_with(dialect_.separator); }
  void PassBlanks() {
    while (at_ < line_.size() && Blank(at_) && !SeparatorAt(at_)) ++at_;
  }

  absl::Status ReadQuoted(size_t number, std::string* field) {
    field->clear();
    for (++at_;; ++at_) {
      const size_t quote = line_.find(dialect_.quote, at_);
      if (quote == std::string_view::npos) {
        return absl::InvalidArgumentError(
            absl::StrCat("field ", number, ": its quote is not closed; an end of line cannot be in a field, and in ",
                         "text without quotes data.csv.quote is empty"));
      }
      *field += line_.substr(at_, quote - at_);
      at_ = quote + 1;
      if (at_ >= line_.size() || line_[at_] != dialect_.quote) break;
      *field += dialect_.quote;
    }
    PassBlanks();
    if (at_ >= line_.size() || SeparatorAt(at_)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("field ", number, ": '", std::string(line_.substr(at_, kShownField)),
                                                   "' stands behind its closing quote; a quote in a field is doubled, ",
                                                   "and fields are separated by '", dialect_.separator,
                                                   "' (data.csv.separator)"));
  }

  const std::string_view line_;
  const CsvDialect& dialect_;
  size_t at_ = 0;
};

}  // namespace

CsvDialect DialectOf(const v1::Csv& csv) {
  CsvDialect dialect = {.trim = csv.trim()};
  if (!csv.separator().empty()) dialect.separator = csv.separator();
  if (csv.quote().size() <= 1) dialect.quote = csv.quote().empty() ? CsvDialect::kNoQuote : csv.quote()[0];
  return dialect;
}

absl::Status SplitCsvFields(std::string_view line, const CsvDialect& dialect, std::vector<std::string>* fields) {
  FieldReader reader(line, dialect);
  size_t count = 0;
  for (bool last = false; !last;) {
    if (count == fields->size()) fields->emplace_back();
    std::string& field = (*fields)[count++];
    if (absl::Status read = reader.Read(count, &field, &last); !read.ok()) return read;
  }
  fields->resize(count);
  return absl::OkStatus();
}

void AppendCsvField(std::string_view text, std::string* line) {
  const bool quoted = text.find_first_of(",\"\r\n") != std::string_view::npos ||
                      (!text.empty() && (IsBlank(text.front()) || IsBlank(text.back())));
  if (!quoted) {
    line->append(text);
    return;
  }
  *line += '"';
  for (const char c : text) {
    if (c == '"') *line += '"';
    *line += c;
  }
  *line += '"';
}

}  // namespace weir
