// Checks that the modes in which trainers cooperate are compatible.
#ifndef WEIR_TRANSPILER_JOB_CHECK_MODES_H_
#define WEIR_TRANSPILER_JOB_CHECK_MODES_H_

#include "absl/status/status.h"

namespace weir {

struct Job;

// Checks distribute.async_mode, delay_compensation, async_tables, train.accumulate_steps and workers: values in range,
// and none that contradicts another. InvalidArgument with file:line:column.
absl::Status CheckModes(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_MODES_H_
