// Lines of a text file that are no records: those in front of the data, comments, and blank ones (v1::Csv).
#ifndef WEIR_TRAINER_FILES_LINE_RULES_H_
#define WEIR_TRAINER_FILES_LINE_RULES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proto/job.pb.h"

namespace weir {

// Immutable; thread-safe.
struct LineRules {
  // Lines at the beginning of a file that are no records, whatever they hold.
  int64_t skipped = 0;
  bool skips_blank = false;
  // Begins lines that are no records; empty: there are none.
  std::string comment = {};
  // Separates fields: a line that has it is not blank.
  std::string separator = {};

  // Returns whether a line behind the skipped ones is a record. `line`: without its end and a mark of byte order.
  bool IsRecord(std::string_view line) const {
    if (!comment.empty() && line.starts_with(comment)) return false;
    return !skips_blank || line.find_first_not_of(" \t") != std::string_view::npos ||
           line.find(separator) != std::string_view::npos;
  }
};

// Returns the rules of a reader; null if every line is a record.
inline std::shared_ptr<const LineRules> LineRulesOf(const v1::Data& data) {
  const v1::Csv& csv = data.csv();
  if (!data.has_csv() || (csv.skip_lines() <= 0 && !csv.skip_blank_lines() && csv.comment().empty())) return nullptr;
  return std::make_shared<LineRules>(LineRules{.skipped = csv.skip_lines(),
                                               .skips_blank = csv.skip_blank_lines(),
                                               .comment = csv.comment(),
                                               .separator = csv.separator()});
}

}  // namespace weir

#endif  // WEIR_TRAINER_FILES_LINE_RULES_H_
