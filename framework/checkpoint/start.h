// Begins a run with values of other jobs' checkpoints, as a StartPlan (proto/start.proto) says: parameters are put
// together from parts of parameters, and tables from rows whose columns are mapped.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_START_H_
#define WEIR_FRAMEWORK_CHECKPOINT_START_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/checkpoint/load.h"
#include "proto/checkpoint.pb.h"
#include "proto/start.pb.h"

namespace weir {

// A checkpoint that values come from.
struct StartCheckpoint {
  std::string directory;  // of its step
  v1::CheckpointManifest manifest;
};

// Returns the checkpoints that plan.sources() name, each in the directory of that index of `start_from`: a step of a
// checkpoint, or a directory of such. InvalidArgument: a name that is none of a file. FailedPrecondition: another
// number of them, or `process` (for messages: "server 1") finds none, or another one than was planned with. DataLoss: a
// damaged manifest.
absl::StatusOr<std::vector<StartCheckpoint>> FindStartCheckpoints(const std::vector<std::string>& start_from,
                                                                  const v1::StartPlan& plan,
                                                                  const std::string& process);

// Parameters, state and rows that a process owns and wants filled.
struct StartTargets {
  // Pieces, of any cut; `out` holds initial values, which stay where the plan takes nothing.
  std::vector<LoadPlan::Dense> dense;

  // State named "lifecycle.<word>" holds words of a lifecycle: "lifecycle.step" counts from the beginning of a run.
  struct Table {
    // `rows.add` receives each id once.
    LoadPlan::Table rows;
    // Removes all rows. Columns [zero_begin, zero_end) of rows that are made later begin with 0. Called before the
    // first row.
    std::function<absl::Status(int zero_begin, int zero_end)> begin;
    // Sets columns [begin, end) of rows [ids.size(), stride] to the initial values of these ids.
    std::function<void(absl::Span<const int64_t> ids, int begin, int end, float* rows, size_t stride)> initial_values;
    // State of a new row.
    std::vector<float> initial_state;
    // Ids without a row that the table keeps, each with these words as 4-byte bits.
    struct Memory {
      std::string suffix;  // "@candidates" or "@tombstones"; follows the name of the table in a checkpoint
      std::vector<std::string> words;
      std::function<absl::Status(absl::Span<const int64_t> ids, absl::Span<const float> words)> add;
    };
    std::vector<Memory> memories;
  };
  std::vector<Table> tables;
};

// Fills `targets` from `sources`, one for each of plan.sources(). What the plan does not name stays as it is. Opens
// only shards that hold something for `targets`, and verifies their checksums and that all of it fits before anything
// is written. The result does not depend on the cut of pieces and shards, here or there.
//
// Optimizer state of a row is taken if its name is the same, and so is its width, or it has a value for each column. A
// step of a lifecycle becomes its distance to the end of the checkpoint: a row last seen 10 steps before is 10 steps
// old at step 0. Memories are taken if they have the same words, without ids that have rows.
//
// State that the plan takes for a parameter is needed in the targets, unless they have none of this parameter at all.
//
// InvalidArgument: a plan that contradicts itself. FailedPrecondition: a plan that does not fit targets or checkpoints,
// or a shard that lies on another host. DataLoss: a damaged file. Returns errors of the callbacks. After an error of a
// callback or of the disk the targets may be partly filled.
absl::Status StartFromCheckpoints(absl::Span<const StartCheckpoint> sources, const v1::StartPlan& plan,
                                  const StartTargets& targets);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_START_H_
