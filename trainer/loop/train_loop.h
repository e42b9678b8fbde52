// Main loop of a trainer after it has joined: statistics, resume, steps, evaluations, digests, checkpoints, the end.
#ifndef WEIR_TRAINER_LOOP_TRAIN_LOOP_H_
#define WEIR_TRAINER_LOOP_TRAIN_LOOP_H_

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/tensor/device_memory.h"
#include "proto/plan.pb.h"
#include "pserver/client/client.h"
#include "pserver/replica/dense_replica.h"
#include "trainer/checkpoints/beginning.h"
#include "trainer/metrics/metric_result.h"
#include "transpiler/split/transpile.h"

namespace weir {

struct Job;
class TrainingWatch;

struct TrainOptions {
  // All borrowed for the call.
  const Job* job = nullptr;
  const Programs* programs = nullptr;
  Client* client = nullptr;  // joined
  // The dense parameters of this trainer, for a program that adds gradients among trainers; else null.
  DenseReplica* replica = nullptr;
  ThreadPool* pool = nullptr;
  Clock* clock = nullptr;
  int trainer_id = 0;
  // Device that computes lanes; null: the CPU.
  DeviceMemory* device = nullptr;
  // Number of threads that read and parse; 0 = the reader's choice.
  int reader_threads = 0;
  // Passed to the training data's reader as LaneReaderOptions.before_batch.
  std::function<void(int stream, int64_t batch)> before_batch = {};
  // Called after each training step, with the number of steps done.
  std::function<void(int64_t steps)> after_step = {};
  bool resume = false;
  // Name of the run (--run_id), "" if it has none; and whether to go on from its own checkpoints only.
  std::string run;
  bool resume_run = false;
  // BeginOptions::plan_start.
  StartPlanner plan_start = nullptr;
  // Number of times the job was started again, as given by the program that starts it.
  int64_t restarts = 0;
  // Sync with prefetch_rows: pulls ahead in every step, also where that takes longer than it saves (tests).
  bool always_ahead = false;
  // Destination of progress lines; only the chief prints those about the whole job.
  std::FILE* out = nullptr;
  bool live = false;
  // File that also receives digest lines, with ranges, if not empty.
  std::string digest_log;
  // Gets the figures of the training. Borrowed. May be null.
  TrainingWatch* watch = nullptr;
};

struct TrainSummary {
  int64_t steps = 0;
  // Examples of the whole cluster in sync; of this trainer in async.
  int64_t examples = 0;
  // Number of these steps that took no effect because a value of some trainer was not finite (nan_policy SKIP_STEP,
  // loss_scaling).
  int64_t skipped_steps = 0;
  // Elements of gradients of the whole cluster that were beyond 65504 and pushed in WIRE_FLOAT16.
  int64_t large_gradients = 0;
  // Number of examples of the whole cluster that no step used, because streams had ended and the rest was less than
  // half a step (docs/data.md). Examples that drop_last drops are not counted. 0 when max_steps or a stop ended the
  // run.
  int64_t left_out = 0;
  // True if more examples than left_out were left.
  bool left_out_more = false;
  // Loss scale of the next step; 0 without train.loss_scaling.
  double loss_scale = 0;
  double seconds = 0;
  double train_loss = 0;
  // Result of the evaluation at the end, if the job has eval data and was not stopped.
  std::optional<MetricResult> eval;
  bool stopped = false;
  // True if train.early_stop has ended the run.
  bool early_stopped = false;
  // Number of times the run went on after a death, and the time and steps lost by that
  // (trainer/progress/run_progress.h). Set at the chief.
  int64_t restarts = 0;
  double lost_seconds = 0;
  int64_t repeated_steps = 0;
  double goodput = 1;  // RunProgress::Goodput

  // Returns "done steps=… examples=… seconds=… examples_per_s=… loss=… auc=…", then " skipped_steps=…",
  // " large_gradients=…" and " left_out=…" if there are any, " loss_scale=…" with train.loss_scaling, and " restarts=…
  // lost_s=… repeated_steps=… goodput=…" if the run was restarted.
  std::string DoneLine() const;
};

// Trains to the end of the data, train.max_steps, or a stop request. Errors name what failed; the caller reports them
// to the servers.
absl::StatusOr<TrainSummary> RunTraining(const TrainOptions& options);

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_TRAIN_LOOP_H_
