// Paths of the checkpoints that a job starts from.
#ifndef WEIR_TRANSPILER_JOB_START_PATHS_H_
#define WEIR_TRANSPILER_JOB_START_PATHS_H_

#include <string>
#include <vector>

namespace weir {

struct Job;

// Returns StartFrom.checkpoint of each start_from, in their order, with the job's directory prepended.
std::vector<std::string> StartPaths(const Job& job);

}  // namespace weir

#endif  // WEIR_TRANSPILER_JOB_START_PATHS_H_
