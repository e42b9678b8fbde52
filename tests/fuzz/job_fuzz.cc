// Any text as a job; what is a job is transpiled too.
#include <cstdint>
#include <string>

#include "transpiler/job.h"
#include "transpiler/transpile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto job = weir::ParseJob(std::string_view(reinterpret_cast<const char*>(data), size), "job.textproto", {});
  // A cluster of thousands is a valid wish and no test of this.
  if (job.ok() && job->config.distribute().servers() <= 8 && job->config.distribute().trainers() <= 8 &&
      size < 20'000) {
    (void)weir::Transpile(*job);
  }
  return 0;
}
