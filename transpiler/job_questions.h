// Answers of `transpile` that need the job's own data, trainers, servers and kernels: --print=explain and --verify, and
// the placement of operators on devices. For transpile_main.cc; the rest of this room does not depend on them.
#ifndef WEIR_TRANSPILER_JOB_QUESTIONS_H_
#define WEIR_TRANSPILER_JOB_QUESTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

struct Job;

// Returns the explanation. format: text, json or html. sample: number of steps of the job's data to read; 0: none.
// link_gbit, link_us: link between trainers, in 10^9 bits a second and microseconds.
absl::StatusOr<std::string> AnswerExplain(const Job& job, const std::string& format, int64_t sample, double link_gbit,
                                          double link_us);

// Returns, with train.device: CUDA, one line for each operator of the trainers' program whose placement makes each step
// copy something, or the operators that the trainer refuses. Empty on the CPU.
std::vector<std::string> DeviceNotes(const Job& job, const v1::ProgramDesc& main);

struct Verdict {
  bool equal = false;
  std::string text;
};
absl::StatusOr<Verdict> AnswerVerify(const Job& job, int64_t steps);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_QUESTIONS_H_
