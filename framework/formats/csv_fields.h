// Fields of a line of text in columns (v1::Csv) as texts. framework/formats/csv.cc parses their values.
#ifndef WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_
#define WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace weir {

// Blanks that `trim` takes away.
inline bool IsBlank(char c) { return c == ' ' || c == '\t'; }

// Marks between and around the fields of a line.
struct CsvDialect {
  static constexpr char kNoQuote = '\n';  // no line has it

  std::string separator = ",";
  char quote = '"';
  bool trim = false;
};

// Returns the dialect of a reader. A wrong setting (framework/formats/csv.cc checks them) counts as the default.
CsvDialect DialectOf(const v1::Csv& csv);

// Sets `fields` to the texts of the fields, without their quotes, and with `trim` without the blanks and tabs around
// them. InvalidArgument: a quote is not closed, or something stands behind a closing quote; the caller prepends file
// and line.
absl::Status SplitCsvFields(std::string_view line, const CsvDialect& dialect, std::vector<std::string>* fields);

// Appends a field to a line with ',' between fields: in quotes if it holds a comma, a quote or an end of line, or has a
// blank or a tab at one of its ends.
void AppendCsvField(std::string_view text, std::string* line);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_
