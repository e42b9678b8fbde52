#include "transpiler/job/load_job.h"

#include <filesystem>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "transpiler/job/check_job.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/model_differences.h"
#include "transpiler/job/trained_job.h"

namespace weir {
namespace {

absl::Status RefuseDirectory(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(path, ignored)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(path, ": is a directory, not a file"));
}

absl::StatusOr<std::string> ReadProgram(const std::string& path) {
  RETURN_IF_ERROR(RefuseDirectory(path));
  return ReadWholeFile(path);
}

// Puts the checkpoints of --start_from into the job, beside the rules that it has for them.
absl::Status TakeStarts(const std::vector<std::string>& checkpoints, Job* job) {
  const int given = static_cast<int>(checkpoints.size()), own = job->config.start_from_size();
  if (given > 0 && own > 0 && given != own) {
    return job->positions.Error(
        "start_from[0]", absl::StrCat("--start_from names ", given, given == 1 ? " checkpoint" : " checkpoints", " (",
                                      absl::StrJoin(checkpoints, ", "), "), but the job has ", own,
                                      " start_from, whose checkpoints they replace: name one for each, in "
                                      "their order"));
  }
  for (int i = 0; i < given; ++i) {
    if (own == 0) job->config.add_start_from();
    RETURN_IF_ERROR(ApplyOverride(
        absl::StrCat("start_from[", i, "].checkpoint=\"", absl::CEscape(checkpoints[static_cast<size_t>(i)]), "\""),
        &job->config, &job->positions));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Job> ParseJob(std::string_view text, const std::string& file, const std::vector<std::string>& overrides,
                             const BesideJob& beside) {
  Job job;
  job.file = file;
  job.directory = beside.directory;
  if (job.directory.empty() && !IsStream(file)) job.directory = std::filesystem::path(file).parent_path().string();
  RETURN_IF_ERROR(ParseTextProto(text, file, &job.config, &job.positions));
  for (const std::string& assignment : overrides) {
    RETURN_IF_ERROR(ApplyOverride(assignment, &job.config, &job.positions));
  }
  RETURN_IF_ERROR(TakeStarts(beside.start_from, &job));
  if (!beside.trained.empty()) {
    if (!beside.program.empty()) {
      return absl::InvalidArgumentError("--program and --checkpoint_job both replace the model: give one of them");
    }
    ASSIGN_OR_RETURN(const v1::JobConfig trained, ReadTrainedJob(beside.trained));
    job.replaced = ModelDifferenceText(beside.trained, job.config, CheckpointUse::kPrediction);
    job.config = WithModelOf(trained, job.config);
  }
  if (!beside.program.empty()) {
    job.config.clear_model();
    job.program_given = true;
    std::error_code ignored;
    job.config.set_program(std::filesystem::absolute(beside.program, ignored).string());
  }
  // With both there is an error to come that says more than a missing file.
  if (job.config.has_program() && !job.config.has_model()) {
    absl::StatusOr<std::string> program = ReadProgram(job.Path(job.config.program()));
    if (!program.ok()) return job.positions.Error("program", std::string(program.status().message()));
    job.program_text = *std::move(program);
  }
  ApplyMode(job.config.mutable_distribute());
  RETURN_IF_ERROR(CheckJob(job));
  return job;
}

absl::StatusOr<std::string> ReadJobFile(const std::string& file) {
  RETURN_IF_ERROR(RefuseDirectory(file));
  return ReadJobText(file);
}

absl::StatusOr<Job> LoadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const BesideJob& beside) {
  ASSIGN_OR_RETURN(const std::string text, ReadJobFile(file));
  return ParseJob(text, file, overrides, beside);
}

}  // namespace weir
