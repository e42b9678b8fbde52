// Reads jobs from files and texts, and checks them.
#ifndef WEIR_TRANSPILER_JOB_LOAD_JOB_H_
#define WEIR_TRANSPILER_JOB_LOAD_JOB_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transpiler/job/job.h"

namespace weir {

// Settings given beside a job file, with paths relative to the working directory.
struct BesideJob {
  // Program file that replaces the job's model or program. "": none.
  std::string program;
  // Directory to which paths in the job are relative (job_dir.h). "": that of the file, or the working directory if the
  // file is a pipe or standard input.
  std::string directory;
  // Job text of a checkpoint, whose model replaces that of the file (WithModelOf in trained_job.h). "": none.
  std::string trained = {};
  // Checkpoints of --start_from, absolute: they replace those of the job's start_from, one by one, or are the
  // start_from of a job that has none.
  std::vector<std::string> start_from = {};
};

// Reads the job, applies overrides ("distribute.servers=3", in order), and checks every setting that can be checked
// without the data. InvalidArgument "job.textproto:12:5: ...", for an empty pipe, or if beside.start_from has another
// number than the job's start_from. NotFound if there is no such file.
absl::StatusOr<Job> LoadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const BesideJob& beside = {});
// The two parts of LoadJob. A program that needs a job with several sets of overrides reads it once only: `file` may be
// a pipe or standard input.
absl::StatusOr<std::string> ReadJobFile(const std::string& file);
absl::StatusOr<Job> ParseJob(std::string_view text, const std::string& file, const std::vector<std::string>& overrides,
                             const BesideJob& beside = {});

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_LOAD_JOB_H_
