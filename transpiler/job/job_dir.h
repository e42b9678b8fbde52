// Command-line flag --job_dir of the programs that read a job. Linking this target defines it. For main files.
#ifndef WEIR_TRANSPILER_JOB_JOB_DIR_H_
#define WEIR_TRANSPILER_JOB_JOB_DIR_H_

#include <string>

#include "absl/flags/declare.h"
#include "absl/status/statusor.h"

ABSL_DECLARE_FLAG(std::string, job_dir);

namespace weir {

// Returns the value of the flag, for BesideJob::directory; "" if it is not given. NotFound if there is no such
// directory.
absl::StatusOr<std::string> JobDirectory();

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_JOB_DIR_H_
