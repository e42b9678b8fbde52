// State of a job as one of its trainers knows it: whether it has failed or is to stop, how far it is, who is the chief.
// Thread-safe.
#ifndef WEIR_PSERVER_MEMBER_JOB_VIEW_H_
#define WEIR_PSERVER_MEMBER_JOB_VIEW_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "framework/base/mutex.h"

namespace weir {

class JobView {
 public:
  // `trainers`: number of trainers of the job. `news` is called, without a lock, when waits have to look at the job
  // again: once it has failed, when its end is requested, for a newer version, and when any_awaits_files or the chief
  // changes.
  JobView(int trainers, std::function<void()> news);

  // Returns why the job has failed, or OK.
  absl::Status failure() const;
  // Records the failure of the job. The first one stays.
  void Fail(const absl::Status& status);
  // Records that a server refuses this trainer's heart-beats; means nothing once this trainer is done. `expelled`: the
  // trainer's lease has run out.
  void Refused(const absl::Status& status, bool expelled);
  // Records a failure that this trainer reports, and returns the one that stands. Null if this trainer is expelled: its
  // failure is not the job's.
  std::optional<absl::Status> FailUnlessExpelled(const absl::Status& status);
  // Waits a second at most for a failure, then records `status` if there is none, and returns the one that stands.
  absl::Status AwaitFailure(const absl::Status& status);
  bool expelled() const;

  // Records that this trainer is done and all servers know it.
  void SetDone();
  bool done() const;

  // Sleeps until `until`, until there is a failure that servers have not been told of, or until Close. False: closed.
  // Uses the steady clock: a step of the wall clock must not keep a sign of life back.
  bool SleepUntil(std::chrono::steady_clock::time_point until);
  // Records that servers are about to be told of the failure, if there is one.
  void RelayBegins();
  // Ends SleepUntil and all later calls of it.
  void Close();

  // State of waits for data that does not exist yet (data.follow), of this trainer and of any.
  void SetAwaitsFiles(bool awaits) { awaits_files_ = awaits; }
  bool awaits_files() const { return awaits_files_; }
  void SetAnyAwaitsFiles(bool any);
  bool any_awaits_files() const { return any_awaits_files_; }

  void RequestStop();
  bool stop_requested() const { return stop_requested_; }

  // Step that this trainer is at; -1 before the first.
  void SetStep(int64_t step) { step_ = step; }
  int64_t step() const { return step_; }

  // Newest version that any server has reported.
  void SawVersion(int64_t version);
  int64_t version() const;

  // Trainer with the duties of the chief, as server 0 last said. SetChief ignores numbers that no trainer has.
  void SetChief(int trainer);
  int chief() const { return chief_; }
  // Records that a trainer is dead. Returns true if that is news; false for numbers that no trainer has.
  bool SetDead(int trainer);

 private:
  // Returns true if this is the first failure.
  bool SetFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool IsTrainer(int trainer) const { return trainer >= 0 && trainer < trainers_; }

  const int trainers_;
  const std::function<void()> news_;
  // Atomic: each is a value by itself.
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> awaits_files_{false}, any_awaits_files_{false};
  std::atomic<int64_t> step_{-1};
  std::atomic<int> chief_{0};

  mutable Mutex mu_;
  CondVar changed_;
  // Invariant: never changes again once it is an error.
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool relay_ ABSL_GUARDED_BY(mu_) = false;  // some server has yet to be told of the failure
  bool expelled_ ABSL_GUARDED_BY(mu_) = false;
  bool done_ ABSL_GUARDED_BY(mu_) = false;
  bool closed_ ABSL_GUARDED_BY(mu_) = false;
  int64_t version_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int> dead_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_MEMBER_JOB_VIEW_H_
