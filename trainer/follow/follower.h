// data.follow, as one trainer takes part in it. A thread of its own learns of the files and hands them to the reader:
//
//   the chief looks for files, forms groups of data.follow.files_together, and posts them through server 0;
//   the others hear of them there;
//   every trainer posts where groups end in its streams, so that the chief can say in a checkpoint, and a process that
//   takes the place of a dead trainer can know, where a stream goes on.
//
// The order of the files alone decides what is in a group, so all trainers, and every run on the same files, have the
// same groups, whenever the files have appeared.
#ifndef WEIR_TRAINER_FOLLOW_FOLLOWER_H_
#define WEIR_TRAINER_FOLLOW_FOLLOWER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/mutex.h"
#include "proto/checkpoint.pb.h"
#include "proto/trainer.pb.h"
#include "trainer/data/data_spec.h"
#include "trainer/data/file_lookout.h"
#include "trainer/data/followed_files.h"
#include "trainer/files/data_set.h"
#include "trainer/follow/file_course.h"
#include "trainer/this_trainer.h"

namespace weir {

struct Job;

// Functions are for one thread, beside which the follower's own runs.
class Follower : public FileCourse {
 public:
  struct Options {
    ThisTrainer trainer;
    // Borrowed.
    const Job* job = nullptr;
    DataSpec spec;
    // Batches of a stream in one step: train.accumulate_steps x train.workers.
    int64_t batches_per_step = 1;
    // State in the checkpoint that the run has been resumed from; the default is that of a fresh run.
    v1::FollowState state;
    // Steps of each trainer that this state contains (sync: the same number); by trainer.
    std::vector<int64_t> first_steps;
    // First step of this trainer, and whether it takes the place of a dead one.
    int64_t step = 0;
    bool takes_over = false;
  };
  // Starts the thread. FailedPrecondition: the state is of another number of streams. DataLoss: it contradicts itself.
  static absl::StatusOr<std::unique_ptr<Follower>> Create(Options options);
  ~Follower() override;
  Follower(const Follower&) = delete;
  Follower& operator=(const Follower&) = delete;

  // Files and places for the reader of this trainer's streams (LaneReaderOptions). Errors in them reach the reader.
  std::shared_ptr<FollowedFiles> files() const { return files_; }
  const std::vector<StreamStart>& starts() const { return starts_; }
  bool takes_over() const { return o_.takes_over; }
  // Waits for the first group. Cancelled: the job is asked to end. Errors as those of the reader.
  absl::StatusOr<std::shared_ptr<const DataSet>> AwaitFirst();

  // By FollowedFiles::Stop.
  bool EndsStreams() const override { return true; }
  void StepsDone(int64_t steps) override { steps_ = steps; }
  absl::Status PostReadings() override;
  absl::Status SaveAt(const std::vector<int64_t>& trainer_steps, v1::TrainerState* state) override;
  // The thread goes on.
  void Finish() override;
  // Ends the thread. The destructor calls it.
  void Stop() override;

 private:
  explicit Follower(Options options);
  absl::Status Prepare();
  // Returns where a stream goes on after `step` steps. `readings`: those of the stream that are known, ascending.
  StreamStart StartAt(int stream, int64_t step, const std::vector<StreamReading>& readings) const;

  void Run();
  // Waits for the next round: as the chief until something has changed since the first `wakes` wake-ups of Waits.
  void Pause(int64_t wakes);
  // Runs once in every round of the thread: learns of files, and tells the others what they need.
  absl::Status Round();
  // Takes the groups that have been posted. For a trainer that is not the chief, or has just become it.
  absl::Status Hear();
  // Takes the files that have appeared, and posts whole groups. For the chief.
  absl::Status Look();
  absl::Status PostGroups(bool closed);
  // Takes the next group; sets the samples of its files. Returns the files, opened, which files_ lacks and is to get in
  // the order of groups; null if this trainer reads none of them.
  absl::StatusOr<std::shared_ptr<const DataSet>> TakeGroup(v1::FileGroup group);
  void SetClosed();
  // Opens files on a thread of their own, which may be left behind in a disk that does not answer.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenGroup(const v1::FileGroup& group);
  // Returns true after Stop.
  bool stopping();
  // Ends the wait for a file that does not come, and says in the log that the job waits.
  absl::Status WatchIdle();
  // Returns those of this trainer's streams that a later start may need.
  std::vector<StreamReading> Readings();
  // Returns an element of base_.
  v1::FollowedStream BaseOf(int stream) const;

  const Options o_;
  PostBoard* const board_;
  std::shared_ptr<FollowedFiles> files_;
  std::vector<StreamStart> starts_;
  std::atomic<int64_t> steps_;
  std::atomic<bool> finished_{false};

  // The following three are used by the thread alone.
  int64_t next_group_ = 1;  // to hear of, or to form
  // The chief's search for files.
  struct Search {
    std::unique_ptr<FileLookout> lookout;  // null before the first look
    std::deque<FoundFile> found;           // and not in a group yet
    bool more = false;                     // of them than a round takes
    absl::Status trouble;                  // of the last look
    std::string changing;                  // FileLookout::News.changing
    absl::Time moved, warned;              // last file, or moment when nobody waited; last line in the log
  };
  Search search_;
  // State of a trainer that hears of files, which the chief does not.
  struct Heard {
    std::string key;       // of the last post
    int64_t edition = -1;  // of that
    absl::Time missing;    // since when a file that the chief has found is not seen here
  };
  Heard heard_;

  Mutex posts_mu_;  // held while readings are posted
  int64_t edition_ ABSL_GUARDED_BY(posts_mu_) = -1;
  mutable Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  // Groups known so far, from groups_begin_ on, that a checkpoint may need.
  int64_t groups_begin_ ABSL_GUARDED_BY(mu_) = 1;
  std::deque<v1::FileGroup> groups_ ABSL_GUARDED_BY(mu_);
  std::string last_file_ ABSL_GUARDED_BY(mu_);
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  // State of each stream in the newest checkpoint, or its beginning.
  std::vector<v1::FollowedStream> base_ ABSL_GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_FOLLOW_FOLLOWER_H_
