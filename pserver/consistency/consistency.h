// Consistency mode of a job: the rules by which pushes of trainers become updates, and by which pulls are answered.
//
//   SyncSteps         a step takes effect when all trainers have pushed it; pulls wait for their version
//   AsyncTables       the same for dense parameters; rows of tables take effect as soon as one trainer's step is here
//   AsyncSteps        each trainer's step takes effect by itself; pulls never wait
//   BoundedSteps      the same, but no trainer gets more than a bound of steps ahead of the slowest
//   EagerParts        like AsyncSteps; parts of a step take effect on arrival
//
// A mode decides; it neither locks nor waits nor sends. ServerCore asks it under its lock, runs the updates that it
// hands out without the lock (update_runner.h), and gives them back to Hold or Finish. Not thread-safe. Invariant:
// running() is the number of updates that were handed out and not given back.
//
// To add a mode: a subclass in a file of its own, which registers it (make_consistency.h).
#ifndef WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_
#define WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/counters.h"
#include "framework/membership/roster.h"
#include "framework/membership/waiting_calls.h"
#include "proto/parameter_server.pb.h"
#include "pserver/consistency/step_book.h"
#include "pserver/consistency/update.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/protocol/transport.h"

namespace weir {

// Facts about the newest version, for the answers to pulls (PullReply).
struct VersionInfo {
  int64_t version = 0;  // number of steps that are over; in async of transactions
  bool skipped = false;
  bool stop = false;
  int64_t samples = 0;
  bool ended = false;  // sync: too few samples, or none: the step has had no effect
  int64_t first_samples = 0;
};

class Consistency {
 public:
  struct Options {
    std::string self;  // the server, for messages
    int norm_rounds = 0;
    bool average_by_trainers = false;
    bool exchanges_norms = false;  // other servers hold parts of the norms
    int64_t staleness = -1;        // bound of BoundedSteps; -1: none
    Counters* counters = nullptr;  // borrowed
  };

  // `book` is borrowed.
  Consistency(Options options, StepBook* book);
  virtual ~Consistency() = default;

  const VersionInfo& version() const { return version_; }
  bool exchanges_norms() const { return options_.exchanges_norms; }

  // --- The job.

  virtual Roster::OnDeath on_death() const = 0;
  // Prepares the parameters for the first update.
  virtual absl::Status Prepare(ServerParams* /*params*/) const { return absl::OkStatus(); }
  // Returns true if rows may be pulled ahead of their step and corrected when it has come.
  virtual bool AnswersAhead() const { return false; }
  // Returns the step that a trainer pulls for, for the profile; -1: the pull does not say.
  virtual int64_t StepOf(const v1::PullRequest& /*request*/) const { return -1; }

  // --- Pushes. Requires: the trainer has joined.

  // Returns true if the step is over, so that its parts are repeats.
  virtual bool IsOver(int trainer, int64_t step) const = 0;
  // Returns OK if the trainer may push parts of this step now. `what` names the part. Requires: !IsOver.
  virtual absl::Status CheckTurn(int trainer, int64_t step, const std::string& what) const = 0;
  // Returns true if a step needs all trainers, so that one that is done ends the job of the others.
  virtual bool NeedsAllTrainers() const = 0;
  // Returns OK if the last part of a step may carry this verdict.
  virtual absl::Status CheckVerdict(v1::Verdict, const std::string& /*what*/) const { return absl::OkStatus(); }
  // Returns true if the part takes effect on arrival: its update is not booked, but made by ApplyOnArrival.
  virtual bool AppliesOnArrival(const v1::PushRequest&) const { return false; }
  // NOLINTNEXTLINE(performance-unnecessary-value-param): an override moves from it
  virtual Update ApplyOnArrival(const v1::PushRequest&, std::vector<Gradient> /*gradients*/) { return Update(); }
  // Returns true if the answer to the trainer's last part comes only when its step has taken effect: AwaitUpdate.
  virtual bool AnswersAfterUpdate(int /*trainer*/) const { return false; }
  virtual void AwaitUpdate(int /*trainer*/, const ReplyCallback&, Actions*) {}
  // Returns those that wait for an update of the trainer that has not begun.
  virtual std::vector<ReplyCallback> TakeWaiters(int /*trainer*/) { return {}; }

  // --- Updates.

  // Returns the next update that can begin, and counts it as running. Requires: the caller runs it, and gives it back
  // to Hold or Finish whatever its end.
  virtual std::optional<Update> Next() = 0;
  // Takes back an update that waits for norms. `gone`: its trainer is dead, so none will come.
  virtual void Hold(Update update, bool gone) = 0;
  struct Effect {
    bool transaction = false;  // one more transaction has taken effect
    std::vector<ReplyCallback> waiters;
  };
  // Takes back an update that is over. `ok`: it succeeded. `stop`: a stop is requested of this server. `joined`: its
  // trainer is.
  virtual Effect Finish(const Update& update, bool ok, bool stop, bool joined) = 0;
  int running() const { return running_; }
  // Returns true if an update of this trainer's step is running.
  virtual bool Applies(int /*trainer*/) const { return false; }

  // --- Norms of whole parameters, for a trainer whose step is complete.

  // Returns the rounds that the trainer brings norms for.
  virtual NormRounds& norms(int trainer) = 0;
  // Returns OK if the trainer is one that brings norms. `name`: of the trainer, for messages.
  virtual absl::Status CheckBringsNorms(int /*trainer*/, const std::string& /*name*/) const { return absl::OkStatus(); }
  // Returns true if a trainer that has brought `rounds` rounds has nothing to wait for here: it pulls the new version.
  virtual bool NormsAreComplete(int /*rounds*/) const { return false; }
  // Returns true if the trainer's next action is to bring norms.
  virtual bool OwesNorms(int trainer) const = 0;

  // --- Pulls.

  virtual bool PullReady(const v1::PullRequest& request) const = 0;
  // Records that a pull is being answered. Requires: PullReady.
  virtual void PullBegins(const v1::PullRequest&) {}
  // A trainer, joined or absent, that a pull waits for.
  struct Blocker {
    int trainer;
    std::string detail = {};  // for messages: ", which has finished step 3"; "": where it stands, by its heart-beats
    bool owes_norms = false;
  };
  virtual std::vector<Blocker> BlockersOf(const v1::PullRequest& request) const = 0;
  // Returns true if the trainer waits for others, so that its lack of progress is not its fault. `pulls`: steps whose
  // pulls of this trainer wait here.
  virtual bool WaitsForOthers(int trainer, const std::vector<int64_t>& pulls) const;

  // --- Pulls of readers, which belong to no step: PullReady and PullBegins do not see them.

  // Returns true if the newest values may be copied now.
  bool MayRead(const v1::PullRequest& request) const {
    return !HoldsUpdates(request) || (running_ == 0 && !update_due_);
  }
  // Record that a copy begins and has ended. Next hands out no update meanwhile, and once an update is due no further
  // copy begins. Requires: MayRead at BeginRead, under the same hold of the lock; one EndRead for each.
  void BeginRead(const v1::PullRequest& request) { reads_ += HoldsUpdates(request) ? 1 : 0; }
  void EndRead(const v1::PullRequest& request) { reads_ -= HoldsUpdates(request) ? 1 : 0; }
  // Returns true if an update waits for copies to end.
  bool update_due() const { return update_due_; }

  // --- Members of the job, and checkpoints.

  virtual void OnJoin(int /*trainer*/) {}
  virtual void OnDone(int /*trainer*/) {}
  // Drops the unfinished step of a trainer that is dead or has given up its place.
  virtual void OnDeath(int trainer) = 0;
  // Number of steps of the trainer that have taken effect here.
  virtual int64_t StepsOf(int trainer) const = 0;
  // Returns OK if a control call for this step may act on the present values.
  virtual absl::Status CheckControlled(int64_t /*step*/) const { return absl::OkStatus(); }
  // Returns the step of tables that a checkpoint keeps, of which `transactions` have taken effect. nullopt: it is the
  // checkpoint's step.
  virtual std::optional<int64_t> SavedTableSteps(int64_t transactions) const { return transactions; }
  // Goes on at a checkpoint of this step. `steps`: for each trainer the number of its steps in it. Requires: no update
  // is running.
  void Restore(int64_t step, const std::vector<int64_t>& steps);

 protected:
  virtual void RestoreSteps(int /*trainer*/, int64_t /*steps*/) {}
  // Returns true if the values that a reader pulls must be of one version: no update may begin while they are copied.
  virtual bool HoldsUpdates(const v1::PullRequest&) const { return false; }
  void CountPushes(bool applied, int64_t count) { (applied ? pushes_applied_ : pushes_skipped_)->Add(count); }

  const Options options_;
  StepBook* const book_;
  VersionInfo version_;
  int running_ = 0;
  int reads_ = 0;            // copies for readers, with HoldsUpdates, that have begun
  bool update_due_ = false;  // Next has kept an update for their sake

 private:
  Counter* const pushes_applied_;
  Counter* const pushes_skipped_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_
