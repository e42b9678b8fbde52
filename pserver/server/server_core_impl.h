// Implementation class behind ServerCore, for the files that make it up:
//
//   server_core.cc           start, dispatch
//   server_core_sessions.cc  joins, heart-beats, checks of callers
//   server_core_pushes.cc    parts of steps, and how steps take effect
//   server_core_pulls.cc     reads
//   server_core_exchange.cc  exchanges between trainers, norms over servers
//   server_core_control.cc   checkpoints and digests
//   server_core_watch.cc     failures, leases, the passing of time
#ifndef WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_
#define WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/checkpoint/directory.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/frame.h"
#include "proto/parameter_server.pb.h"
#include "pserver/protocol/handshake.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/protocol/wire_counters.h"
#include "pserver/server/exchange_board.h"
#include "pserver/server/exchange_streams.h"
#include "pserver/server/handled_call.h"
#include "pserver/server/reply_credits.h"
#include "pserver/server/server_checkpoints.h"
#include "pserver/server/server_core.h"
#include "pserver/server/server_params.h"
#include "pserver/server/staleness_gate.h"

namespace weir {

// Longest wait of one call, whatever the caller asks for; the caller then asks again.
inline constexpr absl::Duration kMaxWait = absl::Seconds(60);

// Maximum number of waiting calls of one trainer and method. Our client has the pulls of a step, and repeats of one
// other call.
inline constexpr size_t kMaxWaitingCalls = 1024;

// Callbacks to run after the lock is released: no lock may be held across a callback.
using Actions = std::vector<std::function<void()>>;
inline void RunAll(Actions* actions) {
  for (std::function<void()>& action : *actions) action();
  actions->clear();
}

// Adds a repeat of a call to those that wait for its answer. Beyond `most` the oldest one, which its caller gave up
// long ago, is answered with Unavailable.
inline void WaitAsNewest(const ReplyCallback& reply, size_t most, std::vector<ReplyCallback>* waiting,
                         Actions* actions) {
  if (waiting->size() >= most) {
    actions->push_back([oldest = std::move(waiting->front())] {
      oldest(absl::UnavailableError("the call has been repeated too often; the last repeats will be answered"));
    });
    waiting->erase(waiting->begin());
  }
  waiting->push_back(reply);
}

template <typename Message>
absl::StatusOr<Message> Parse(const Slices& bytes, std::string_view what, size_t most = kMaxMessageBytes) {
  if (TotalSize(bytes) > most) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ", TotalSize(bytes),
                                                   " bytes; it has at most ", most));
  }
  Message message;
  const std::string flat = Flatten(bytes);
  if (!message.ParseFromString(flat)) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ", flat.size(),
                                                   " bytes that are no such message"));
  }
  return message;
}

inline Slices Serialize(const google::protobuf::MessageLite& message) {
  Slices slices;
  slices.push_back(Slice::Own(message.SerializeAsString()));
  return slices;
}

inline std::string SecondsText(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d) / 100 / 10.0, " s");
}

inline absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }

class ServerCoreImpl : public ServerCore {
 public:
  explicit ServerCoreImpl(ServerOptions options)
      : options_(std::move(options)),
        lease_(OfSeconds(options_.deadlines.lease_s())),
        slow_warning_(OfSeconds(options_.deadlines.slow_warning_s())),
        progress_deadline_(OfSeconds(options_.deadlines.progress_deadline_s())),
        connect_deadline_(OfSeconds(options_.deadlines.connect_deadline_s())),
        fingerprint_(StableHash(options_.plan_text)),
        wire_("server", options_.server_id),
        board_(1) {}
  ~ServerCoreImpl() override;

  absl::Status Init();

  void Handle(Method method, const Slices& request, ReplyCallback reply) override;
  void Tick() override;
  void RequestStop() override;
  bool Finished() override;
  absl::Status JobStatus() override;
  int64_t Version() override;
  const Counters& counters() const override { return counters_; }

 private:
  // Pushes of one trainer in one step.
  struct PendingStep {
    int64_t step = -1;  // -1: none begun
    std::vector<bool> parts;
    int received = 0;
    int part_count = -1;  // unknown until the last part is here
    int64_t samples = 0;
    int64_t first_samples = 0;  // of step 0
    v1::Verdict verdict = v1::APPLY;
    std::vector<Gradient> gradients;
    size_t bytes = 0;    // taken by the gradients
    bool begun = false;  // eager: parts of it have taken effect
    // Set once the step is complete, until it has taken effect: the gradients to apply (in sync, at trainer 0, those of
    // all trainers), and the progress of norms.
    std::shared_ptr<std::vector<TrainerGradients>> gathered;
    NormRounds norms;
    bool tables_taken = false;  // async_tables: the gradients of tables are on their way, or have taken effect
    bool Complete() const { return part_count >= 0 && received == part_count; }
    bool TooSmall() const { return 2 * samples < first_samples; }
  };
  struct Trainer {
    enum State { kAbsent, kJoined, kDone, kDead } state = kAbsent;
    uint64_t session = 0;
    std::shared_ptr<ReplyCredits> credits;  // of the session
    std::string process;
    uint64_t incarnation = 0;
    bool takes_over = false;  // async: took the place of a dead trainer
    absl::Time lease_until;
    int64_t step = -1;  // last step begun, according to its heart-beat
    std::string waiting_for;
    PendingStep pending;
    absl::Time progress;      // time of its last new action
    absl::Time last_warning;  // of its being slow
    bool slow = false;
    bool told = false;  // has been told that the job has failed
    // Async: newest step that has taken effect; whether a step is being applied; callers that wait for it.
    int64_t applied_step = -1;
    bool applying = false;
    std::vector<ReplyCallback> applied_waiters;
  };
  struct WaitingPull {
    int trainer;
    v1::PullRequest request;
    Slice payload;
    size_t bytes;  // taken while it waits: the request as it came, and its header as a message
    absl::Time deadline;
    ReplyCallback reply;
    HandledCallPtr handled;
    // Set once the pull is ready: the answer's bytes of the trainer's credits.
    std::shared_ptr<const void> credit = nullptr;
  };
  struct WaitingExchange {
    int trainer;
    v1::ExchangeRequest request;
    absl::Time deadline;
    ReplyCallback reply;
  };
  struct WaitingNorms {
    int trainer;
    int64_t step;
    int round;
    absl::Time deadline;
    ReplyCallback reply;
  };
  struct ControlCall {
    int trainer;
    uint64_t session;
    v1::ControlRequest request;
    std::vector<ReplyCallback> replies;
  };
  // Facts about a version, for the reply of a pull.
  struct VersionInfo {
    int64_t version = 0;
    bool skipped = false;
    bool stop = false;
    int64_t samples = 0;
    bool ended = false;  // sync: too few samples, or none: no effect
    int64_t first_samples = 0;
  };

  void HandleJoin(const Slices& request, const ReplyCallback& reply);
  void HandleHeartbeat(const Slices& request, const ReplyCallback& reply);
  void HandlePush(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);
  void HandlePull(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);
  void HandleExchange(const Slices& request, const ReplyCallback& reply);
  void HandleControl(const Slices& request, const ReplyCallback& reply);
  void HandleNorms(const Slices& request, const ReplyCallback& reply, const HandledCallPtr& handled);

  absl::Status CheckJoin(const v1::JoinRequest& request, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns OK if the caller is the process that it says and holds its id; renews its lease.
  absl::Status CheckCaller(const v1::Caller& caller, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks the caller of a request like CheckCaller, before anything else of it is parsed, copied or kept. `message`:
  // the whole request, or its header. InvalidArgument: the bytes are no message.
  absl::Status Admit(const Slices& message, std::string_view what) ABSL_LOCKS_EXCLUDED(mu_);
  // Admits and parses a request that is a message of at most `most` bytes.
  template <typename Request>
  absl::StatusOr<Request> AdmitAndParse(const Slices& bytes, std::string_view what, size_t most = kMaxMessageBytes)
      ABSL_LOCKS_EXCLUDED(mu_) {
    if (absl::Status known = Admit(bytes, what); !known.ok()) return known;
    return Parse<Request>(bytes, what, most);
  }
  // Begins to act for a caller: expires leases, checks the caller like CheckCaller, and fails like Aborted in a job
  // that has failed. Returns the time of the request.
  absl::StatusOr<absl::Time> ActFor(const v1::Caller& caller, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns OK if the trainer may make Control calls: it must have the chief's duties.
  absl::Status CheckMayControl(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Aborted(int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Name(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Self() const { return absl::StrCat("server ", options_.server_id, " (", options_.process, ")"); }
  bool AllJoined() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Names, for messages, the processes that a pull waits for.
  std::string WaitingFor(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Names them in a few words that are equal in every step, for the profiler: "trainer 1", "the update".
  std::string WhoKeepsWaiting(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: returns true if the trainer is gone and is not waited for.
  bool Excused(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: passes the chief's duties to the lowest living trainer, if there is one, when the chief is dead or done.
  void PassDuties() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Undoes a join that another server refused: the trainer's place is as it was before.
  absl::Status Leave(int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns "", or a description of the steps that have taken effect here and are in no checkpoint.
  std::string Unsaved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: fails the job if the trainer that died was the last one able to save; trainers that are done cannot.
  void FailIfUnsaved(const std::string& last_death, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Fail(const absl::Status& status, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: handles a failed update of a trainer's step.
  void FailApply(int trainer, int64_t step, const absl::Status& status, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireLeases(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchConnecting(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchProgress(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Records one part. `eager`: receives its gradients, to be applied at once. Sets `wait` when the answer must wait for
  // the apply. `message`: bytes of the whole push. ResourceExhausted: the trainer's step would take more than
  // PendingRoom.
  absl::StatusOr<v1::PushReply> BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                         size_t message, std::vector<Gradient>* eager, bool* eager_first, bool* wait,
                                         Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Async: true if the answer to a last part comes only when the step has taken effect. If the trainer has to bring
  // norms, the answer to those waits instead.
  bool AppliesBeforeAnswer(const PendingStep& pending) const {
    const bool norms = exchanges_norms_ && pending.samples > 0 && pending.verdict == v1::APPLY;
    return !sync_ && pending.Complete() && !norms;
  }

  // Returns the bytes that a trainer's pushes may take until their step takes effect (docs/wire.md, "Limits").
  size_t PendingRoom(int trainer) const;
  // Returns the bytes that its exchanges and posts may take.
  size_t ExchangeRoom(int trainer) const;
  // Returns ResourceExhausted if `waiting`, the number of the trainer's waiting calls, is at the limit.
  absl::Status CheckWaiting(int trainer, std::string_view what, size_t waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Planted fault: counts the gradients of a repeated part twice.
  static void AddAgain(const std::vector<Gradient>& gradients, PendingStep* pending);

  // Does everything that has become possible: applies steps, runs control calls. Call without the lock; several threads
  // may run it at once.
  void Advance();
  void ApplySync();
  // Runs the step border of the rows of all tables; in async `table_step` counts transactions.
  absl::Status EndTableStep(int64_t step, int64_t table_step);
  // Async: BeginTableStep returns the number of a transaction that begins to take effect; EndTableSteps marks its end.
  // If transactions overlap, the one that ends last runs the borders of all of them, so that each border runs once.
  int64_t BeginTableStep();
  absl::Status EndTableSteps(int64_t step, int64_t table_step);
  void ApplyAsync(int trainer);
  // Runs rounds of norms of a complete step. Returns false when `norms` waits for norms that a trainer brings.
  absl::StatusOr<bool> MakeNorms(int64_t step, const std::vector<TrainerGradients>& gathered, NormRounds* norms);
  // Returns the transaction that a trainer brings norms for.
  const PendingStep& NormStep(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return trainers_[static_cast<size_t>(sync_ ? 0 : trainer)].pending;
  }
  // Async: makes the step of a trainer wait for norms.
  void HoldForNorms(int id, NormRounds norms, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BookNorms(const v1::NormsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerNorms(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // async_tables: applies the table gradients of a trainer's complete step.
  void ApplyTables(int trainer);
  void RunControl(std::shared_ptr<ControlCall> call);
  absl::StatusOr<v1::ControlReply> DoControl(const v1::ControlRequest& request);
  absl::Status DoLoad(const v1::LoadCheckpoint& load);
  absl::Status DoLoadRows();
  absl::Status CheckNobodyHasPushed(std::string_view what);

  bool PullReady(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeReadyPulls(std::vector<WaitingPull>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records that the pull's step has begun, when the pull is answered.
  void NoteBegun(const v1::PullRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckPull(const v1::PullRequest& request, const Slice& payload);
  // Returns the credit for the answer of a pull that is ready, and records that its step has begun. Null: the pull is
  // not ready, or the trainer has to read earlier answers first.
  std::shared_ptr<const void> TakeReady(const v1::PullRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Copies the values of an item that CheckPull has accepted, as floats.
  absl::Status CopyItem(const v1::PullItem& item, const Slice& payload, int reader, float* out);
  // `credit` lives as long as the answer's bytes.
  void ServePull(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                 std::shared_ptr<const void> credit, const ReplyCallback& reply, const HandledCallPtr& handled);
  void ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info);
  void AnswerExchanges(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Handles a call of the streams. Sets in `call` the request that waits if it cannot be answered yet.
  absl::Status HandleStream(const v1::ExchangeRequest& request, WaitingExchange* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerStream(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Answers a call with ExchangeRequest.anyone.
  bool TryAnswerAnyone(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const ServerOptions options_;
  const absl::Duration lease_, slow_warning_, progress_deadline_, connect_deadline_;
  const uint64_t fingerprint_;
  const WireCounters wire_;
  // Constant after Init.
  std::unique_ptr<ServerParams> params_;
  std::unique_ptr<ServerCheckpoints> checkpoints_;
  bool sync_ = true;
  bool eager_ = false;
  // True if other servers hold parts of the norms that this server's steps need.
  bool exchanges_norms_ = false;
  bool async_tables_ = false;
  int trainer_count_ = 1;
  Counters counters_;
  Counter* const pushes_applied_ = counters_.Get("push.applied", "steps");
  Counter* const pushes_skipped_ = counters_.Get("push.skipped", "steps");
  Counter* const parts_repeated_ = counters_.Get("push.repeated", "messages");
  std::vector<std::vector<LaneRange>> nodes_;  // of each trainer
  std::vector<size_t> pending_room_;           // of each trainer
  DirectoryProbe probe_;                       // empty without a checkpoint directory
  BufferPool buffers_;

  Mutex mu_;
  std::vector<Trainer> trainers_ ABSL_GUARDED_BY(mu_);
  // Reported in HeartbeatReply.chief; server 0's value is authoritative.
  int chief_ ABSL_GUARDED_BY(mu_) = 0;
  // Async, numbers of steps with samples: those that have taken effect here, those in the shard written last, and those
  // that a trainer confirmed as saved by reporting that it is done.
  int64_t effective_ ABSL_GUARDED_BY(mu_) = 0, written_ ABSL_GUARDED_BY(mu_) = 0, saved_ ABSL_GUARDED_BY(mu_) = 0;
  bool pushed_ ABSL_GUARDED_BY(mu_) = false;  // some trainer has pushed something
  VersionInfo version_ ABSL_GUARDED_BY(mu_);
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Time failed_at_ ABSL_GUARDED_BY(mu_);
  absl::Time last_look_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // when leases were last checked
  absl::Time version_since_ ABSL_GUARDED_BY(mu_);
  absl::Time connecting_since_ ABSL_GUARDED_BY(mu_);
  absl::Time connect_warning_ ABSL_GUARDED_BY(mu_);
  int64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<WaitingPull> pulls_ ABSL_GUARDED_BY(mu_);
  std::list<WaitingExchange> exchanges_ ABSL_GUARDED_BY(mu_);
  std::list<WaitingNorms> norm_calls_ ABSL_GUARDED_BY(mu_);
  ExchangeBoard board_ ABSL_GUARDED_BY(mu_);
  ExchangeStreams streams_ ABSL_GUARDED_BY(mu_) = ExchangeStreams(0);
  std::unique_ptr<StalenessGate> gate_ ABSL_GUARDED_BY(mu_);  // null: no bound
  int applies_ ABSL_GUARDED_BY(mu_) = 0;
  // Async: number of transactions that have begun to take effect since the run's beginning, which are the steps of
  // tables (docs/tables.md); numbers of those that have not ended; and the next border to run.
  int64_t table_steps_ ABSL_GUARDED_BY(mu_) = 0;
  std::set<int64_t> under_way_ ABSL_GUARDED_BY(mu_);
  int64_t borders_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<std::shared_ptr<ControlCall>> controls_ ABSL_GUARDED_BY(mu_);  // waiting
  std::shared_ptr<ControlCall> control_ ABSL_GUARDED_BY(mu_);              // running
  std::shared_ptr<ControlCall> last_control_ ABSL_GUARDED_BY(mu_);         // answered
  absl::StatusOr<v1::ControlReply> last_control_reply_ ABSL_GUARDED_BY(mu_);
};

}  // namespace weir

#endif  // WEIR_PSERVER_SERVER_SERVER_CORE_IMPL_H_
