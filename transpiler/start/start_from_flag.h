// Command-line flag --start_from of the programs that take part in a job. Linking this target defines it. For main
// files.
#ifndef WEIR_TRANSPILER_START_START_FROM_FLAG_H_
#define WEIR_TRANSPILER_START_START_FROM_FLAG_H_

#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"

ABSL_DECLARE_FLAG(std::string, start_from);

namespace weir {

// Returns the directories of the flag as absolute paths, for BesideJob::start_from; none if it is not given.
// InvalidArgument: one of them is blank.
absl::StatusOr<std::vector<std::string>> StartFromFlag();

}  // namespace weir

#endif  // WEIR_TRANSPILER_START_START_FROM_FLAG_H_
