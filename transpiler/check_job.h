// Every check of a job that needs neither data nor operators. Shapes and names of inputs are checked when the program is
// built (transpiler/build_forward.h).
#ifndef WEIR_TRANSPILER_CHECK_JOB_H_
#define WEIR_TRANSPILER_CHECK_JOB_H_

#include "absl/status/status.h"
#include "transpiler/job.h"

namespace weir {

// InvalidArgument "job.textproto:12:5: distribute.servers must be at least 1, got 0" for the first setting at fault.
absl::Status CheckJob(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_CHECK_JOB_H_
