// ExchangeHub of bytes between the trainers of a job: contributions under a key that all read (exchange_board.h),
// posts, and streams (exchange_streams.h), with the calls that wait for them. Not thread-safe; its owner locks around
// it.
#ifndef WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_HUB_H_
#define WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_HUB_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "framework/membership/exchange_board.h"
#include "framework/membership/exchange_streams.h"
#include "framework/membership/roster.h"
#include "framework/membership/waiting_calls.h"
#include "proto/membership.pb.h"

namespace weir {

class ExchangeHub {
 public:
  // Receives an answer. `credit`, null for small answers, lives as long as the answer's bytes (reply_credits.h).
  using Callback = std::function<void(absl::StatusOr<v1::ExchangeReply>, std::shared_ptr<const void> credit)>;

  // `roster` is borrowed; it must be called under the same lock. `room`: bytes that the contributions of each trainer
  // may take.
  ExchangeHub(Roster* roster, std::vector<size_t> room);

  // Handles a call, which is answered by `actions`, now or later. An error is the answer to the call; `reply` is then
  // not called. Requires: the caller has joined. Here and below, `actions` run after the owner's lock is released.
  absl::Status Handle(const v1::ExchangeRequest& request, absl::Time now, Callback reply, Actions* actions);
  // Answers the calls that can be answered, and those whose wait is over. Requires: called whenever a trainer is gone,
  // the chief has changed, or time has passed.
  void Answer(absl::Time now, Actions* actions);
  // Returns the time at which Answer has something to do although nothing else happens: at once while the caller of a
  // waiting call has answers to read.
  absl::Time NextDue() const;
  // The job has failed: answers all calls with Roster::Aborted.
  void Abort(Actions* actions);
  // Ends the streams of a trainer whose place another process takes.
  void Close(int trainer) { streams_.Close(trainer); }
  // Forgets what all have read more than `keep` ago.
  void Expire(absl::Time now, absl::Duration keep);

 private:
  struct Waiting {
    int trainer;
    v1::ExchangeRequest request;  // only what the answer needs
    absl::Time deadline;
    Callback reply;
  };
  std::function<bool(int)> Excused() const;
  // Takes and gives up chunks of a stream. Sets in `call` the request that waits if it cannot be answered yet.
  absl::Status HandleStream(const v1::ExchangeRequest& request, Waiting* call);
  // Stores a contribution that comes with the request.
  absl::Status Contribute(const v1::ExchangeRequest& request, int trainer);
  // Answers the call, or keeps it.
  absl::Status AnswerOrWait(Waiting call, absl::Time now, Actions* actions);
  // Return false if the call has to wait. `final`: answer in any case.
  bool TryAnswer(const Waiting& call, absl::Time now, bool final, Actions* actions);
  bool TryAnswerStream(const Waiting& call, absl::Time now, bool final, Actions* actions);
  bool TryAnswerAnyone(const Waiting& call, absl::Time now, bool final, Actions* actions);
  bool TryAnswerBoard(const Waiting& call, absl::Time now, bool final, Actions* actions);

  Roster* const roster_;
  ExchangeBoard board_;
  ExchangeStreams streams_;
  WaitingCalls<Waiting> calls_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_MEMBERSHIP_EXCHANGE_HUB_H_
