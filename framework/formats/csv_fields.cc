#include "framework/formats/csv_fields.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/str_cat.h"

namespace weir {

absl::Status SplitCsvFields(std::string_view line, char separator, bool trim, std::vector<std::string>* fields) {
  // A separator is no blank, even if it is a tab.
  const auto blank = [&](size_t i) { return trim && line[i] != separator && IsBlank(line[i]); };
  constexpr size_t kShown = 40;  // bytes of a message
  size_t count = 0;
  for (size_t at = 0;; ++at) {  // behind the separator
    if (count == fields->size()) fields->emplace_back();
    std::string& field = (*fields)[count++];
    while (at < line.size() && blank(at)) ++at;
    if (at < line.size() && line[at] == '"') {
      field.clear();
      for (++at;; ++at) {
        const size_t quote = line.find('"', at);
        if (quote == std::string_view::npos) {
          return absl::InvalidArgumentError(
              absl::StrCat("field ", count, ": its quote is not closed; an end of line cannot be in a field"));
        }
        field += line.substr(at, quote - at);
        at = quote + 1;
        if (at >= line.size() || line[at] != '"') break;
        field += '"';
      }
      while (at < line.size() && blank(at)) ++at;
      if (at < line.size() && line[at] != separator) {
        return absl::InvalidArgumentError(
            absl::StrCat("field ", count, ": '", std::string(line.substr(at, kShown)),
                         "' stands behind its closing quote; a quote in a field is doubled, and fields are ",
                         "separated by '", std::string(1, separator), "' (data.csv.separator)"));
      }
    } else {
      const size_t end = std::min(line.find(separator, at), line.size());
      size_t last = end;
      while (last > at && blank(last - 1)) --last;
      field = line.substr(at, last - at);
      at = end;
    }
    if (at >= line.size()) break;
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
