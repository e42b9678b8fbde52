// Checks JobConfig.start_from, as far as that is possible without the checkpoints.
#ifndef WEIR_TRANSPILER_JOB_CHECK_START_H_
#define WEIR_TRANSPILER_JOB_CHECK_START_H_

#include "absl/status/status.h"
#include "transpiler/job/job.h"

namespace weir {

// InvalidArgument, with its place: a missing directory, a pattern or replacement that is no regular expression, two
// settings that exclude each other.
absl::Status CheckStart(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_START_H_
