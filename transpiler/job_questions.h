// Answers of `transpile` that need the job's own data, trainers, servers and kernels: --print=explain and --verify, and
// the placement of operators on devices. For transpile_main.cc; the rest of this room does not depend on them.
#ifndef WEIR_TRANSPILER_JOB_QUESTIONS_H_
#define WEIR_TRANSPILER_JOB_QUESTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/program.pb.h"

namespace weir {

struct Job;

struct ExplainQuestion {
  std::string format = "text";  // text, json or html
  // Number of steps of the job's data to read; 0: none.
  int64_t sample = 0;
  // Link of each process, 10^9 bits a second and microseconds. nullopt: 10 and 50, and with one_machine Unix-domain
  // sockets between trainers and servers.
  std::optional<double> link_gbit, link_us;
  // Calibration to predict step times from. A file that does not exist is measured, for about calibrate_seconds, and
  // written. "": no prediction.
  std::string calibrate;
  double calibrate_seconds = 30;
  // All processes share this machine's cores.
  bool one_machine = false;
  // Trainers that share a host; servers are on others.
  int trainers_per_host = 1;
};
absl::StatusOr<std::string> AnswerExplain(const Job& job, const ExplainQuestion& question);

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
