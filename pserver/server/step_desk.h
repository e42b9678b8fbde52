// Pushes and norms of whole parameters that trainers bring for a step, as the server's lock guards them. Not
// thread-safe; ServerCore locks around it, and reads pushes without the lock (push_reader.h).
#ifndef WEIR_PSERVER_SERVER_STEP_DESK_H_
#define WEIR_PSERVER_SERVER_STEP_DESK_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "pserver/consistency/consistency.h"
#include "pserver/server/pull_desk.h"

namespace weir {

class StepDesk {
 public:
  struct Options {
    std::string self;                 // the server, for messages
    bool needs_all_trainers = false;  // ConsistencyFacts
    int norm_rounds = 0;              // in a step; 0: no other server holds parts of its norms
    // Borrowed.
    const StepCounts* counts = nullptr;
    PushRules* pushes = nullptr;
    NormRules* norms = nullptr;
    StepBook* book = nullptr;
    Roster* roster = nullptr;
    const PullDesk* pulls = nullptr;  // names, for messages, the processes that steps wait for
  };
  explicit StepDesk(Options options) : options_(std::move(options)) {}

  struct Booked {
    v1::PushReply reply;
    bool wait = false;            // the answer waits for the update
    std::optional<Update> apply;  // takes effect on arrival
  };
  // Records one part of a push, with its gradients. `message`: bytes of the whole push. `may_apply`: no control call
  // waits for updates to end. Sets `failure` if the push ends the job: a trainer that its step needs is done.
  absl::StatusOr<Booked> Book(const v1::PushRequest& request, std::vector<Gradient> gradients, size_t message,
                              bool may_apply, absl::Time now, absl::Status* failure);

  // Books the norms that a trainer brings, and answers at once or from AnswerNorms. An error that it returns is the
  // answer.
  absl::Status HandleNorms(const v1::NormsRequest& request, const ReplyCallback& reply, absl::Time now,
                           Actions* actions);
  // Answers the calls for norms that can be answered, or whose wait is over.
  void AnswerNorms(absl::Time now, Actions* actions);
  // Returns the time at which AnswerNorms has something to do.
  absl::Time NextDue() const;
  // Removes the waiting calls for norms, of one trainer or all (trainer < 0). Returns the callers and their callbacks.
  std::vector<std::pair<int, ReplyCallback>> TakeWaiting(int trainer = -1);

 private:
  // Call for norms that waits for sums.
  struct Call {
    int trainer;
    int64_t step;
    int round;
    absl::Time deadline;
    ReplyCallback reply;
  };
  // Returns OK if the mode takes merged pushes, and the trainers merged with the caller are alive.
  absl::Status CheckMerged(const v1::PushRequest& request, const std::string& part_name) const;
  // Returns OK if the step may be pushed now.
  absl::Status CheckTurn(const v1::PushRequest& request, const std::string& part_name, absl::Status* failure) const;
  absl::Status CheckVerdicts(const v1::PushRequest& request, const std::string& part_name) const;
  // Records that the caller, and the trainers merged with it, go on, and their requests to stop.
  void RecordProgress(const v1::PushRequest& request, absl::Time now);
  absl::Status BookNorms(const v1::NormsRequest& request, absl::Time now);
  // Returns true if the step of the call is over, or its trainer has to bring the norms of the round, or to pull.
  bool Ready(const Call& call) const;
  // Returns false if the call has to wait. `final`: it has waited long enough.
  bool TryAnswer(const Call& call, bool final, Actions* actions);

  const Options options_;
  WaitingCalls<Call> calls_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_STEP_DESK_H_
