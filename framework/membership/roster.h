// Roster of a job: one place for each trainer. A process takes its place when it joins, keeps it by signs of life, and
// gives it up when it is done, leaves or dies. The roster also holds the state that all trainers share: the chief, the
// failure that has ended the job, and the request to stop. Readers (readers.h) have no place: nothing below depends on
// them. The roster knows neither parameters nor servers.
//
//   kAbsent --Join--> kJoined --Done--> kDone
//      ^                 |
//      +--- Release -----+--TakeExpired--> kDead --Join, if OnDeath is kGoOn--> kJoined
//
// Not thread-safe: its owner locks around it, and tells it the time.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_ROSTER_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_ROSTER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/membership/readers.h"
#include "framework/membership/reply_credits.h"
#include "proto/membership.pb.h"

namespace weir {

// One place, and the process that holds it.
struct RosterPlace {
  enum State { kAbsent, kJoined, kDone, kDead } state = kAbsent;
  // Random number that proves in every call that the caller is the process that has joined; 0: none.
  uint64_t session = 0;
  std::shared_ptr<ReplyCredits> credits;  // of the session; null: none
  std::string process;                    // "host:pid"
  uint64_t incarnation = 0;               // JoinRequest.incarnation
  // Incarnation of the last process that has claimed the place in vain, and the time of its first try.
  std::optional<uint64_t> claimant;
  absl::Time claimed;
  // The dead process whose place it has taken; null: none.
  std::shared_ptr<const RosterPlace> replaced;
  absl::Time lease_until;
  int64_t step = -1;          // last step begun, by its heart-beats and pushes
  std::string waiting_for;    // HeartbeatRequest.waiting_for
  bool awaits_files = false;  // HeartbeatRequest.awaits_files
  absl::Time progress;        // time of its last new action
  absl::Time excused;         // time at which it last had a reason to make none
  absl::Time last_warning;    // of its being slow
  bool slow = false;          // has made no progress for slow_warning
  bool told = false;          // has been told that the job has failed
};

class Roster {
 public:
  enum class OnDeath {
    kFail,  // trainers work in lockstep. A place whose process dies before all have joined is free again
    kGoOn,  // the others go on, and another process may take the place
  };
  struct Options {
    std::string job;   // name of the job
    std::string self;  // keeper of the roster, for messages: "server 0 (host:pid)"
    int trainers = 1;
    OnDeath on_death = OnDeath::kFail;
    // True if this roster's chief is the one that counts (server 0); only that one logs a change.
    bool announces_chief = true;
    // lease: longest silence of a living trainer. slow_warning: time between two warnings. progress_deadline: longest
    // time without progress, doubled for a trainer that waits for others. connect_deadline: longest time in which no
    // trainer joins although some are missing.
    absl::Duration lease, slow_warning, progress_deadline, connect_deadline;
    // Limit of each trainer's ReplyCredits, and of those of all readers together; limit of each reader's.
    size_t unread_bytes = SIZE_MAX;
    size_t reader_bytes = SIZE_MAX;
  };

  Roster(Options options, absl::Time now);

  int size() const { return static_cast<int>(places_.size()); }
  // 0 <= trainer < size().
  const RosterPlace& place(int trainer) const { return places_[static_cast<size_t>(trainer)]; }
  // Returns "trainer 1 (host:pid)", or "trainer 1 (not joined)".
  std::string Name(int trainer) const;
  bool AllJoined() const { return !Any(RosterPlace::kAbsent); }
  bool Any(RosterPlace::State state) const;
  bool All(RosterPlace::State state) const;
  // Returns true if the trainer is gone and is not waited for: done or dead, where the others go on.
  bool Excused(int trainer) const;
  // Trainer that has the duties of the chief. Trainer 0; with kGoOn the lowest that has joined, once the one before it
  // is dead or done.
  int chief() const { return chief_; }
  // Returns OK if the trainer has these duties, as far as this roster knows: where they pass on, only the one that
  // announces chiefs does. Unavailable if they may pass to the trainer, else FailedPrecondition. `what`: "Control".
  absl::Status CheckChief(int trainer, std::string_view what) const;

  // Returns OK if the process may take the place, or holds it already. InvalidArgument if there is no such place.
  // Unavailable, naming the holder: the holder may be dead; ask again for the time of a lease, after which it is known
  // (FailedPrecondition, or OK). In a failed job every trainer may come and hear of the failure.
  absl::Status CheckClaim(int trainer, const std::string& process, uint64_t incarnation, absl::Time now);
  // Gives a free or dead trainer's place to a process, with a new session. Returns true if it takes the place of a dead
  // one. The place has no lease before Renew. Requires: CheckClaim has returned OK for the process, and the roster has
  // not changed since.
  bool Join(int trainer, const std::string& process, uint64_t incarnation, absl::Time now);
  // Returns OK if job, trainer and session of the caller are those of a place that has joined or is done, or of a
  // reader (trainer kReader; the job may be absent); renews its lease. InvalidArgument if there is no such place;
  // Aborted if the caller's session is of another process of this server, which has been started anew; else
  // FailedPrecondition.
  absl::Status CheckCaller(const v1::Caller& caller, absl::Time now);
  // Returns the errors of CheckCaller for a trainer of this job that the caller names beside itself. Its lease stays as
  // it is: the call is no sign of its life.
  absl::Status CheckNamed(int trainer, uint64_t session) const;
  void Renew(int trainer, absl::Time now);
  Readers& readers() { return readers_; }
  const Readers& readers() const { return readers_; }
  // Returns Name of a trainer, or Readers::Name.
  std::string NameOf(const v1::Caller& caller) const;
  // Undoes a join that another server has refused: the place is free, or the dead process has it again if the caller
  // had taken it over.
  // FailedPrecondition if the trainer has not joined or has begun a step.
  absl::Status Release(int trainer, absl::Time now);
  // Records that the trainer is done. Returns false, and changes nothing, unless it has joined.
  bool Done(int trainer);

  // Records a sign of progress: a new action of one trainer; a new part of `step`; a heart-beat that speaks of `step`.
  // The first two end its being slow.
  void Progressed(int trainer, absl::Time now);
  void Booked(int trainer, int64_t step, absl::Time now);
  void Heard(int trainer, const v1::HeartbeatRequest& beat, absl::Time now);
  // Records progress of all trainers, which have waited for the keeper of this roster. `caught_up`: none counts as slow
  // any more.
  void AllProgressed(absl::Time now, bool caught_up);

  // Begins a look at leases; ends those of readers that have run out, and excuses those that wait for files. If the
  // last look was more than half a lease ago, this process itself was asleep, and signs of life may lie unread: every
  // lease then lasts for at least half a lease more.
  void BeginLook(absl::Time now);
  struct Departure {
    int trainer = -1;
    std::string text;    // "trainer 1 (host:pid) is dead: no sign of life for 10 s, at step 3"
    bool freed = false;  // its place is free again, as if it had never joined
    bool ends_job = false;
  };
  // Ends the hold of one process whose lease has run out, if there is one. Requires: BeginLook(now) before the first
  // call of a look; called until it returns nothing.
  std::optional<Departure> TakeExpired(absl::Time now);

  // Warns of trainers that have not joined. DeadlineExceeded if connect_deadline has passed since a trainer last joined
  // or left.
  absl::Status WatchConnecting(absl::Time now);
  // Returns true if a joined trainer waits for data that does not exist yet.
  bool AwaitsFiles() const;
  // Warns of joined trainers without progress, save those for which `waits` is true. DeadlineExceeded: one has made no
  // progress for too long. While a trainer awaits files, it and all that wait for others are excused.
  absl::Status WatchProgress(absl::Time now, const std::function<bool(int)>& waits);

  // Returns the earliest time after `now` at which TakeExpired, WatchConnecting or WatchProgress may have something to
  // do if nobody is heard of until then.
  absl::Time NextDue(absl::Time now) const;

  // Records why the job ends; only the first failure counts, and is logged.
  void Fail(const absl::Status& status, absl::Time now);
  // Records that the keeper of the roster goes away: Later calls get Unavailable, unless the job has failed before.
  void Close();
  const absl::Status& failure() const { return failure_; }
  // Returns the error for a caller in a failed job, and records that the trainer has been told.
  absl::Status Aborted(int trainer);
  void Told(int trainer) { places_[static_cast<size_t>(trainer)].told = true; }
  void RequestStop() { stop_requested_ = true; }
  bool stop_requested() const { return stop_requested_; }
  // Returns true if the job ends before it is complete because its end was requested: a trainer has said so, or one has
  // not joined and is not waited for any more.
  bool stopped() const { return stopped_ || (stop_requested_ && Any(RosterPlace::kAbsent)); }
  // Returns true if no caller is left: every trainer is gone, or the job has failed and every one whose lease lasts has
  // been told, or two leases have passed since. Once a stop is requested, trainers that have not joined are not waited
  // for.
  bool Finished(absl::Time now) const;

  // Returns ResourceExhausted if `waiting`, the number of the trainer's calls that wait here, is at the limit. `what`:
  // "exchanges".
  absl::Status CheckWaiting(int trainer, std::string_view what, size_t waiting) const;

 private:
  RosterPlace& At(int trainer) { return places_[static_cast<size_t>(trainer)]; }
  absl::Status CheckId(int trainer, std::string_view of) const;
  void PassDuties();
  // Excuses the trainers that await files and all that wait for others, if one awaits files.
  void Excuse(absl::Time now);

  const Options options_;
  std::vector<RosterPlace> places_;
  Readers readers_;
  int chief_ = 0;
  absl::Status failure_;
  absl::Time failed_at_;
  bool stop_requested_ = false;
  bool stopped_ = false;  // HeartbeatRequest.stopped of any trainer
  absl::Time last_look_ = absl::InfiniteFuture();
  absl::Time connecting_since_, connect_warning_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_ROSTER_H_
