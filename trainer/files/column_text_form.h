// Form of the lines that columns become (trainer/files/column_text.h).
#ifndef WEIR_TRAINER_FILES_COLUMN_TEXT_FORM_H_
#define WEIR_TRAINER_FILES_COLUMN_TEXT_FORM_H_

#include <map>
#include <string>

namespace weir {

struct ColumnTextForm {
  char separator = ',';
  // true: the first line has the names of the columns.
  bool header = false;
  // true: a field that has the separator or a quote is quoted as in CSV. false: such a field is an error.
  bool quotes = false;
  // Separators of lists, by the name of the column; others have '|'.
  std::map<std::string, char> lists;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_COLUMN_TEXT_FORM_H_
