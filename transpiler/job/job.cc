#include "transpiler/job/job.h"

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "transpiler/job/check_job.h"

namespace weir {
namespace {

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    return absl::NotFoundError(absl::StrCat(path, ": is a directory, not a file"));
  }
  return ReadWholeFile(path);
}

}  // namespace

std::string Job::Path(std::string_view path) const {
  const std::filesystem::path given(path);
  if (given.is_absolute() || directory.empty()) return std::string(path);
  return (std::filesystem::path(directory) / given).string();
}

absl::Status AtField(const Job& job, const absl::Status& error) {
  const std::string text(error.message());
  const size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_.[]");
  if (error.ok() || end == std::string::npos || text.compare(end, 2, ": ") != 0) return error;
  // "data.tsv: ..." is no field.
  const std::string path = text.substr(0, end);
  const std::string top = path.substr(0, path.find('.'));
  const auto* const field = v1::JobConfig::descriptor()->FindFieldByName(top);
  const size_t next = std::min(path.find_first_of(".[", top.size() + 1), path.size());
  const bool known =
      field != nullptr && field->message_type() != nullptr && top.size() < path.size() &&
      field->message_type()->FindFieldByName(path.substr(top.size() + 1, next - top.size() - 1)) != nullptr;
  return known ? absl::Status(error.code(), absl::StrCat(job.positions.At(path), ": ", text)) : error;
}

std::map<std::string, std::vector<std::string>> RowFiles(const Job& job) {
  std::map<std::string, std::vector<std::string>> files;
  for (const v1::Table& table : job.config.table()) {
    for (const std::string& file : table.load()) files[table.name()].push_back(job.Path(file));
  }
  return files;
}

absl::StatusOr<Job> ParseJob(std::string_view text, const std::string& file, const std::vector<std::string>& overrides,
                             const std::string& program_file) {
  Job job;
  job.file = file;
  job.directory = std::filesystem::path(file).parent_path().string();
  RETURN_IF_ERROR(ParseTextProto(text, file, &job.config, &job.positions));
  for (const std::string& assignment : overrides) {
    RETURN_IF_ERROR(ApplyOverride(assignment, &job.config, &job.positions));
  }
  if (!program_file.empty()) {
    job.config.clear_model();
    job.program_given = true;
    std::error_code ignored;
    job.config.set_program(std::filesystem::absolute(program_file, ignored).string());
  }
  // With both there is an error to come that says more than a missing file.
  if (job.config.has_program() && !job.config.has_model()) {
    absl::StatusOr<std::string> program = ReadFile(job.Path(job.config.program()));
    if (!program.ok()) return job.positions.Error("program", std::string(program.status().message()));
    job.program_text = *std::move(program);
  }
  RETURN_IF_ERROR(CheckJob(job));
  return job;
}

absl::StatusOr<Job> LoadJob(const std::string& file, const std::vector<std::string>& overrides,
                            const std::string& program) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  return ParseJob(text, file, overrides, program);
}

}  // namespace weir
