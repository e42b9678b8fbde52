// Reserves a directory of checkpoints for one run at a time. The run's mark is the file OWNER in the directory, which
// names the run and which the run rewrites regularly. A second job with the same directory is refused with the name of
// the owner instead of removing files that the first is writing.
//
// Two checks decide if the owner is alive; neither uses the clock of another machine. An owner process of this boot of
// this host that has ended is detected at once: a job that was killed starts again without delay. Otherwise the mark is
// watched: its owner is alive if the mark changes, and is assumed dead if the mark has not changed for the lease, by
// this process's own steady clock. The lease is the longer of OwnerOptions::lease and the one in the mark, of which at
// most an hour counts.
//
// A mark is replaced by rename and renewed through the file that its writer holds open. An owner that was taken for
// dead but continues therefore does not renew the new mark, and learns from Check that it has lost the directory before
// it changes anything.
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
  // Absolute path; created if missing.
  std::string dir;
  std::string job;
  // Identifies the run; equal in all processes of the run.
  std::string run;
  // True in the process that publishes: Take replaces the mark of another process of the run. False: Take leaves that
  // mark in place while its process may live.
  bool publishes = true;
  // Validity of the mark, and the interval between renewals.
  absl::Duration lease = absl::Seconds(10), beat = absl::Seconds(1);
  // Steady clock. Borrowed.
  Clock* clock = Clock::Real();
  // Starts a thread that renews the mark; false if the caller calls Renew itself (tests with a fake clock).
  bool thread = true;
};

// Owner of a directory. One thread at a time may call Take and Check. The destructor stops the renewing thread
// ("weir-owner") and removes the mark if it is still this object's. A process that gets no thread for it exits
// (framework/base/exhausted.h).
class DirectoryOwner {
 public:
  explicit DirectoryOwner(OwnerOptions options);
  ~DirectoryOwner();
  DirectoryOwner(const DirectoryOwner&) = delete;
  DirectoryOwner& operator=(const DirectoryOwner&) = delete;

  // Tries once to take the directory. Returns true if it is this run's. Returns false while it is unknown if the run
  // that holds the mark is alive; `holder` names that run, and the caller must call again. FailedPrecondition names a
  // run that is alive. Requires: after false, called at least four times per lease.
  absl::StatusOr<bool> Take(std::string* holder);

  // Checks that the directory is still this run's. Requires: Take has returned true; called before every change in the
  // directory. FailedPrecondition names the present owner, which may be another publishing process of this run. Writes
  // a missing mark again, with a warning that the mark, or the directory with its checkpoints, was removed. Sets
  // `of_this_run` to true if another process of this run has the directory, from which Take takes it back.
  absl::Status Check(bool* of_this_run = nullptr);

  // Renews the mark. Requires: called every OwnerOptions::beat if `thread` is false.
  void Renew();

 private:
  // Mark written by this object: an open file, closed with the last reference.
  struct Mark;

  absl::Status Write();
  // Returns true if another run's mark may be replaced. Results and errors as in Take.
  absl::StatusOr<bool> Watch(const v1::DirectoryOwner& found, const std::string& text, std::string* holder);
  std::shared_ptr<Mark> mark() const;
  // Returns true if the present mark is the one written by this object.
  bool IsMine() const;
  std::string path() const;
  void Beats();

  const OwnerOptions options_;
  // Text of the watched mark, time of the last look and time without a change. Owned by the thread that calls Take.
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
