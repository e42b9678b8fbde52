// What a lifecycle makes of a table, found by running it over the ids of a job's data: rows, memory, and gradients that
// are lost. No model is computed.
#ifndef WEIR_TOOLS_SIMULATE_TABLES_H_
#define WEIR_TOOLS_SIMULATE_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "transpiler/job.h"

namespace weir {

// One table after the steps, its rows as a server that holds all of it would have them.
struct SimulatedTable {
  std::string table;
  int64_t rows = 0;        // at the end
  int64_t most_rows = 0;   // at any border between steps
  int64_t bytes = 0;       // of rows, candidates, tombstones and their indices, at the end
  int64_t candidates = 0;  // ids that are counted and have no row, at the end
  int64_t made = 0;        // rows
  int64_t expired = 0;
  int64_t evicted = 0;
  // Rows of gradients, one for each distinct id of a step, and those of them that were dropped.
  int64_t gradients = 0;
  int64_t dropped = 0;
  // Of the same number of reads, those of ids without a row: they saw initial values.
  int64_t absent = 0;
  // Why the job would have ended before the last step; OK: it would not.
  absl::Status end;
};

struct Simulation {
  int64_t steps = 0;
  std::vector<SimulatedTable> tables;  // distributed ones, by name
};

// The first `steps` steps of data.train (fewer when it ends). Errors as those of reading, and of the job.
absl::StatusOr<Simulation> SimulateTables(const Job& job, int64_t steps, ThreadPool* pool);

// A line for each, below a head; `names` beside them says which settings they have.
std::string SimulationText(const std::vector<std::string>& names, const std::vector<Simulation>& simulations);

}  // namespace weir

#endif  // WEIR_TOOLS_SIMULATE_TABLES_H_
