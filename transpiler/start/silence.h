// New parts of a model without effect on what it predicts: which weights, and which columns of tables, must be zero.
#ifndef WEIR_TRANSPILER_START_SILENCE_H_
#define WEIR_TRANSPILER_START_SILENCE_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/start/element_match.h"
#include "transpiler/start/program_elements.h"

namespace weir {

struct Silence {
  // Of a parameter: products of ranges of its axes.
  struct Box {
    std::vector<IndexRanges> axes;
  };
  std::map<std::string, std::vector<Box>> dense;
  // Columns [begin, end) of tables.
  std::map<std::string, IndexRange> tables;
  // Tables that have rows already: rows made later read 0 as a whole, also for ids of parts that are not new. By table:
  // the reason.
  std::map<std::string, std::string> shared;
};

// Finds the smallest of the zeros that make the new parts silent and leave each a factor that is not zero, so that they
// learn. `fresh`: names of new inputs, parameters and elements.
// InvalidArgument, without a place: a part that cannot be silent, or could not learn then; names the operator.
absl::StatusOr<Silence> FindSilence(const ProgramElements& program, const NameSet& fresh);

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_SILENCE_H_
