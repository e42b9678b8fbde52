// Fields of a line of text in columns (v1::Csv) as texts, for code that carries them elsewhere;
// framework/formats/csv.cc parses the values.
#ifndef WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_
#define WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_

#include <string>
#include <string_view>
#include <vector>

namespace weir {

// Sets `fields` to the texts of the fields, without their quotes, and with `trim` without the blanks and tabs around
// them. Returns false if a quote is not closed, or if something stands behind a closing quote.
bool SplitCsvFields(std::string_view line, char separator, bool trim, std::vector<std::string>* fields);

// Appends a field to a line with ',' between fields: in quotes if it holds a comma, a quote or an end of line, or has a
// blank or a tab at one of its ends.
void AppendCsvField(std::string_view text, std::string* line);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_FORMATS_CSV_FIELDS_H_
