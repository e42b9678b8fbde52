// What `transpile` answers about a job with the job's own data, trainers, servers and kernels at hand: --print=explain
// and --verify, and where operators run. For transpile_main.cc; the rest of this room knows none of them.
#ifndef WEIR_TRANSPILER_JOB_QUESTIONS_H_
#define WEIR_TRANSPILER_JOB_QUESTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"
#include "transpiler/job.h"

namespace weir {

// format: text, json or html. sample: steps of the job's data to read; 0: none.
absl::StatusOr<std::string> AnswerExplain(const Job& job, const std::string& format, int64_t sample);

// With train.device: CUDA, a line for each operator of the trainers' program that needs something copied in each step
// because of where it runs, or the operators that the trainer refuses. Nothing on the CPU.
std::vector<std::string> DeviceNotes(const Job& job, const v1::ProgramDesc& main);

struct Verdict {
  bool equal = false;
  std::string text;
};
absl::StatusOr<Verdict> AnswerVerify(const Job& job, int64_t steps);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_QUESTIONS_H_
