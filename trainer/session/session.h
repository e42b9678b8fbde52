// Programs of one trainer and the data they run on: the scope, the executors, and the definition of a step, an
// evaluation and a prediction. The loop around them is trainer/loop/train_loop.h.
//
// Not thread-safe; runs its lanes on the given pool.
#ifndef WEIR_TRAINER_SESSION_SESSION_H_
#define WEIR_TRAINER_SESSION_SESSION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/base/thread_pool.h"
#include "framework/device/device_executor.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/executor.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/runtime/scope.h"
#include "framework/tensor/device_memory.h"
#include "framework/tensor/device_transfers.h"
#include "proto/job.pb.h"
#include "proto/program.pb.h"
#include "pserver/channels/accumulate.h"
#include "trainer/data/lane_reader.h"
#include "trainer/metrics/job_metrics.h"

namespace weir {

struct NonFiniteStep;

struct SessionOptions {
  // Programs of a trainer; main.plan() has lanes, trainers, sync.
  v1::ProgramDesc main;
  v1::ProgramDesc startup;
  int trainer_id = 0;
  // Device that computes lanes; null: the CPU. Borrowed.
  DeviceMemory* device = nullptr;
  // train.cpu_ops, with a device.
  std::vector<std::string> cpu_ops = {};
  // Precision: kFp32 or kBf16 on the CPU. Requires: its instructions have been chosen (ops/arithmetic.h).
  ProductPrecision precision = ProductPrecision::kFp32;
  // true: Forward is for predictions, and computes nothing else.
  bool predicts = false;
  // Columns that the readers give.
  std::vector<Column> columns;
  // Variables that evaluations read for the job's metrics.
  std::vector<std::string> judged = {};
  // Variables from which evaluations take the vectors of a catalogue's candidates.
  std::vector<std::string> items = {};
  // Layer names from the job, for messages.
  std::vector<std::string> layers = {};
  // Durations after which a wait for data is reported, and after which it is an error.
  absl::Duration slow_warning = absl::Seconds(10);
  absl::Duration progress_deadline = absl::Minutes(30);
  // Borrowed.
  ParamChannel* channel = nullptr;
  ThreadPool* pool = nullptr;
  // Channel for a program whose rows are pulled ahead (mode().prefetch_rows()). Borrowed. null: each step pulls its own
  // rows when it begins.
  RowSource* ahead = nullptr;
  // Index among the threads of this trainer (train.workers).
  int worker = 0;
};

// Returns train.precision as products have it.
ProductPrecision PrecisionOf(const v1::Train& train);

struct StepResult {
  StepOutcome outcome;
  // Sums over this process's lanes.
  int64_t examples = 0;
  double loss_sum = 0;
};

class Session {
 public:
  // Creates a session. InvalidArgument when the first loss lacks var, prediction or label, or the data does not match
  // the variables that the program is fed.
  static absl::StatusOr<std::unique_ptr<Session>> Create(SessionOptions options);

  // Receives every parameter as it is before step `step`. Requires: called before Train, Forward and Evaluate.
  // InvalidArgument when the startup program leaves one without a value, or gives it other dims.
  absl::Status Start(int64_t step);

  // Waits for the next batches. `keep_waiting` (may be empty) is called every second; its error ends the wait.
  // Unavailable if none come within SessionOptions.progress_deadline.
  absl::Status NextBatches(LaneReader* reader, std::vector<LaneBatch>* batches,
                           const std::function<absl::Status()>& keep_waiting);

  // Pulls the rows of a training batch, for step `step`. `batches` is unchanged on return. One thread may call this
  // while another runs Train for the batch before. Requires: SessionOptions.ahead is set; called for each batch.
  absl::Status PullAhead(int64_t step, std::vector<LaneBatch>* batches);
  // Makes the rows of the last PullAhead those of the next Train. Requires: that PullAhead has ended and returned OK.
  absl::Status TakeAhead();

  // Sets the scale of the following steps (train.loss_scaling).
  void SetLossScale(float scale) { loss_scale_ = scale; }

  // Runs one batch per lane of this process: batch `batch` of those that make the step (mode().accumulate()). The step
  // takes effect with the last batch, and outcome is then that of the step. Swaps the batches' memory with that of the
  // batch before. A FailedPrecondition for a value that is not finite says where the value came from. Requires: batches
  // 0, 1, ... of a step in order; TakeAhead before each if SessionOptions.ahead is set.
  absl::StatusOr<StepResult> Train(int64_t step, int batch, std::vector<LaneBatch>* batches);
  // Adds the predictions of the last Train to metrics of a plan for training, unless a value in it was not finite.
  absl::Status AddTrainMetrics(JobMetrics* metrics);

  // Runs forward only, on the parameters of the last step and rows of tables as they are before `step`, until `reader`
  // has ended. Calls `use` after each batch, with the executor to read predictions from.
  using Use = std::function<absl::Status(Executor&, const std::vector<LaneBatch>&)>;
  // Sees the batches before they are fed to the program, which may take their memory.
  using Before = std::function<absl::Status(const std::vector<LaneBatch>&)>;
  absl::Status Forward(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                       const Use& use, const Before& before = nullptr);

  // Runs forward over everything `reader` gives, and adds the results to `metrics`: those of the first loss, and those
  // for the job's metrics, of which `judged` and `items` name the variables. First computes the vectors of the
  // candidates of the catalogues.
  absl::Status Evaluate(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                        JobMetrics* metrics);

  // An evaluation of altered examples.
  struct Alteration {
    // Changes copies of the variables of a lane's batch, of several lanes at once. Null: the examples are as they are.
    std::function<void(const LaneBatch& batch, std::vector<Variable>* vars)> alter;
    JobMetrics* metrics = nullptr;
  };
  // As Evaluate, for several alterations of each batch that `reader` gives. Keys of metrics (JobMetrics::TakeKeys) are
  // those of the unaltered examples. The metrics are of one plan.
  absl::Status EvaluateEach(int64_t step, LaneReader* reader, const std::function<absl::Status()>& keep_waiting,
                            const std::vector<Alteration>& alterations);

  // Returns a lane's variable after Train; nullptr if the program has no such variable. Gradients and activations have
  // their value only if they keep memory of their own. Received parameters are one variable for all lanes.
  const Variable* Find(int lane, std::string_view name) const { return train_->Find(lane, name); }
  // Returns the memory of the training program's variables, without those for rows pulled ahead. The counter
  // "trainer.<id>.variables.bytes" of the process includes them.
  VariableBytes bytes() const { return train_->bytes(); }

  LaneRange lanes() const { return lanes_; }
  const v1::TrainingMode& mode() const { return mode_; }
  // Returns the loss of evaluation and prediction: the first.
  const v1::LossDesc& loss() const { return loss_; }

 private:
  explicit Session(SessionOptions options);
  absl::StatusOr<std::unique_ptr<Executor>> MakeExecutor(const v1::ProgramDesc& program,
                                                         const std::vector<std::string>& fetch);
  // Describes the origin of a value that was not finite in the step that has just run, with StepContext.step `run`.
  std::string ExplainNonFinite(int64_t run);
  NonFiniteStep StepOfRun(int64_t run);
  // FailedPrecondition: a skipped step has read a parameter or row that is not finite, so that later steps would be
  // skipped as well.
  absl::Status CheckStepsCanTakeEffect(int64_t step, int64_t run);
  // Prepares the executor that PullAhead runs.
  absl::Status PrepareAhead();
  StepContext Context(int64_t step, bool training);
  // Swaps the batches' variables with the executor's.
  absl::Status Feed(Executor* executor, std::vector<LaneBatch>* batches);
  absl::Status AddMetrics(Executor& executor, JobMetrics* metrics);
  // Gives the metrics the vectors of the candidates of their catalogues.
  absl::Status SetItems(int64_t step, const std::function<absl::Status()>& keep_waiting,
                        absl::Span<JobMetrics* const> metrics);
  // Runs forward over a batch per lane, whose memory it takes.
  absl::Status RunForward(int64_t step, std::vector<LaneBatch>* batches);
  // Computes the vectors of all candidates, on the parameters of the last step and rows as they are before `step`.
  absl::StatusOr<std::unique_ptr<PackedItems>> ComputeItems(int64_t step, const CataloguePlan& catalogue,
                                                            const std::function<absl::Status()>& keep_waiting);

  SessionOptions options_;
  const v1::TrainingMode mode_;
  std::unique_ptr<AccumulatingChannel> accumulating_;  // null: every batch is a step
  ParamChannel* const channel_;
  LaneRange lanes_;
  v1::LossDesc loss_;
  std::string reported_loss_;  // its variable that progress and evaluations show
  Scope scope_;
  // Memory and copies of a session on a device.
  struct OnDevice {
    OnDevice(DeviceMemory* memory, Scope* host) : transfers(memory), scope(host) {}
    DeviceTransfers transfers;
    DeviceScope scope;
  };
  std::unique_ptr<OnDevice> device_;  // null: lanes compute on the CPU
  StepHealth health_;
  StepOutcome outcome_;
  float loss_scale_ = 1;
  // True after ExplainNonFinite has described a skipped step; later ones are only counted.
  bool explained_ = false;
  std::unique_ptr<Executor> startup_, train_, forward_;
  std::map<std::string, std::unique_ptr<Executor>> items_;  // by variable of SessionOptions.items
  // Prefetch ops [begin, end) of the training program, on variables of their own; null: rows are not pulled ahead.
  struct Ahead {
    int begin = 0, end = 0;
    Scope scope;
    std::unique_ptr<Executor> executor;
    std::vector<size_t> columns;      // data columns with the ids that they read
    std::vector<std::string> rows;    // variables written for all lanes, ...
    std::vector<std::string> places;  // ... and for each
    std::vector<int64_t> batch_sizes;
    int64_t bytes = 0;  // at the last TakeAhead
  };
  std::unique_ptr<Ahead> ahead_;
  std::vector<int64_t> batch_sizes_;
  struct CountedBytes {
    Counter* counter = nullptr;
    int64_t counted = 0;
  };
  CountedBytes variable_bytes_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_SESSION_SESSION_H_
