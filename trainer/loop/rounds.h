// Reads the batches of a trainer's steps, round by round: a round is one batch per lane for each worker.
//
// A step has train.accumulate_steps rounds. Batch b of worker w is number w + b * workers of the step. With
// prefetch_rows a thread reads the next round, and pulls its rows, while the present one is computed.
//
// Also decides by numbers of examples whether async data is at its end and whether a resumed job has the data of the
// earlier run, and counts the examples that the end leaves out.
#ifndef WEIR_TRAINER_LOOP_ROUNDS_H_
#define WEIR_TRAINER_LOOP_ROUNDS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/counters.h"
#include "framework/graph/training_mode.h"
#include "proto/stream_places.pb.h"
#include "trainer/data/lane_reader.h"
#include "trainer/loop/ahead_thread.h"
#include "trainer/loop/ending.h"
#include "trainer/loop/overlap_switch.h"
#include "trainer/loop/step_order.h"
#include "trainer/session/workers.h"
#include "trainer/this_trainer.h"

namespace weir {

class FileCourse;

struct Round {
  int64_t step = 0;
  int batch = 0;  // of the step
  // Batches by worker and lane.
  std::vector<std::vector<LaneBatch>> batches;
  // The trainer ends its part of the run before the step (StepOrder::EndsRun).
  bool ended = false;
};

// Used by one thread.
class Rounds {
 public:
  struct Options {
    ThisTrainer trainer;
    v1::TrainingMode mode;
    // train.max_steps; 0: no limit.
    int64_t max_steps = 0;
    // data.batch_size and the number of epochs.
    int64_t batch_size = 0;
    int64_t epochs = 1;
    // Sync: number of examples in step 0 according to the checkpoint; 0: unknown.
    int64_t expected_first_step = 0;
    // Borrowed.
    const StepOrder* order = nullptr;
    Workers* workers = nullptr;
    FileCourse* course = nullptr;
    // True if Places will be called.
    bool keeps_places = false;
    int64_t first_step = 0;
    // Sync with prefetch_rows: pulls ahead of the version in every step, also where that takes longer than it saves.
    bool always_ahead = false;
  };
  // Requires: `reader` has been moved to the first step.
  Rounds(Options options, std::unique_ptr<LaneReader> reader);

  // Waits for round `batch` of `step`, and tells the client how many examples this trainer had in step 0. Steps and
  // batches follow each other. The round is valid until the next call; its batches may be swapped with those of a
  // session. Requires: EndStep after the last batch of a step. Errors as Session::NextBatches and Session::PullAhead.
  absl::StatusOr<Round*> Next(int64_t step, int batch);
  // Returns true if the job was asked to end while a stream waited for files of data.follow, or this trainer for a
  // batch: the step of the last Next takes no effect on any trainer, because it lacks a whole batch.
  bool stopped() const { return stopped_; }
  // Counts the examples of the step's rounds as trained on.
  void EndStep();
  // Returns where the streams of this trainer go on behind the steps that have ended. Also after CloseReader.
  v1::StreamPlaces Places() const;
  // Returns the part of the run, over all epochs, that the streams have given, from 0 to 1; 0 while unknown.
  double fraction() const;

  // Sync: compares the number of examples in step 0, over all trainers, with that in the checkpoint.
  // FailedPrecondition: the data is not that of before.
  absl::Status CheckFirstStep(int64_t examples);
  // Returns the argument of the last CheckFirstStep; before the first, what the checkpoint says, or 0.
  int64_t first_step_examples() const { return first_step_examples_; }

  // Counts the examples that are left in the streams after `steps` steps, at least as far as WarnOfLeftOut needs it.
  v1::LeftOut CountLeftOut(int64_t steps);
  // End reading ahead, with a round that nobody will run: StopAhead cancels that round, EndAhead waits for it.
  void StopAhead();
  void EndAhead();
  // Frees the reader's threads and memory, and returns the number of lines that it has skipped. Requires: StopAhead.
  int64_t CloseReader();
  // Returns the inputs that no example had that the reader has read. Requires: CloseReader.
  const v1::AbsentInputs& absent_inputs() const { return absent_; }

 private:
  // Waits for the next batch of each lane, or gives batches of stopped streams once the end of the job is requested
  // while it waits: filling shuffle buffers takes as long as reading the data does.
  absl::Status ReadBatches(std::vector<LaneBatch>* batches);
  // Reads the batches of a round and, with prefetch_rows, pulls the rows for them.
  absl::Status Read(Round* round);
  // Brings a round into now_: reads it, or waits until ahead_ has read it.
  absl::Status ReadNow(int64_t step, int batch);
  absl::Status AwaitAhead(int64_t step, int batch);
  // Makes the rows pulled for now_ those of the sessions, and starts ahead_ on the round after it, if there is one.
  absl::Status StartNext(int64_t step, int batch);
  void StartAhead(int64_t step, int batch);
  // Returns what the streams have for the step of now_.
  StreamsAtStep Streams() const;
  // Asks servers for the end of the run if a stream of now_ was stopped. Posts where streams have ended
  // before the step is pushed that has their last examples.
  absl::Status HeedEnds();

  const Options o_;
  std::unique_ptr<LaneReader> reader_;  // null after CloseReader
  v1::AbsentInputs absent_;
  Round now_;
  Round next_;  // of ahead_'s thread while that is busy
  // Examples of this trainer: in step 0; in the rounds of the present step; in all steps since it began or was resumed.
  int64_t first_ = 0, in_step_ = 0, trained_ = 0;
  int64_t first_step_examples_ = 0;
  int64_t done_;             // steps that have ended, those before a resume included
  v1::StreamPlaces places_;  // after CloseReader
  bool stopped_ = false;
  // Counts the rounds that had to wait for their batches or rows, with prefetch_rows.
  Counter* late_ = nullptr;
  // Says in which steps to pull ahead of the version; null: in all, or in none where no pull waits for one.
  std::unique_ptr<OverlapSwitch> overlap_;
  std::atomic<bool> ending_{false};  // Read gives up waiting for data
  bool gave_up_ = false;             // ReadBatches has given batches of stopped streams; owned by the thread of Read
  // Runs Read; null without prefetch_rows. Destroyed before everything that Read uses.
  std::unique_ptr<AheadThread> ahead_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_ROUNDS_H_
