#include "tools/launching/explain_job.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tools/hosts/ssh.h"

namespace weir {

std::string ExplainJob(const LaunchOptions& options) {
  if (options.programs.transpile.empty()) return "";
  // Explaining takes a fraction of a second; the limit is for a program that hangs.
  const absl::Duration limit = std::clamp(2 * options.deadlines.lease, absl::Seconds(10), absl::Seconds(60));
  std::string command =
      absl::StrCat("timeout ", absl::ToInt64Seconds(limit), " ", ShellQuote(options.programs.transpile),
                   " --print=explain --job=", ShellQuote(options.job));
  if (!options.job_dir.empty()) absl::StrAppend(&command, " --job_dir=", ShellQuote(options.job_dir));
  for (const std::string& override : options.overrides) absl::StrAppend(&command, " --set ", ShellQuote(override));
  absl::StrAppend(&command, " --set distribute.servers=", options.placement.servers.size(),
                  " --set distribute.trainers=", options.placement.trainers, " 2>&1");
  if (options.job_fd >= 0) absl::StrAppend(&command, " < /proc/", getpid(), "/fd/", options.job_fd);
  std::FILE* const pipe = popen(command.c_str(), "re");
  if (pipe == nullptr) return "";
  std::string text;
  char block[4096];
  while (const size_t got = std::fread(block, 1, sizeof block, pipe)) text.append(block, got);
  pclose(pipe);
  return text;
}

}  // namespace weir
