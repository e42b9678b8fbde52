// Data of a training job as one trainer sees it: its files, its statistics, and readers of this trainer's streams.
#ifndef WEIR_TRAINER_LOOP_JOB_DATA_H_
#define WEIR_TRAINER_LOOP_JOB_DATA_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "proto/program.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/checkpoints/beginning.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/inherited_statistics.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "trainer/loop/train_source.h"
#include "trainer/session/same_inputs.h"
#include "trainer/this_trainer.h"

namespace weir {

struct Job;

struct JobDataOptions {
  ThisTrainer trainer;
  // Borrowed.
  const Job* job = nullptr;
  const v1::ProgramDesc* program = nullptr;
  ThreadPool* pool = nullptr;
  // Batches of a stream in one step: train.accumulate_steps x train.workers.
  int64_t batches_per_step = 1;
  // True if readers of the training data are asked where streams go on.
  bool keeps_places = false;
  // Number of threads that read and parse; 0 = the reader's choice.
  int reader_threads = 0;
  // LaneReaderOptions.before_batch of the training data.
  std::function<void(int stream, int64_t batch)> before_batch = {};
};

// Not thread-safe.
class JobData {
 public:
  // Lists the files of data.train, if they are known at the beginning, and of data.eval. Errors as DataSet::Open.
  static absl::StatusOr<std::unique_ptr<JobData>> Open(JobDataOptions options);

  // Cuts the data into streams by this version of the rule: that of the run that is resumed. Call before Begin.
  // FailedPrecondition: this build does not know it for these files.
  absl::Status CutBy(int scheme);

  // Begins with the training data where this trainer begins. Call before LearnStatistics. Errors as
  // TrainSource::Begin and CutBy.
  absl::Status Begin(const Begun& begun);

  // Returns the listings of the files, for CheckSameInputs.
  std::vector<Input> Inputs() const;

  // Obtains the statistics that the readers need, if any: from the checkpoint that the run goes on from; or those that
  // it inherits (Beginning.inherited), and what is missing in one pass over the training data (TrainSource::FirstFiles,
  // which it waits for), in which every trainer measures its streams and exchanges the results. Call before the first
  // reader. Unavailable: another trainer died before it had measured its part. Cancelled, on every trainer: one of them
  // was asked to stop before it had; stopped() is then true.
  absl::Status LearnStatistics(const v1::Beginning& beginning);
  bool stopped() const { return stopped_; }
  // Returns the statistics, or null if the job needs none.
  const DataStatistics* statistics() const { return statistics_.has_value() ? &*statistics_ : nullptr; }

  // Creates readers of this trainer's streams: of data.train as the job says, of data.eval in one pass in order.
  absl::StatusOr<std::unique_ptr<LaneReader>> TrainReader() const;
  absl::StatusOr<std::unique_ptr<LaneReader>> EvalReader() const;

  const DataSpec& spec() const { return spec_; }
  const TrainSource& train() const { return *train_; }
  FileCourse& course() const { return train_->course(); }
  bool has_eval() const { return eval_.has_value(); }

  // Returns the error of a run in which no trainer had an example. skipped_lines: of all trainers.
  absl::Status NoExamples(int64_t skipped_lines) const {
    return train_->NoExamples(skipped_lines, spec_.StreamBatch(0));
  }
  // Returns the error of a run in which no trainer had an example with these inputs; OK if there are none, or if
  // data.train has not been read as a whole.
  absl::Status NoInputs(const v1::AbsentInputs& absent) const;

 private:
  explicit JobData(JobDataOptions options);
  // Merges what all trainers have measured.
  absl::Status TakeStatistics(const std::vector<std::string>& all);
  // Measures the streams of this trainer on a thread that may be left behind in a read that never returns. Returns
  // kStopped if this trainer is asked to stop meanwhile.
  absl::StatusOr<std::string> MeasureStreams() const;
  // Returns the options that both readers have.
  LaneReaderOptions ReaderOptions() const;

  const JobDataOptions o_;
  DataSpec spec_;
  std::unique_ptr<TrainSource> train_;  // not null
  std::optional<DataSet> eval_;
  std::optional<DataStatistics> statistics_;
  std::optional<StatisticsHeritage> heritage_;  // of a run that starts from checkpoints
  bool stopped_ = false;                        // LearnStatistics was
};

// Logs how many lines `reader` has skipped, if any. `data`: "data.train" and so on.
void WarnOfSkippedLines(const LaneReader& reader, const char* data);

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_JOB_DATA_H_
