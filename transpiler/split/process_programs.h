// Programs that a process runs: made from its job, or read from files that `transpile` has written and a user may have
// edited.
#ifndef WEIR_TRANSPILER_SPLIT_PROCESS_PROGRAMS_H_
#define WEIR_TRANSPILER_SPLIT_PROCESS_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

// Return the programs of a trainer, or of a server. With an empty file name the program is made from the job. A program
// read from a file is verified, must carry a plan, and must fit the job: the plan of the job, and for a server its own
// index. The programs are also verified against those that the job makes for the other side
// (transpiler/verify/verify_plan.h), so a lost, doubled or misplaced send, recv or update is an error here and not a
// wrong model. main.plan() is always set. InvalidArgument names the file and what does not fit; NotFound if there is no
// such file.
absl::StatusOr<Programs> TrainerPrograms(const Job& job, const std::string& main_file, const std::string& startup_file);
absl::StatusOr<Programs> ServerPrograms(const Job& job, int server, const std::string& main_file,
                                        const std::string& startup_file);

// Sets in a server's program where this process keeps rows on disk: table.disk.dir of the job. Without it the server
// keeps all rows in memory, with equal bits.
void PlaceTablesOnDisk(const Job& job, v1::ProgramDesc* main);

}  // namespace weir

#endif  // WEIR_TRANSPILER_SPLIT_PROCESS_PROGRAMS_H_
