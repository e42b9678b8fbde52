// The class behind ServerCore, for the files that make it up:
//
//   server_core.cc           start, dispatch
//   server_core_sessions.cc  who is who: joins, heart-beats, callers
//   server_core_pushes.cc    parts of steps, and how steps take effect
//   server_core_pulls.cc     reads
//   server_core_exchange.cc  what trainers tell each other, norms over servers
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

// Longest wait of one call, whatever the caller asks for: it asks again.
inline constexpr absl::Duration kMaxWait = absl::Seconds(60);

// Calls of one trainer and method that wait for their answers at once: one of our clients has a step's pulls, and
// repeats of one other call.
inline constexpr size_t kMaxWaitingCalls = 1024;

// Runs after the lock is released: no lock across a callback.
using Actions = std::vector<std::function<void()>>;
inline void RunAll(Actions* actions) {
  for (std::function<void()>& action : *actions) action();
  actions->clear();
}

// Adds a repeat of a call to those that wait for its answer. Beyond `most` the oldest, which its caller has long given
// up, is told to ask again.
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
  // A trainer's pushes of one step.
  struct PendingStep {
    int64_t step = -1;  // -1: none begun
    std::vector<bool> parts;
    int received = 0;
    int part_count = -1;  // unknown until the last part is here
    int64_t samples = 0;
    int64_t first_samples = 0;  // of step 0
    v1::Verdict verdict = v1::APPLY;
    std::vector<Gradient> gradients;
    size_t bytes = 0;    // that they take
    bool begun = false;  // eager: parts of it have taken effect
    // Once complete, until it has taken effect: whose gradients (in sync with trainer 0: everyone's), and how far norms
    // are.
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
    bool takes_over = false;  // async: the place of a dead one
    absl::Time lease_until;
    int64_t step = -1;  // last begun, by its heart-beat
    std::string waiting_for;
    PendingStep pending;
    absl::Time progress;      // when it last did something new
    absl::Time last_warning;  // of its being slow
    bool slow = false;
    bool told = false;  // that the job has failed
    // Async: newest step that has taken effect; whether its step is being applied; who waits for that.
    int64_t applied_step = -1;
    bool applying = false;
    std::vector<ReplyCallback> applied_waiters;
  };
  struct WaitingPull {
    int trainer;
    v1::PullRequest request;
    Slice payload;
    size_t bytes;  // that it takes while it waits: as it came, and its header as a message
    absl::Time deadline;
    ReplyCallback reply;
    HandledCallPtr handled;
    // Once it is ready: the answer's bytes of the trainer's credits.
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
  // What a pull's reply says of the version it shows.
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
  // Ok when the caller is who it says and holds its id; renews its lease.
  absl::Status CheckCaller(const v1::Caller& caller, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Checks the caller of a request like CheckCaller, before anything else of it is parsed, copied or kept: `message` is
  // the whole of it, or its header. InvalidArgument: bytes that are no message.
  absl::Status Admit(const Slices& message, std::string_view what) ABSL_LOCKS_EXCLUDED(mu_);
  // Ok for the trainer whose duty the calls of Control are.
  absl::Status CheckMayControl(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Aborted(int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Name(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Self() const { return absl::StrCat("server ", options_.server_id, " (", options_.process, ")"); }
  bool AllJoined() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whom the pull of a request waits for.
  std::string WaitingFor(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The same in a few words that are alike in every step, for the profiler: "trainer 1", "the update".
  std::string WhoKeepsWaiting(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: an id whose trainer is gone is not waited for.
  bool Excused(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: when the chief is dead or done its duties pass to the lowest living trainer, if there is one.
  void PassDuties() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The caller's join was refused elsewhere: its place is as it was before.
  absl::Status Leave(int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // "", or what has taken effect here and is in no checkpoint.
  std::string Unsaved() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: a dead trainer was the last that could save; whoever is done cannot.
  void FailIfUnsaved(const std::string& last_death, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Fail(const absl::Status& status, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: the update of a trainer's step failed.
  void FailApply(int trainer, int64_t step, const absl::Status& status, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireLeases(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchConnecting(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchProgress(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Books one part. `eager`: its gradients, to be applied at once. Sets `wait` when the answer must wait for the apply.
  // `message`: bytes of the whole push. ResourceExhausted: the trainer's step would take more than PendingRoom.
  absl::StatusOr<v1::PushReply> BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                         size_t message, std::vector<Gradient>* eager, bool* eager_first, bool* wait,
                                         Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Async: the answer to a last part comes when the step has taken effect; with norms to be brought the answer to those
  // does.
  bool AppliesBeforeAnswer(const PendingStep& pending) const {
    const bool norms = exchanges_norms_ && pending.samples > 0 && pending.verdict == v1::APPLY;
    return !sync_ && pending.Complete() && !norms;
  }

  // Bytes that a trainer's pushes may take until their step takes effect (docs/wire.md, "Limits").
  size_t PendingRoom(int trainer) const;
  // The same of its exchanges and posts.
  size_t ExchangeRoom(int trainer) const;
  // ResourceExhausted when as many calls of a trainer wait as may.
  absl::Status CheckWaiting(int trainer, std::string_view what, size_t waiting) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // The planted fault: what a repeated part brings counts twice.
  static void AddAgain(const std::vector<Gradient>& gradients, PendingStep* pending);

  // Does whatever has become possible: applies steps, runs control calls. Without the lock; several threads may be in
  // it.
  void Advance();
  void ApplySync();
  // The border behind a step of rows of tables; in async `table_step` counts transactions.
  absl::Status EndTableStep(int64_t step, int64_t table_step);
  // Async: the number of a transaction that begins to take effect, and its end. Of transactions that overlap the one
  // that ends last runs the borders behind all of them, so that each border is run once.
  int64_t BeginTableStep();
  absl::Status EndTableSteps(int64_t step, int64_t table_step);
  void ApplyAsync(int trainer);
  // Goes through rounds of norms of a step that is complete. False: `norms` waits for what a trainer brings.
  absl::StatusOr<bool> MakeNorms(int64_t step, const std::vector<TrainerGradients>& gathered, NormRounds* norms);
  // The transaction that a trainer brings norms for.
  const PendingStep& NormStep(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return trainers_[static_cast<size_t>(sync_ ? 0 : trainer)].pending;
  }
  // Async: the step of a trainer waits for norms.
  void HoldForNorms(int id, NormRounds norms, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BookNorms(const v1::NormsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerNorms(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // async_tables: what a trainer's complete step brings for tables.
  void ApplyTables(int trainer);
  void RunControl(std::shared_ptr<ControlCall> call);
  absl::StatusOr<v1::ControlReply> DoControl(const v1::ControlRequest& request);
  absl::Status DoLoad(const v1::LoadCheckpoint& load);
  absl::Status DoLoadRows();
  absl::Status CheckNobodyHasPushed(std::string_view what);

  bool PullReady(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeReadyPulls(std::vector<WaitingPull>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A pull that is answered begins its step.
  void NoteBegun(const v1::PullRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckPull(const v1::PullRequest& request, const Slice& payload);
  // Null: the trainer has to read answers first. Else it begins its step.
  std::shared_ptr<const void> TakeReady(const v1::PullRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Values of an item that CheckPull has seen, as floats.
  absl::Status CopyItem(const v1::PullItem& item, const Slice& payload, int reader, float* out);
  // `credit` lives as long as the answer's bytes.
  void ServePull(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                 std::shared_ptr<const void> credit, const ReplyCallback& reply, const HandledCallPtr& handled);
  void ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info);
  void AnswerExchanges(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A call of the streams; `call` is what waits if it has to.
  absl::Status HandleStream(const v1::ExchangeRequest& request, WaitingExchange* call)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerStream(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // ExchangeRequest.anyone
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
  // Other servers have parts of the norms that this one's steps need.
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
  // HeartbeatReply.chief; server 0's word counts.
  int chief_ ABSL_GUARDED_BY(mu_) = 0;
  // Async: steps with samples that have taken effect here; how many of them the last shard that was written holds; and
  // the last that a trainer vouched for by saying that it is done.
  int64_t effective_ ABSL_GUARDED_BY(mu_) = 0, written_ ABSL_GUARDED_BY(mu_) = 0, saved_ ABSL_GUARDED_BY(mu_) = 0;
  bool pushed_ ABSL_GUARDED_BY(mu_) = false;  // anyone, anything
  VersionInfo version_ ABSL_GUARDED_BY(mu_);
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Time failed_at_ ABSL_GUARDED_BY(mu_);
  absl::Time last_look_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // at the leases
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
  // Async: transactions that have begun to take effect, since the run's beginning: the steps of tables
  // (docs/tables.md). Numbers of those that have not ended; and the next border to run.
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
