// Reads jobs from files and texts, and checks them.
#ifndef WEIR_TRANSPILER_JOB_LOAD_JOB_H_
#define WEIR_TRANSPILER_JOB_LOAD_JOB_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/job/job.h"

namespace weir {

// Reads the job, applies overrides ("distribute.servers=3", in order), and checks every setting that can be checked
// without the data. `program`, if not empty, is a program file that replaces the job's model or program; relative to
// the working directory. InvalidArgument "job.textproto:12:5: ...", or for an empty pipe. NotFound if there is no such
// file.
absl::StatusOr<Job> LoadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const std::string& program = "");
// The two parts of LoadJob. A program that needs a job with several sets of overrides reads it once only: `file` may be
// a pipe or standard input, for which paths in the job are relative to the working directory.
absl::StatusOr<std::string> ReadJobFile(const std::string& file);
absl::StatusOr<Job> ParseJob(std::string_view text, const std::string& file, const std::vector<std::string>& overrides,
                             const std::string& program = "");

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_LOAD_JOB_H_
