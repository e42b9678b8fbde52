#include "transpiler/job/job_dir.h"

#include <filesystem>
#include <system_error>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"

ABSL_FLAG(std::string, job_dir, "",
          "directory to which paths in the job are relative; default: that of the job file, or the working directory "
          "for a job from a pipe or standard input");

namespace weir {

absl::StatusOr<std::string> JobDirectory() {
  std::string directory = absl::GetFlag(FLAGS_job_dir);
  std::error_code ignored;
  if (directory.empty() || std::filesystem::is_directory(directory, ignored)) return directory;
  return absl::NotFoundError(
      absl::StrCat("--job_dir=", directory, ": there is no such directory, to which paths in the job are relative"));
}

}  // namespace weir
