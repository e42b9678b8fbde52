// Consistency mode of a job: the rules by which pushes of trainers become updates, and by which pulls are answered.
//
//   SyncSteps         a step takes effect when all trainers have pushed it; pulls wait for their version
//   AsyncTables       the same for dense parameters; rows of tables take effect as soon as one trainer's step is here
//   AsyncSteps        each trainer's step takes effect by itself; pulls never wait
//   BoundedSteps      the same, but no trainer gets more than a bound of steps ahead of the slowest
//   EagerParts        like AsyncSteps; parts of a step take effect on arrival
//
// A mode decides; it neither locks nor waits nor sends. Its parts are interfaces for those that ask: pushes, updates,
// norms, pulls, members, checkpoints; ConsistencyFacts never change. ServerCore asks under its lock, runs the updates
// that a mode hands out without the lock (update_runner.h), and gives them back to Hold or Finish. Not thread-safe.
//
// To add a mode: a subclass in a file of its own, which registers it (make_consistency.h).
#ifndef WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_
#define WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "framework/base/counters.h"
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
  // Sync: PullReply.late_trainer, or -1, and its late_s.
  int late_trainer = -1;
  absl::Duration late;
};

// Facts of a mode, which it states when it registers.
struct ConsistencyFacts {
  // A step needs all trainers: one that is dead ends the job, and none may push when another is done.
  bool needs_all_trainers = false;
  // A pull names, as its version, the step that it is for.
  bool pulls_name_steps = false;
  // Rows may be pulled ahead of their step, and are corrected when it has come.
  bool answers_ahead = false;
  // Rows of a step take effect before the rest of it: its learning rates are prepared when the step before is over.
  bool rows_come_first = false;
  // Tables count transactions instead of the job's steps, and checkpoints keep the count.
  bool counts_transactions = false;
  // A push may hold the gradients of several trainers, added (PushRequest.merged).
  bool takes_merged = false;
};

// Counts of steps that are over.
class StepCounts {
 public:
  const VersionInfo& version() const { return version_; }
  // Returns the number of steps of the trainer that have taken effect here.
  virtual int64_t StepsOf(int trainer) const = 0;
  // Returns true if the step is over, so that its parts are repeats.
  bool IsOver(int trainer, int64_t step) const { return step < StepsOf(trainer); }

 protected:
  ~StepCounts() = default;

  VersionInfo version_;
};

// Pushes. Requires, in all calls: the trainer has joined.
class PushRules {
 public:
  // Returns OK if the trainer may push parts of this step now. `what` names the part. Requires: !IsOver.
  virtual absl::Status CheckTurn(int trainer, int64_t step, const std::string& what) const = 0;
  // Returns OK if a push may hold the gradients of several trainers, added.
  virtual absl::Status CheckTakesMerged(const std::string& what) const = 0;
  // Returns OK if the last part of a step may carry this verdict.
  virtual absl::Status CheckVerdict(v1::Verdict, const std::string& /*what*/) const { return absl::OkStatus(); }
  // Returns true if the part takes effect on arrival: its update is not booked, but made by ApplyOnArrival.
  virtual bool AppliesOnArrival(const v1::PushRequest&) const { return false; }
  // Returns the part's update, and counts it as running. The caller owes what Next requires.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): an override moves from it
  virtual Update ApplyOnArrival(const v1::PushRequest&, std::vector<Gradient> /*gradients*/) { return Update(); }
  // Returns true if the answer to the trainer's last part comes only when its step has taken effect: AwaitUpdate.
  virtual bool AnswersAfterUpdate(int /*trainer*/) const { return false; }
  virtual void AwaitUpdate(int /*trainer*/, const ReplyCallback&, Actions*) {}
  // Returns those that wait for an update of the trainer that has not begun.
  virtual std::vector<ReplyCallback> TakeWaiters(int /*trainer*/) { return {}; }

 protected:
  ~PushRules() = default;
};

// Updates. Invariant: running() is the number of updates that were handed out and not given back.
class UpdateRules {
 public:
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

 protected:
  ~UpdateRules() = default;

  int running_ = 0;
};

// Norms of whole parameters, for a trainer whose step is complete.
class NormRules {
 public:
  // Returns the rounds that the trainer brings norms for.
  virtual NormRounds& norms(int trainer) = 0;
  // Returns OK if the trainer is one that brings norms. `name`: of the trainer, for messages.
  virtual absl::Status CheckBringsNorms(int /*trainer*/, const std::string& /*name*/) const { return absl::OkStatus(); }
  // Returns true if a trainer that has brought `rounds` rounds has nothing to wait for here: it pulls the new version.
  virtual bool NormsAreComplete(int /*rounds*/) const { return false; }
  // Returns true if the trainer's next action is to bring norms.
  virtual bool OwesNorms(int trainer) const = 0;

 protected:
  ~NormRules() = default;
};

// Pulls: of trainers, and of readers, which belong to no step.
class PullRules {
 public:
  // Returns true if a trainer's pull may be answered now.
  virtual bool PullReady(const v1::PullRequest& request) const = 0;
  // Records that a trainer's pull is being answered. Requires: PullReady.
  virtual void PullBegins(const v1::PullRequest&) {}
  // A trainer, joined or absent, that a pull waits for.
  struct Blocker {
    int trainer;
    std::string detail = {};  // for messages: ", which has finished step 3"; "": where it stands, by its heart-beats
    bool owes_norms = false;
  };
  virtual std::vector<Blocker> BlockersOf(const v1::PullRequest&) const { return {}; }
  // Returns true if the trainer waits for others, so that its lack of progress is not its fault. `pulls`: steps whose
  // pulls of this trainer wait here.
  virtual bool WaitsForOthers(int trainer, const std::vector<int64_t>& pulls) const = 0;

  // Returns true if the newest values may be copied for a reader now.
  virtual bool MayRead(const v1::PullRequest& request) const = 0;
  // Record that a copy begins and has ended. Next hands out no update meanwhile, and once an update is due no further
  // copy begins. Requires: MayRead at BeginRead, under the same hold of the lock; one EndRead for each.
  virtual void BeginRead(const v1::PullRequest& request) = 0;
  virtual void EndRead(const v1::PullRequest& request) = 0;
  // Returns true if an update waits for copies to end.
  virtual bool update_due() const = 0;

 protected:
  ~PullRules() = default;
};

// Members of the job, by id: no interface here has their number.
class MemberRules {
 public:
  virtual void OnJoin(int /*trainer*/) {}
  virtual void OnDone(int /*trainer*/) {}
  // Drops the unfinished step of a trainer that is dead or has given up its place.
  virtual void OnDeath(int trainer) = 0;
  // Returns true if an update of this trainer's step is running.
  virtual bool Applies(int /*trainer*/) const { return false; }

 protected:
  ~MemberRules() = default;
};

// Checkpoints and digests.
class CheckpointRules {
 public:
  // Returns OK if a control call for this step may act on the present values.
  virtual absl::Status CheckControlled(int64_t /*step*/) const { return absl::OkStatus(); }
  // Goes on at a checkpoint of this step. `steps`: for each trainer the number of its steps in it. Requires: no update
  // is running.
  virtual void Restore(int64_t step, const std::vector<int64_t>& steps) = 0;

 protected:
  ~CheckpointRules() = default;
};

// Base of the modes: what all of them keep.
class Consistency : public StepCounts,
                    public PushRules,
                    public UpdateRules,
                    public NormRules,
                    public PullRules,
                    public MemberRules,
                    public CheckpointRules {
 public:
  struct Options {
    std::string self;  // the server, for messages
    int norm_rounds = 0;
    bool average_by_trainers = false;
    bool exchanges_norms = false;  // other servers hold parts of the norms
    int64_t staleness = -1;        // bound of BoundedSteps; -1: none
    Counters* counters = nullptr;  // borrowed
    std::string mode = {};         // its name, for messages; set by MakeConsistency
    ConsistencyFacts facts = {};   // set by MakeConsistency
  };

  Consistency(Options options, StepBook book);
  virtual ~Consistency() = default;

  const ConsistencyFacts& facts() const { return options_.facts; }
  bool exchanges_norms() const { return options_.exchanges_norms; }
  // Returns the parts of steps that are here.
  StepBook& book() { return book_; }

  absl::Status CheckTakesMerged(const std::string& what) const final;
  bool WaitsForOthers(int trainer, const std::vector<int64_t>& pulls) const override;
  bool MayRead(const v1::PullRequest& request) const final;
  void BeginRead(const v1::PullRequest& request) final { reads_ += HoldsUpdates(request) ? 1 : 0; }
  void EndRead(const v1::PullRequest& request) final { reads_ -= HoldsUpdates(request) ? 1 : 0; }
  bool update_due() const final { return update_due_; }
  void Restore(int64_t step, const std::vector<int64_t>& steps) final;

 protected:
  virtual void RestoreSteps(int /*trainer*/, int64_t /*steps*/) {}
  // Returns true if the values that a reader pulls must be of one version: no update may begin while they are copied.
  virtual bool HoldsUpdates(const v1::PullRequest&) const { return false; }
  void CountPushes(bool applied, int64_t count) { (applied ? pushes_applied_ : pushes_skipped_)->Add(count); }

  const Options options_;
  StepBook book_;
  int reads_ = 0;            // copies for readers, with HoldsUpdates, that have begun
  bool update_due_ = false;  // Next has kept an update for their sake

 private:
  Counter* const pushes_applied_;
  Counter* const pushes_skipped_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CONSISTENCY_CONSISTENCY_H_
