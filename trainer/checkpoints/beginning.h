// Beginning of a run: all trainers agree on the state that the job begins with, and each learns its first step.
#ifndef WEIR_TRAINER_CHECKPOINTS_BEGINNING_H_
#define WEIR_TRAINER_CHECKPOINTS_BEGINNING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/start.pb.h"
#include "proto/stream_places.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/checkpoints/job_checkpoints.h"
#include "trainer/this_trainer.h"

namespace weir {

struct Job;

// What a fresh run takes from the checkpoints of its job's start_from, and where that comes from.
struct PlannedStart {
  v1::StartPlan plan;
  v1::Lineage lineage;
};
// Plans the start of a job with start_from. Called on the chief, in a fresh run.
using StartPlanner = std::function<absl::StatusOr<PlannedStart>(const Job& job)>;

struct BeginOptions {
  ThisTrainer trainer;
  // Borrowed.
  const Job* job = nullptr;
  JobCheckpoints* checkpoints = nullptr;
  // Continue from the newest checkpoint.
  bool resume = false;
  // Continue from the newest checkpoint of this run (TrainOptions.run), or begin afresh.
  bool resume_run = false;
  // Null: the job has no start_from.
  StartPlanner plan_start = nullptr;
};

struct Begun {
  // Decided by the chief and sent to all trainers.
  v1::Beginning beginning;
  // First step of this trainer: the number of its steps that the state of the servers contains.
  int64_t step = 0;
  // First steps of all trainers, by trainer, as they were before anyone died.
  std::vector<int64_t> first_steps;
  // True if this process takes the place of a dead trainer.
  bool takes_over = false;
  // Places at which streams of this trainer can go on.
  v1::StreamPlaces places;
};

// Brings checkpoints or row files into the servers (the chief does that); in a fresh run of a job with start_from,
// values of other jobs' checkpoints, and row files after them. Gives all trainers the chief's dense parameters where
// they hold them, or has each read its share, restores residuals, and returns where this trainer begins. Every trainer
// calls this once, after joining. A trainer that takes the place of a dead one finds the beginning decided. Errors are
// those of Checkpointing::Resume, of the planner, of StartFromCheckpoints and of calls to servers; Internal if what the
// chief has sent cannot be read.
absl::StatusOr<Begun> Begin(const BeginOptions& options);

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_BEGINNING_H_
