// What `transpile` answers about a job with the job's own data, trainers and servers at hand: --print=explain and --verify. For
// transpile_main.cc; the rest of this room knows neither.
#ifndef WEIR_TRANSPILER_JOB_QUESTIONS_H_
#define WEIR_TRANSPILER_JOB_QUESTIONS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "transpiler/job.h"

namespace weir {

// format: text, json or html. sample: steps of the job's data to read; 0: none.
absl::StatusOr<std::string> AnswerExplain(const Job& job, const std::string& format, int64_t sample);

struct Verdict {
  bool equal = false;
  std::string text;
};
absl::StatusOr<Verdict> AnswerVerify(const Job& job, int64_t steps);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_QUESTIONS_H_
