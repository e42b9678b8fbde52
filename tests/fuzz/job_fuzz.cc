// Any text as a job, and behind a NUL each as overrides (--set); what is a job is transpiled too.
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/fuzz/input.h"
#include "transpiler/job/load_job.h"
#include "transpiler/split/transpile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> parts = absl::StrSplit(weir::FuzzInput(data, size).Rest(), '\0');
  const std::string text = parts[0];
  parts.erase(parts.begin());
  const auto job = weir::ParseJob(text, "job.textproto", parts);
  // A cluster of thousands is a valid wish and no test of this.
  if (job.ok() && job->config.distribute().servers() <= 8 && job->config.distribute().trainers() <= 8 &&
      size < 20'000) {
    (void)weir::Transpile(*job);
  }
  return 0;
}
