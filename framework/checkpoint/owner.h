// One run at a time writes into a directory of checkpoints. Its mark is the file OWNER there, which says whose the
// directory is and which it changes all the time; so a second job that was given the same directory is refused by name
// instead of removing what the first is writing.
//
// Whether the run behind a mark lives is seen in one of two ways, and no clock of another machine is asked for either.
// A process of this very boot of this host that has ended is known at once: a job that was killed starts again without
// delay. Of any other one the mark is watched: it lives when the mark changes, and is taken for dead when it has not
// for the lease that stands in it, by this process's own steady clock.
//
// A mark is replaced by rename and renewed through the open file of who wrote it, so an owner that was taken for dead
// and goes on renews nothing, and learns from Check that the directory is another's before it changes anything.
#ifndef WEIR_FRAMEWORK_CHECKPOINT_OWNER_H_
#define WEIR_FRAMEWORK_CHECKPOINT_OWNER_H_

#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "proto/checkpoint.pb.h"

namespace weir {

struct OwnerOptions {
  // Absolute; made if it is not there.
  std::string dir;
  std::string job;
  // Identifies the run; equal in all of its processes.
  std::string run;
  // Where the mark is another one of the same run: true, take it over, for one process publishes; false, leave it as it
  // is.
  bool publishes = true;
  // Validity of the mark, which is renewed every `beat`.
  absl::Duration lease = absl::Seconds(10), beat = absl::Seconds(1);
  // Steady. Borrowed.
  Clock* clock = Clock::Real();
  // false: the caller calls Renew itself (tests with a fake clock).
  bool thread = true;
};

// Take and Check are called by one thread at a time. The thread that renews ("weir-owner") is stopped by the
// destructor, which removes the mark if it is still the own one.
class DirectoryOwner {
 public:
  explicit DirectoryOwner(OwnerOptions options);
  ~DirectoryOwner();
  DirectoryOwner(const DirectoryOwner&) = delete;
  DirectoryOwner& operator=(const DirectoryOwner&) = delete;

  // Looks once. true: the directory is this run's. false: it is not known yet whether the run whose mark is there
  // lives; `holder` says which, and the caller looks again soon, at least four times a lease. FailedPrecondition: it
  // lives, and is named.
  absl::StatusOr<bool> Take(std::string* holder);

  // The directory is still this run's; to be asked before anything in it is changed. FailedPrecondition names the one
  // that has it now, of this run, too, when both publish. A mark that is gone is made anew, with a warning: somebody
  // has removed the directory, and the checkpoints in it.
  // `of_this_run`: whether it is another process of this run that has it, from which Take takes it back.
  absl::Status Check(bool* of_this_run = nullptr);

  // Changes the mark.
  void Renew();

 private:
  // The mark that this one has written: an open file, closed by the last who has it.
  struct Mark;

  absl::Status Write();
  // Another run's mark: whether it is to be replaced. As Take.
  absl::StatusOr<bool> Watch(const v1::DirectoryOwner& found, const std::string& text, std::string* holder);
  std::shared_ptr<Mark> mark() const;
  // The mark that is there is the one that this has written.
  bool IsMine() const;
  std::string path() const;
  void Beats();

  const OwnerOptions options_;
  // The mark that is watched, and since when it has not changed. Owned by the thread that calls Take.
  std::string watched_;
  absl::Time last_look_;
  absl::Duration unchanged_;

  mutable Mutex mu_;
  std::shared_ptr<Mark> mark_ ABSL_GUARDED_BY(mu_);  // null: another process of this run has written it
  int stop_ = -1;                                    // an eventfd; constant once the thread runs
  std::thread thread_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_CHECKPOINT_OWNER_H_
