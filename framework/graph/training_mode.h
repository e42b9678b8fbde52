// Reads a program's training mode, the relation of a trainer to the others, for processes that run a dumped program.
#ifndef WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
#define WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_

#include <cstdint>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// Mode in the attributes of block 0's prefetch, send_barrier, fetch_barrier (trainers) and listen_and_serv (servers).
// docs/program.md lists the attributes, docs/consistency.md explains the modes.
struct TrainingMode {
  // Batches whose gradients are added up before one push.
  int accumulate = 1;
  // Threads of a trainer, each with a batch of its own, merged before one push.
  int workers = 1;
  // Maximum number of steps that a trainer may be ahead of the slowest; -1: no bound.
  int64_t staleness = -1;
  // True if prefetch ops request rows one batch ahead.
  bool prefetch_rows = false;
  // Sync: true if tables do not wait for the other trainers.
  bool async_tables = false;
  // Steps between two exchanges of geo, in which trainers update their own copies by the blocks `geo_blocks` of their
  // program; 0: not geo.
  int64_t geo_every_steps = 0;
  std::vector<int32_t> geo_blocks;
  // Block of the trainer's program with the ops of a learning rate schedule; -1: constant rates.
  int32_t geo_lr_block = -1;
};

// Returns the mode of a verified program; the defaults if it has none of these ops.
TrainingMode ModeOf(const v1::ProgramDesc& main);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
