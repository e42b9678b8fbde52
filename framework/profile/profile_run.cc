#include "framework/profile/profile_run.h"

#include <unistd.h>

#include <filesystem>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "framework/base/atomic_file.h"
#include "framework/base/status_macros.h"
#include "framework/profile/profile_table.h"
#include "framework/profile/profiler.h"
#include "framework/profile/trace.h"
#include "glog/logging.h"

ABSL_FLAG(std::string, profile, "",
          "record operators, calls and waits of some steps: a trace for chrome://tracing or Perfetto goes to this "
          "file, a table of "
          "where the step went is printed at the end");
ABSL_FLAG(std::string, profile_steps, "20:40", "--profile: steps BEGIN to END - 1, counted from 0");
ABSL_FLAG(bool, profile_table, true, "--profile: print the table");

namespace weir {

absl::StatusOr<std::pair<int64_t, int64_t>> ParseProfileSteps(std::string_view text) {
  const size_t colon = text.find(':');
  const auto number = [text](size_t from, size_t n, int64_t* to) {
    const std::string_view digits = text.substr(from, n);
    return absl::SimpleAtoi(absl::string_view(digits.data(), digits.size()), to) && *to >= 0;
  };
  int64_t begin = 0, end = 0;
  if (colon != std::string_view::npos && number(0, colon, &begin) && number(colon + 1, std::string_view::npos, &end) &&
      begin < end) {
    return std::pair(begin, end);
  }
  return absl::InvalidArgumentError(absl::StrCat("--profile_steps=", absl::string_view(text.data(), text.size()),
                                                 ": BEGIN:END is wanted, 0 <= BEGIN < END, as in 20:40"));
}

absl::StatusOr<ProfileFlags> ReadProfileFlags() {
  ASSIGN_OR_RETURN(const auto steps, ParseProfileSteps(absl::GetFlag(FLAGS_profile_steps)));
  ProfileFlags flags{.file = "", .begin = steps.first, .end = steps.second};
  const std::string given = absl::GetFlag(FLAGS_profile);
  if (given.empty()) return flags;
  const std::string file = std::filesystem::absolute(given).lexically_normal().string();
  const std::string directory = DirectoryOf(file);
  std::error_code error;
  if (std::filesystem::is_directory(file, error) || file.ends_with('/')) {
    return absl::InvalidArgumentError(absl::StrCat("--profile=", given, " is a directory; a file is wanted"));
  }
  if (!std::filesystem::is_directory(directory, error) || access(directory.c_str(), W_OK) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--profile=", given, ": ", directory, " is no directory that can be written"));
  }
  flags.file = file;
  return flags;
}

absl::StatusOr<ProfileRun> ProfileRun::Start(std::string process) {
  ProfileRun run;
  run.process_ = std::move(process);
  ASSIGN_OR_RETURN(const ProfileFlags flags, ReadProfileFlags());
  run.file_ = flags.file;
  run.end_ = flags.end;
  if (!flags.file.empty()) Profiler::Process().Start(flags.begin, flags.end);
  return run;
}

void ProfileRun::AfterStep(int64_t steps_done) {
  if (steps_done != end_) return;
  const absl::Status written = Write();
  if (!written.ok()) LOG(WARNING) << "--profile: " << written.message();
}

absl::Status ProfileRun::Write() {
  if (file_.empty() || written_) return absl::OkStatus();
  written_ = true;
  ASSIGN_OR_RETURN(const v1::Trace trace, MergeTraces({MakeTrace(Profiler::Process().Collect(), process_)}));
  return WriteTrace(file_, trace);
}

std::string ProfileRun::Finish() {
  if (file_.empty()) return "";
  Profiler::Process().Stop();
  const absl::Status written = Write();
  if (!written.ok()) LOG(WARNING) << "--profile: " << written.message();
  if (!absl::GetFlag(FLAGS_profile_table)) return "";
  const v1::Trace trace = MakeTrace(Profiler::Process().Collect(), process_);
  return absl::StrCat("profile: ", file_, "\n", ProfileTable(trace));
}

absl::StatusOr<std::string> MergeProfiles(const std::vector<ProfilePart>& parts, const std::string& file) {
  std::vector<v1::Trace> traces;
  std::string missing;
  for (const ProfilePart& part : parts) {
    absl::StatusOr<v1::Trace> trace = ReadTrace(part.file);
    if (trace.ok()) {
      traces.push_back(*std::move(trace));
    } else {
      absl::StrAppend(&missing, "no trace of ", part.process,
                      ", which was killed or could not write it: ", trace.status().message(), "\n");
    }
  }
  ASSIGN_OR_RETURN(const v1::Trace merged, MergeTraces(traces));
  RETURN_IF_ERROR(WriteTrace(file, merged));
  return absl::StrCat("profile: ", file, "\n", missing, absl::GetFlag(FLAGS_profile_table) ? ProfileTable(merged) : "");
}

}  // namespace weir
