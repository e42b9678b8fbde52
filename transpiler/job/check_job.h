// Checks of a job that need neither data nor operators. Shapes and names of inputs are checked when the program is
// built (transpiler/passes/build_forward.cc).
#ifndef WEIR_TRANSPILER_JOB_CHECK_JOB_H_
#define WEIR_TRANSPILER_JOB_CHECK_JOB_H_

#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "proto/job.pb.h"
namespace weir {

struct Job;

// Largest train.threads: more than any machine has cores, fewer than a process may have threads.
inline constexpr int kMaxThreads = 1024;

// Checks the job. InvalidArgument "job.textproto:12:5: distribute.trainers must be at least 1, got 0" for the first
// setting at fault.
absl::Status CheckJob(const Job& job);

// Text for RefuseTransform: why data.dense transforms no column of a variable that a loss reads, and the way out.
inline constexpr char kReadByLoss[] =
    "a loss reads it as its label, sample weight, length or probability, or computes one of them from it; take this "
    "column out, or name in data.dense.except what is to stay as it is instead";
// Returns the error of data.dense.column[column], whose variable stays as it is: "job.textproto:12:5:
// data.dense.column[0].variable 'label' is never transformed: <why>".
absl::Status RefuseTransform(const Job& job, int column, std::string_view why);

// Returns the number of threads for this process: --threads (`flag`, 0: not given), else train.threads. InvalidArgument
// if the flag is out of its range.
absl::StatusOr<int> ThreadSetting(int flag, const v1::JobConfig& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_CHECK_JOB_H_
