// Simulation of a table's lifecycle over the ids of a job's data: rows, memory, and lost gradients. No model is
// computed.
#ifndef WEIR_TOOLS_SIMULATE_TABLES_H_
#define WEIR_TOOLS_SIMULATE_TABLES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"

namespace weir {

struct Job;

// State of one table after the steps, as on a server that holds all of its rows.
struct SimulatedTable {
  std::string table;
  int64_t rows = 0;        // at the end
  int64_t most_rows = 0;   // maximum at any border between steps
  int64_t bytes = 0;       // bytes of rows, candidates, tombstones and their indices, at the end
  int64_t candidates = 0;  // ids that are counted and have no row, at the end
  int64_t made = 0;        // rows made
  int64_t expired = 0;
  int64_t evicted = 0;
  // Number of gradient rows, one for each distinct id of a step; dropped: those of them that were dropped.
  int64_t gradients = 0;
  int64_t dropped = 0;
  // Number of reads, out of as many as gradients, of ids without a row; these reads returned initial values.
  int64_t absent = 0;
  // Error with which the job would have ended before the last step; OK if it would not.
  absl::Status end;
};

struct Simulation {
  int64_t steps = 0;
  std::vector<SimulatedTable> tables;  // distributed ones, by name
};

// Simulates the first `steps` steps of data.train (fewer if it ends before). Returns errors of reading and of the job.
absl::StatusOr<Simulation> SimulateTables(const Job& job, int64_t steps, ThreadPool* pool);

// Returns a header and one line for each simulation; `names` describe their settings.
std::string SimulationText(const std::vector<std::string>& names, const std::vector<Simulation>& simulations);

}  // namespace weir

#endif  // WEIR_TOOLS_SIMULATE_TABLES_H_
