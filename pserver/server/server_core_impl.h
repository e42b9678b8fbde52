// Implementation class behind ServerCore: the lock, and the dispatch of calls to the classes that do the work.
//
//   server_core_impl.cc     start, dispatch, the passing of time
//   server_core_members.cc  joins, heart-beats, exchanges, failures
//   server_core_steps.cc    pushes, norms, updates
//   server_core_pulls.cc    pulls
//   server_core_control.cc  checkpoints and digests
//
// Under the lock: who belongs to the job (framework/membership), the rules of the job's consistency mode
// (consistency.h), and the desks, which have parts of them (step_desk.h, pull_desk.h). Without it: reading pushes
// (push_reader.h), updates (update_runner.h), answers to pulls (pull_answers.h), control actions (control_actions.h).
// Callbacks run after the lock is released.
#ifndef WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_
#define WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/status_macros.h"
#include "framework/membership/exchange_hub.h"
#include "framework/membership/roster.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "pserver/consistency/consistency.h"
#include "pserver/consistency/replies.h"
#include "pserver/consistency/update_runner.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/wire_counters.h"
#include "pserver/server/control_actions.h"
#include "pserver/server/control_queue.h"
#include "pserver/server/handled_call.h"
#include "pserver/server/join_checks.h"
#include "pserver/server/pull_answers.h"
#include "pserver/server/pull_desk.h"
#include "pserver/server/push_reader.h"
#include "pserver/server/save_ledger.h"
#include "pserver/server/server_core.h"
#include "pserver/server/step_desk.h"

namespace weir {

inline absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }

class ServerCoreImpl : public ServerCore {
 public:
  explicit ServerCoreImpl(ServerOptions options);
  ~ServerCoreImpl() override;

  absl::Status Init();

  void Handle(Method method, const Slices& request, ReplyCallback reply) override;
  void Tick() override;
  absl::Time NextTick() override;
  void RequestStop() override;
  void ReportFailure(const absl::Status& status) override;
  bool Finished() override;
  absl::Status JobStatus() override;
  int64_t Version() override;
  const Counters& counters() const override { return counters_; }
  ServerReport Report() override;

 private:
  void HandleJoin(const Slices& request, const ReplyCallback& reply);
  void HandleHeartbeat(const Slices& request, const ReplyCallback& reply);
  void HandlePush(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);
  void HandlePull(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);
  void HandleExchange(const Slices& request, const ReplyCallback& reply);
  void HandleControl(const Slices& request, const ReplyCallback& reply);
  void HandleNorms(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);

  // Answers a request, as Handle.
  void Dispatch(Method method, const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);
  // Returns when Tick has something to do if nothing else happens.
  absl::Time TickDue(absl::Time now) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Calls on_tick_due if the last NextTick has become too late.
  void CheckNextTick() ABSL_LOCKS_EXCLUDED(mu_);

  // --- Parts of Init.
  void InitMembers(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void InitDesks() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the bytes that a trainer's exchanges and posts may take (docs/wire.md, "Limits").
  size_t ExchangeRoom(int trainer) const;
  // Returns for each trainer the bytes that its pushes of a step may take, and the ids of its pulls ahead of a step.
  std::vector<size_t> PendingRooms() const;

  // --- Callers.

  // Processes that may make a call.
  enum class Callers { kTrainers, kReadersToo };
  // Checks the caller of a request, before anything else of it is parsed, copied or kept. `message`: the whole request,
  // or its header. InvalidArgument: the bytes are no message.
  absl::Status Admit(const Slices& message, std::string_view what, Callers callers) ABSL_LOCKS_EXCLUDED(mu_);
  // Opens the frame of a request, admits its caller and parses its header.
  template <typename Request>
  absl::Status OpenRequest(const Slices& bytes, std::string_view what, Callers callers, Request* request,
                           Slices* payload) ABSL_LOCKS_EXCLUDED(mu_);
  // Begins to act for a caller that has been admitted: expires leases, checks the caller and renews its lease, and
  // fails like Roster::Aborted in a job that has failed. Returns the time of the request.
  absl::StatusOr<absl::Time> ActFor(const v1::Caller& caller, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Handles a request of a trainer that is a message `what` of at most `most` bytes: `handle`, with the lock, gets the
  // request, its time and the actions; an error that it returns is the answer.
  template <typename Request, typename Handler>
  void AsCaller(const Slices& bytes, std::string_view what, size_t most, const ReplyCallback& reply,
                const Handler& handle) ABSL_LOCKS_EXCLUDED(mu_);

  // --- Members. Failures and deaths reach everything that waits.

  // Sets `credit` if the answer takes some of a reader's.
  absl::StatusOr<v1::JoinReply> Join(const v1::JoinRequest& request, std::shared_ptr<const void>* credit,
                                     Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The reply lacks the plan.
  absl::StatusOr<v1::JoinReply> JoinReader(const v1::JoinRequest& request, std::shared_ptr<const void>* credit)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Takes in the news of a heart-beat.
  absl::Status Hear(const v1::HeartbeatRequest& request, absl::Time now, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status HearReader(const v1::HeartbeatRequest& request, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  v1::HeartbeatReply News() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireLeases(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: answers the calls of a dead trainer with `text`.
  void AnswerDead(int trainer, const std::string& text, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns SaveLedger::Unsaved in jobs that save.
  std::string Unsaved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: fails the job if the trainer that died was the last one able to save; trainers that are done cannot.
  void FailIfUnsaved(const std::string& last_death, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Fail(const absl::Status& status, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers everything that waits with Roster::Aborted.
  void AbortCalls(Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchProgress(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // --- Steps.

  // Records one part, with its gradients. `message`: bytes of the whole push.
  absl::StatusOr<StepDesk::Booked> BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                            size_t message, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does everything that has become possible: runs updates and control calls. Several threads may run it at once.
  void Advance() ABSL_LOCKS_EXCLUDED(mu_);
  // Runs an update and answers what has waited for it. Returns the update's error.
  absl::Status RunUpdate(Update update) ABSL_LOCKS_EXCLUDED(mu_);

  // --- Control calls.

  void RunControl(const v1::ControlRequest& request) ABSL_LOCKS_EXCLUDED(mu_);

  // --- Pulls.

  // Answer pulls that PullDesk::TakeReady has taken. Serve returns true if it has ended a read that an update or a load
  // waits for: Advance must follow, as it does in any case behind ServeAll.
  bool Serve(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
             std::shared_ptr<const void> credit, const ReplyCallback& reply, const HandledCallPtr& handled)
      ABSL_LOCKS_EXCLUDED(mu_);
  void ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info) ABSL_LOCKS_EXCLUDED(mu_);
  const ServerOptions options_;
  const std::string self_;  // "server 0 (host:pid)"
  JoinChecks joins_;
  const WireCounters wire_;
  Counters counters_;
  BufferPool buffers_;
  // Constant after Init, in this order.
  std::unique_ptr<ServerParams> params_;
  std::unique_ptr<const PushReader> pushes_;
  std::unique_ptr<const PullAnswers> answers_;
  std::unique_ptr<UpdateRunner> runner_;
  std::unique_ptr<ControlActions> actions_;  // called by the thread that runs the control call

  Mutex mu_;
  std::unique_ptr<Roster> roster_ ABSL_PT_GUARDED_BY(mu_);
  std::unique_ptr<ExchangeHub> exchanges_ ABSL_PT_GUARDED_BY(mu_);
  std::unique_ptr<Consistency> mode_ ABSL_PT_GUARDED_BY(mu_);
  std::unique_ptr<PullDesk> pulls_ ABSL_PT_GUARDED_BY(mu_);
  std::unique_ptr<StepDesk> steps_ ABSL_PT_GUARDED_BY(mu_);
  ControlQueue controls_ ABSL_GUARDED_BY(mu_);
  SaveLedger saves_ ABSL_GUARDED_BY(mu_);
  absl::Time next_tick_ ABSL_GUARDED_BY(mu_);
  // A trainer has come, gone or ended since the last tick: updates and calls that waited for it may go on.
  bool members_changed_ ABSL_GUARDED_BY(mu_) = false;
  // A call other than a heart-beat has come since NextTick. Atomic: set by every call, without the lock.
  std::atomic<bool> asked_{false};
  // True while next_tick_ is later than the usual tick. Atomic: read by every request, without the lock. A request that
  // changes what NextTick has seen takes the lock after NextTick has set it.
  std::atomic<bool> rests_{false};
};

template <typename Request>
absl::Status ServerCoreImpl::OpenRequest(const Slices& bytes, std::string_view what, Callers callers, Request* request,
                                         Slices* payload) {
  ASSIGN_OR_RETURN(RawFrame frame, OpenFrame(bytes));
  const absl::string_view name(what.data(), what.size());
  const std::string type = absl::StrCat(name, "Request");
  // Nothing of a stranger's header is copied. The copy is admitted again: the sender of bytes in shared memory can
  // change them.
  RETURN_IF_ERROR(Admit(frame.header, type, callers));
  const std::string header = Flatten(frame.header);
  RETURN_IF_ERROR(Admit({Slice::Borrow(header.data(), header.size())}, type, callers));
  if (!request->ParseFromString(header)) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": the header is no ", name, "Request"));
  }
  *payload = std::move(frame.payload);
  return absl::OkStatus();
}

template <typename Request, typename Handler>
void ServerCoreImpl::AsCaller(const Slices& bytes, std::string_view what, size_t most, const ReplyCallback& reply,
                              const Handler& handle) {
  if (absl::Status known = Admit(bytes, what, Callers::kTrainers); !known.ok()) return reply(known);
  absl::StatusOr<Request> request = Parse<Request>(bytes, what, most);
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(const absl::Time now, ActFor(request->caller(), &actions));
    return handle(*std::move(request), now, &actions);
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
}

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_
