// Checkpoints in the course of a run: who writes one, when, and under which number. Checkpointing does the writing.
//
// In sync trainer 0 writes at a common step border, and the number is the step. In async the chief writes at a border
// of its own, while others train on. A new chief may be behind the dead one, so it takes a number above all that have
// been announced, and announces it to server 0 before it writes.
#ifndef WEIR_TRAINER_CHECKPOINTS_JOB_CHECKPOINTS_H_
#define WEIR_TRAINER_CHECKPOINTS_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/stream_places.pb.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/data/statistics.h"
#include "trainer/metrics/metric_result.h"
#include "trainer/progress/progress.h"
#include "trainer/this_trainer.h"

namespace weir {

class EarlyStop;
class Follower;

// A trainer at a step border, for a checkpoint.
struct BorderState {
  int64_t step = 0;     // steps done by this trainer
  int64_t version = 0;  // of the servers' parameters
  // All but `follow`, which `follower` sets.
  v1::TrainerState trainers;
  // Borrowed; null: the job needs none.
  const DataStatistics* statistics = nullptr;
  // Borrowed; null: no files follow.
  Follower* follower = nullptr;
  // Returns where this trainer's streams go on behind these steps; null, on all trainers: that is not known.
  std::function<v1::StreamPlaces()> places = nullptr;
  // Evaluation of this very step, if there was one.
  std::optional<MetricResult> eval;
};

// Not thread-safe.
class JobCheckpoints {
 public:
  struct Options {
    ThisTrainer trainer;
    // Keeps the checkpoints. Null: the job keeps none, and the calls below do nothing.
    std::unique_ptr<Checkpointing> checkpointing;
    // Step of the checkpoint that the run has been resumed from, or 0.
    int64_t first_number = 0;
    // Borrowed; receives a line per checkpoint.
    Progress* progress = nullptr;
  };
  explicit JobCheckpoints(Options options);

  bool keeps() const { return o_.checkpointing != nullptr; }

  // Takes part in the checkpoint of a border, unless there was one at this step. All trainers call this, in sync at the
  // same steps.
  absl::Status Save(const BorderState& at);
  // Takes part in the checkpoint at the end of the run. In async it returns when there is one with all steps of this
  // trainer, also if chiefs die over it.
  absl::Status SaveLast(const BorderState& at);
  // Async: posts this trainer's residuals, and the places of its streams, once per step, for the checkpoints of the
  // chief (who has its own).
  absl::Status Post(const BorderState& at);
  // Adds an evaluation, and what `early_stop` (null: the job has none) has counted, to the checkpoint of its step, if
  // this trainer has written that or was resumed from it. A failure is logged.
  void RecordEvaluation(int64_t step, const MetricResult& eval, const EarlyStop* early_stop);

 private:
  // Writes the checkpoint as the chief; in sync the others give it their residuals. Returns false if this trainer has
  // written nothing: another one is the chief.
  absl::StatusOr<bool> Write(const BorderState& at);
  // Async: announces and returns the number of the checkpoint that the chief is about to write. nullopt: another
  // trainer has become the chief.
  absl::StatusOr<std::optional<int64_t>> ClaimNumber(int64_t step);

  // Returns the places of this trainer's streams for a checkpoint. In async also those of the border before: servers
  // may not have all of this trainer's steps yet, and a resume uses the newest places that they have come to.
  v1::StreamPlaces OwnPlaces(const BorderState& at);

  const Options o_;
  int64_t number_;  // of the last checkpoint that this trainer wrote or was resumed from
  int64_t saved_step_ = -1;
  int64_t posted_step_ = -1;
  // Async: the places of the last two borders at which they were asked for, as v1::StreamPlaces, the newer ones last.
  int64_t places_step_ = -1;
  std::string places_[2];
};

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_JOB_CHECKPOINTS_H_
