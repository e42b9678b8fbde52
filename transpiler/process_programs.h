// The programs that a process runs: made from its job, or read from files that `transpile` has written (and someone may
// have edited).
#ifndef WEIR_TRANSPILER_PROCESS_PROGRAMS_H_
#define WEIR_TRANSPILER_PROCESS_PROGRAMS_H_

#include <string>

#include "absl/status/statusor.h"
#include "transpiler/job.h"
#include "transpiler/programs.h"

namespace weir {

// An empty file name: that program is made from the job. What is read is verified, must carry a plan, and must fit the
// job: the same plan, and for a server its own index. They are verified with what the job makes of the other side
// (transpiler/verify_plan.h), so a lost, doubled or misplaced send, recv or update is an error here and not a wrong
// model. main.plan() is always set. InvalidArgument names the file and what does not fit; NotFound when there is no
// such file.
absl::StatusOr<Programs> TrainerPrograms(const Job& job, const std::string& main_file, const std::string& startup_file);
absl::StatusOr<Programs> ServerPrograms(const Job& job, int server, const std::string& main_file,
                                        const std::string& startup_file);

// Says in a server's program where this process keeps rows on disk: table.disk.dir of the job. A program that does not
// know keeps all rows in memory, with the same bits.
void PlaceTablesOnDisk(const Job& job, v1::ProgramDesc* main);

}  // namespace weir

#endif  // WEIR_TRANSPILER_PROCESS_PROGRAMS_H_
