#include "transpiler/start/start_from_flag.h"

#include <filesystem>
#include <utility>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

ABSL_FLAG(std::string, start_from, "",
          "checkpoint of another job, or directory of checkpoints, whose values a new run begins with, relative to the "
          "working directory; several with commas. Short for start_from { checkpoint: \"DIR\" } of the job, whose "
          "rename, new, drop, ... stay; a run that resumes does not look at it");

namespace weir {

absl::StatusOr<std::vector<std::string>> StartFromFlag() {
  const std::string flag = absl::GetFlag(FLAGS_start_from);
  std::vector<std::string> directories;
  if (flag.empty()) return directories;
  for (const std::string& each : std::vector<std::string>(absl::StrSplit(flag, ','))) {
    if (each.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--start_from=", flag, ": directory ", directories.size(), " is blank, must be DIR or DIR,DIR"));
    }
    std::string path = std::filesystem::absolute(each).lexically_normal().string();
    if (path.size() > 1 && path.back() == '/') path.pop_back();
    directories.push_back(std::move(path));
  }
  return directories;
}

}  // namespace weir
