// Decides which names are written without quotes in a program's text (framework/graph/program_text.h). Used by printer
// and parser.
#ifndef WEIR_FRAMEWORK_GRAPH_PROGRAM_NAMES_H_
#define WEIR_FRAMEWORK_GRAPH_PROGRAM_NAMES_H_

#include <cctype>

namespace weir {

inline bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '@' || c == '/' || c == '+' ||
         c == '-';
}

inline bool IsNameStart(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_PROGRAM_NAMES_H_
