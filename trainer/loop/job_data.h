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
#include "trainer/data/data_spec.h"
#include "trainer/data/lane_reader.h"
#include "trainer/data/statistics.h"
#include "trainer/files/data_set.h"
#include "trainer/files/stream_rule.h"
#include "trainer/session/same_inputs.h"
#include "trainer/this_trainer.h"

namespace weir {

class Follower;
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
  // Lists the files of data.train and data.eval. With data.follow data.train has none before Follow. Errors as
  // DataSet::Open.
  static absl::StatusOr<std::unique_ptr<JobData>> Open(JobDataOptions options);

  // Cuts the data into streams by this version of the rule: that of the run that is resumed. Call before Follow.
  // FailedPrecondition: this build does not know it for these files.
  absl::Status CutBy(int scheme);

  // data.follow: takes the training data from `follower`, which is borrowed. Call before LearnStatistics.
  void Follow(Follower* follower) { follower_ = follower; }

  // Returns the listings of the files, for CheckSameInputs. Files that follow each trainer checks as it opens them.
  std::vector<Input> Inputs() const;

  // Obtains the statistics that the readers need, if any: from `saved`, those of a checkpoint, or if that is empty in
  // one pass over the training data (with data.follow its first group of files, which it waits for), in which every
  // trainer measures its streams and exchanges the results. Call before the first reader. Unavailable: another trainer
  // died before it had measured its part. Cancelled, on every trainer: one of them was asked to stop before it had;
  // stopped() is then true.
  absl::Status LearnStatistics(const std::string& saved);
  bool stopped() const { return stopped_; }
  // Returns the statistics, or null if the job needs none.
  const DataStatistics* statistics() const { return statistics_.has_value() ? &*statistics_ : nullptr; }

  // Creates readers of this trainer's streams: of data.train as the job says, of data.eval in one pass in order.
  absl::StatusOr<std::unique_ptr<LaneReader>> TrainReader() const;
  absl::StatusOr<std::unique_ptr<LaneReader>> EvalReader() const;

  const DataSpec& spec() const { return spec_; }
  const DataSet& train() const { return *train_; }
  // Returns whether a run on data.train may have been cut into streams by a version of the rule
  // (trainer/files/stream_rule.h).
  bool CutsTrainBy(int scheme) const { return CutsBy(scheme, train_->files(), follows()); }
  bool has_eval() const { return eval_.has_value(); }

  // Returns the error of a run in which no trainer had an example. skipped_lines: of all trainers.
  absl::Status NoExamples(int64_t skipped_lines) const;
  // Returns the error of a run in which no trainer had an example with these inputs; OK if there are none, or if
  // data.train has not been read as a whole.
  absl::Status NoInputs(const v1::AbsentInputs& absent) const;

 private:
  explicit JobData(JobDataOptions options);
  // Merges what all trainers have measured.
  absl::Status TakeStatistics(const std::vector<std::string>& all);
  // Measures the streams of this trainer on a thread that may be left behind in a read that never returns. With
  // data.follow it waits for the first group. Returns kStopped if this trainer is asked to stop meanwhile.
  absl::StatusOr<std::string> MeasureStreams() const;
  absl::StatusOr<std::unique_ptr<LaneReader>> MakeReader(const DataSet& data, bool one_pass) const;
  bool follows() const { return spec_.config.has_follow(); }

  const JobDataOptions o_;
  DataSpec spec_;
  Follower* follower_ = nullptr;
  std::optional<DataSet> train_, eval_;
  std::optional<DataStatistics> statistics_;
  bool stopped_ = false;  // LearnStatistics was
};

// Logs how many lines `reader` has skipped, if any. `data`: "data.train" and so on.
void WarnOfSkippedLines(const LaneReader& reader, const char* data);

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_JOB_DATA_H_
