// The programs that a process runs: made from its job, or read from files that `transpile` has written (and someone may have
// edited).
#ifndef WEIR_TRANSPILER_PROCESS_PROGRAMS_H_
#define WEIR_TRANSPILER_PROCESS_PROGRAMS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// An empty file name: that program is made from the job. What is read is verified, must carry a plan, and must fit the job:
// the same plan, and for a server its own index. main.plan() is always set. InvalidArgument names the file and what does not
// fit; NotFound when there is no such file.
absl::StatusOr<Programs> TrainerPrograms(const Job& job, const std::string& main_file, const std::string& startup_file);
absl::StatusOr<Programs> ServerPrograms(const Job& job, int server, const std::string& main_file,
                                        const std::string& startup_file);

// A trainer's main program exchanges every block of its plan exactly once: the gradient is sent to the block's server and the
// block received from there. So a lost or doubled send or recv is an error here and not a wrong model.
absl::Status CheckExchange(const v1::ProgramDesc& trainer_main);

// A server's main program is that of this server and updates every block that the plan gives it in exactly one optimize block.
absl::Status CheckOwnership(const v1::ProgramDesc& server_main, int server);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PROCESS_PROGRAMS_H_
