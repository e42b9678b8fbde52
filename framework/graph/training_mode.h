// How a trainer relates to the others, as its programs say it: what processes read that run a dumped program.
#ifndef WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
#define WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_

#include <cstdint>
#include <vector>

#include "proto/program.pb.h"

namespace weir {

// From the attributes of block 0's prefetch, send_barrier, fetch_barrier (trainers) and listen_and_serv (servers).
// docs/program.md says where each stands, docs/consistency.md what it means.
struct TrainingMode {
  // Batches whose gradients are added up before one push.
  int accumulate = 1;
  // Threads of a trainer, each with a batch of its own, merged before one push.
  int workers = 1;
  // No trainer more than so many steps ahead of the slowest; -1: no bound.
  int64_t staleness = -1;
  // A trainer's rows are pulled one batch ahead, by the prefetch ops that say so.
  bool prefetch_rows = false;
  // Sync: tables do not wait for the other trainers.
  bool async_tables = false;
  // Trainers update copies of their own, in these blocks of their program, and exchange every so many steps; 0: they do
  // not.
  int64_t geo_every_steps = 0;
  std::vector<int32_t> geo_blocks;
  // Block of that program with the ops of a learning rate schedule; -1: rates stay.
  int32_t geo_lr_block = -1;
};

// Of a verified program; of one without such ops the defaults.
TrainingMode ModeOf(const v1::ProgramDesc& main);

}  // namespace weir

#endif  // WEIR_FRAMEWORK_GRAPH_TRAINING_MODE_H_
