// Files of data.train as one trainer reads them: all are known at the beginning, or, with data.follow, they come while
// the job runs.
#ifndef WEIR_TRAINER_LOOP_TRAIN_SOURCE_H_
#define WEIR_TRAINER_LOOP_TRAIN_SOURCE_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/stream_places.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/data/lane_reader.h"
#include "trainer/files/data_set.h"
#include "trainer/follow/file_course.h"
#include "trainer/follow/follower.h"
#include "trainer/session/same_inputs.h"

namespace weir {

struct Job;

// Not thread-safe.
class TrainSource {
 public:
  // Lists the files, if they are known at the beginning. `job` is borrowed. Errors as DataSet::Open.
  static absl::StatusOr<std::unique_ptr<TrainSource>> Open(const Job* job);
  virtual ~TrainSource() = default;

  // Returns the files that are known at the beginning.
  const DataSet& files() const { return files_; }
  // Returns the listing for CheckSameInputs. Files that follow each trainer checks as it opens them.
  virtual std::vector<Input> Inputs() const = 0;
  // Returns whether a run may have been cut into streams by a version of the rule (trainer/files/stream_rule.h).
  virtual bool CutsBy(int scheme) const = 0;
  // Returns whether checkpoints have places at which streams go on.
  virtual bool HasPlaces() const = 0;
  // Returns the number of examples in step 0 that the run must have by the state that it goes on from; 0: any.
  virtual int64_t FirstStepIn(const v1::TrainerState& state) const = 0;

  // Begins to follow files; streams go on at `places` or at the state in `options`. Call once, before what is below.
  // Errors as Follower::Create.
  virtual absl::Status Begin(Follower::Options options, const v1::StreamPlaces& places) = 0;
  // Returns the files whose statistics count, and waits for them. Cancelled: the job is asked to end.
  virtual absl::StatusOr<DataSet> FirstFiles() = 0;
  // Returns true if these may be gone, since this process takes the place of a dead one.
  virtual bool FirstFilesMayBeGone() const = 0;
  // Creates the reader, at the step that this trainer begins with.
  virtual absl::StatusOr<std::unique_ptr<LaneReader>> Reader(LaneReaderOptions options) = 0;
  // The course of the run is to be told to it.
  virtual FileCourse& course() = 0;

  // Returns the error of a run in which no trainer had an example. skipped_lines: of all trainers. stream_batch:
  // examples of a batch of a stream.
  virtual absl::Status NoExamples(int64_t skipped_lines, int64_t stream_batch) const = 0;

 protected:
  TrainSource(const Job* job, DataSet files) : job_(*job), files_(std::move(files)) {}

  const Job& job_;
  const DataSet files_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOOP_TRAIN_SOURCE_H_
