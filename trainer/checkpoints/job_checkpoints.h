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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/stream_places.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/checkpoints/checkpointing.h"
#include "trainer/data/statistics.h"
#include "trainer/metrics/metric_result.h"
#include "trainer/this_trainer.h"

namespace weir {

class EarlyStop;
class FileCourse;

// A trainer at a step border, for a checkpoint.
struct BorderState {
  int64_t step = 0;     // steps done by this trainer
  int64_t version = 0;  // of the servers' parameters
  // All but `follow`, which `course` sets.
  v1::TrainerState trainers;
  // Borrowed; null: the job needs none.
  const DataStatistics* statistics = nullptr;
  // Borrowed; null: of files that are known.
  FileCourse* course = nullptr;
  // Returns where this trainer's streams go on behind these steps; null, on all trainers: that is not known.
  std::function<v1::StreamPlaces()> places = nullptr;
  // Evaluation of this very step, if there was one.
  std::optional<MetricResult> eval;
};

// Not thread-safe. In a job that keeps no checkpoints Save, SaveLast, Post, AwaitSaved and RecordEvaluation do nothing.
class JobCheckpoints {
 public:
  struct Options {
    ThisTrainer trainer;
    // Keeps the checkpoints. Null: the job keeps none.
    std::unique_ptr<Checkpointing> checkpointing;
    // Receives a line per checkpoint.
    std::function<void(const std::string& line)> say;
  };
  // Chooses by ThisTrainer::sync.
  static std::unique_ptr<JobCheckpoints> Create(Options options);
  virtual ~JobCheckpoints() = default;

  bool keeps() const { return o_.checkpointing != nullptr; }
  // Returns null if the job keeps none.
  Checkpointing* checkpointing() const { return o_.checkpointing.get(); }

  // Part of Begin. Returns the number of steps of each trainer in the state that the job begins with.
  virtual std::vector<int64_t> StepsDone(const v1::Beginning& beginning) const = 0;
  // Part of Begin: offers the places of a checkpoint, the contents of its file, before the chief posts the beginning.
  virtual absl::Status OfferPlaces(int lanes, const std::string& saved) = 0;
  // Part of Begin: returns the places at which streams of this trainer can go on. `by`: the trainer that has decided
  // the beginning; `saved`: what it has offered, else ignored.
  virtual absl::StatusOr<v1::StreamPlaces> FindPlaces(const v1::Beginning& beginning, int by, int lanes,
                                                      const std::string& saved) = 0;
  // Part of Begin: records the step of the checkpoint that the run goes on from, or 0.
  virtual void BeginAt(int64_t step) = 0;

  // Takes part in the checkpoint of a border, unless there was one at this step. All trainers call this, in sync at the
  // same steps.
  absl::Status Save(const BorderState& at);
  // Takes part in the checkpoint at the end of the run. In async it returns when there is one with all steps of this
  // trainer, also if chiefs die over it.
  absl::Status SaveLast(const BorderState& at);
  // Async: posts this trainer's residuals, and the places of its streams, once per step, for the checkpoints of the
  // chief (who has its own).
  absl::Status Post(const BorderState& at) { return keeps() ? PostState(at) : absl::OkStatus(); }
  // Returns when the checkpoint of the last SaveLast is on disk, whichever trainer writes it.
  absl::Status AwaitSaved() { return keeps() ? AwaitWritten() : absl::OkStatus(); }
  // Adds an evaluation, and what `early_stop` (null: the job has none) has counted, to the checkpoint of its step, if
  // this trainer has written that or, in sync, was resumed from it. A failure is logged.
  void RecordEvaluation(int64_t step, const MetricResult& eval, const EarlyStop* early_stop);

 protected:
  explicit JobCheckpoints(Options options) : o_(std::move(options)) {}
  virtual absl::Status PostState(const BorderState& at) = 0;
  // Takes part in a checkpoint that is due at this border.
  virtual absl::Status Take(const BorderState& at) = 0;
  virtual absl::Status TakeLast(const BorderState& at) = 0;
  virtual absl::Status AwaitWritten() = 0;
  // Each trainer writes a part of the replica's values, so all must have the same.
  absl::Status CheckReplica(const BorderState& at) const;
  // Writes checkpoint `number` as the chief, with the parts of `trainers` that the caller has filled in. `version`: as
  // in Checkpointing::Save.
  absl::Status Write(int64_t number, int64_t version, const BorderState& at, SavedTrainers trainers);

  const Options o_;
  int64_t saved_step_ = -1;
  int64_t resumed_step_ = -1;  // of the checkpoint that takes an evaluation before the first Save; -1: none does
};

}  // namespace weir

#endif  // WEIR_TRAINER_CHECKPOINTS_JOB_CHECKPOINTS_H_
