#include "pserver/server_core.h"

#include <algorithm>
#include <functional>
#include <list>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "glog/logging.h"
#include "proto/parameter_server.pb.h"
#include "pserver/exchange_board.h"
#include "pserver/handshake.h"
#include "pserver/norm_rounds.h"
#include "pserver/push_parser.h"
#include "pserver/server_checkpoints.h"
#include "pserver/server_params.h"
#include "pserver/staleness_gate.h"
#include "pserver/wire_counters.h"

namespace weir {

namespace {

// Parts of one step of one trainer: more is a mistake of the caller, not a large model.
constexpr int kMaxParts = 1 << 20;
// Of one trainer in one step; sums of them stay far from the end of int64.
constexpr int64_t kMaxSamples = int64_t{1} << 40;
// A caller's header is small; half a MiB is room for thousands of items beside a full payload.
constexpr size_t kMaxReplyPayload = kMaxMessageBytes - (size_t{1} << 19);
// Longest wait of one call, whatever the caller asks for: it asks again.
constexpr absl::Duration kMaxWait = absl::Seconds(60);

// Of a caller's own words in our messages, which end up in status texts.
constexpr size_t kMaxText = 500;

// Runs after the lock is released: no lock across a callback.
using Actions = std::vector<std::function<void()>>;
void RunAll(Actions* actions) {
  for (std::function<void()>& action : *actions) action();
  actions->clear();
}

template <typename Message>
absl::StatusOr<Message> Parse(const Slices& bytes, std::string_view what) {
  if (TotalSize(bytes) > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat(absl::string_view(what.data(), what.size()), ": ", TotalSize(bytes),
                                                   " bytes; a message has at most ", kMaxMessageBytes));
  }
  Message message;
  const std::string flat = Flatten(bytes);
  if (!message.ParseFromString(flat)) {
    return absl::InvalidArgumentError(
        absl::StrCat(absl::string_view(what.data(), what.size()), ": ", flat.size(), " bytes that are no such message"));
  }
  return message;
}

Slices Serialize(const google::protobuf::MessageLite& message) {
  Slices slices;
  slices.push_back(Slice::Own(message.SerializeAsString()));
  return slices;
}

std::string Seconds(absl::Duration d) { return absl::StrCat(absl::ToInt64Milliseconds(d) / 100 / 10.0, " s"); }

// What went wrong here will go wrong again: a caller that takes it for trouble on the way would ask until its deadline, and
// then know nothing of the cause.
absl::StatusOr<v1::ControlReply> ForGood(absl::StatusOr<v1::ControlReply> result) {
  switch (result.status().code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
      return absl::FailedPreconditionError(result.status().message());
    default:
      return result;
  }
}

absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }

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
    v1::Verdict verdict = v1::APPLY;
    std::vector<Gradient> gradients;
    bool begun = false;  // eager: parts of it have taken effect
    // Once complete, until it has taken effect: whose gradients (in sync with trainer 0: everyone's), and how far norms are.
    std::shared_ptr<std::vector<TrainerGradients>> gathered;
    NormRounds norms;
    bool tables_taken = false;  // async_tables: the gradients of tables are on their way, or have taken effect
    bool Complete() const { return part_count >= 0 && received == part_count; }
  };
  struct Trainer {
    enum State { kAbsent, kJoined, kDone, kDead } state = kAbsent;
    uint64_t session = 0;
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
    absl::Time deadline;
    ReplyCallback reply;
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
  };

  void HandleJoin(const Slices& request, const ReplyCallback& reply);
  void HandleHeartbeat(const Slices& request, const ReplyCallback& reply);
  void HandlePush(const Slices& request, const ReplyCallback& reply);
  void HandlePull(const Slices& request, const ReplyCallback& reply);
  void HandleExchange(const Slices& request, const ReplyCallback& reply);
  void HandleControl(const Slices& request, const ReplyCallback& reply);
  void HandleNorms(const Slices& request, const ReplyCallback& reply);

  absl::Status CheckJoin(const v1::JoinRequest& request, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ok when the caller is who it says and holds its id; renews its lease.
  absl::Status CheckCaller(const v1::Caller& caller, absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Aborted(int trainer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Name(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string Self() const { return absl::StrCat("server ", options_.server_id, " (", options_.process, ")"); }
  bool AllJoined() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllComplete() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whom the pull of a request waits for.
  std::string WaitingFor(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: an id whose trainer is gone is not waited for.
  bool Excused(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Fail(const absl::Status& status, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Async: the update of a trainer's step failed.
  void FailApply(int trainer, int64_t step, const absl::Status& status, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void ExpireLeases(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchConnecting(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WatchProgress(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Books one part. `eager`: its gradients, to be applied at once. Sets `wait` when the answer must wait for the apply.
  absl::StatusOr<v1::PushReply> BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                         std::vector<Gradient>* eager, bool* eager_first, bool* wait, Actions* actions)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  // Async: the answer to a last part comes when the step has taken effect; with norms to be brought the answer to those does.
  bool AppliesBeforeAnswer(const PendingStep& pending) const {
    const bool norms = exchanges_norms_ && pending.samples > 0 && pending.verdict == v1::APPLY;
    return !sync_ && pending.Complete() && !norms;
  }

  // The planted fault: what a repeated part brings counts twice.
  static void AddAgain(const std::vector<Gradient>& gradients, PendingStep* pending);

  // Does whatever has become possible: applies steps, runs control calls. Without the lock; several threads may be in it.
  void Advance();
  void ApplySync();
  void ApplyAsync(int trainer);
  // Goes through rounds of norms of a step that is complete. False: `norms` waits for what a trainer brings.
  absl::StatusOr<bool> MakeNorms(int64_t step, const std::vector<TrainerGradients>& gathered, NormRounds* norms);
  // The transaction that a trainer brings norms for.
  const PendingStep& NormStep(int trainer) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return trainers_[static_cast<size_t>(sync_ ? 0 : trainer)].pending;
  }
  // Async: the step of a trainer waits for norms.
  void HoldForNorms(int id, uint64_t session, NormRounds norms, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status BookNorms(const v1::NormsRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void AnswerNorms(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // async_tables: what a trainer's complete step brings for tables.
  void ApplyTables(int trainer);
  void RunControl(std::shared_ptr<ControlCall> call);
  absl::StatusOr<v1::ControlReply> DoControl(const v1::ControlRequest& request);
  absl::Status DoLoad(const v1::LoadCheckpoint& load);

  bool PullReady(const v1::PullRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void TakeReadyPulls(std::vector<WaitingPull>* ready) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // A pull that is answered begins its step.
  void NoteBegun(const v1::PullRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckPull(const v1::PullRequest& request, const Slice& payload);
  void ServePull(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info, const ReplyCallback& reply);
  void ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info);
  void AnswerExchanges(absl::Time now, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

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
  DirectoryProbe probe_;                       // empty without a checkpoint directory
  BufferPool buffers_;

  Mutex mu_;
  std::vector<Trainer> trainers_ ABSL_GUARDED_BY(mu_);
  VersionInfo version_ ABSL_GUARDED_BY(mu_);
  bool stop_requested_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  absl::Time failed_at_ ABSL_GUARDED_BY(mu_);
  absl::Time last_look_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();  // at the leases
  absl::Time version_since_ ABSL_GUARDED_BY(mu_);
  absl::Time connecting_since_ ABSL_GUARDED_BY(mu_);
  absl::Time connect_warning_ ABSL_GUARDED_BY(mu_);
  uint64_t sessions_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t arrivals_ ABSL_GUARDED_BY(mu_) = 0;
  std::list<WaitingPull> pulls_ ABSL_GUARDED_BY(mu_);
  std::list<WaitingExchange> exchanges_ ABSL_GUARDED_BY(mu_);
  std::list<WaitingNorms> norm_calls_ ABSL_GUARDED_BY(mu_);
  ExchangeBoard board_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<StalenessGate> gate_ ABSL_GUARDED_BY(mu_);  // null: no bound
  int applies_ ABSL_GUARDED_BY(mu_) = 0;
  bool begun_ ABSL_GUARDED_BY(mu_) = false;  // async_tables: rows of this version's step have taken effect
  std::list<std::shared_ptr<ControlCall>> controls_ ABSL_GUARDED_BY(mu_);  // waiting
  std::shared_ptr<ControlCall> control_ ABSL_GUARDED_BY(mu_);              // running
  std::shared_ptr<ControlCall> last_control_ ABSL_GUARDED_BY(mu_);         // answered
  absl::StatusOr<v1::ControlReply> last_control_reply_ ABSL_GUARDED_BY(mu_);
};

absl::Status ServerCoreImpl::Init() {
  CHECK(options_.clock != nullptr && options_.pool != nullptr);
  ASSIGN_OR_RETURN(params_, ServerParams::Create(options_.main, options_.startup, options_.server_id, options_.pool,
                                                  options_.planted.add_in_arrival_order));
  const v1::Plan& plan = options_.main.plan();
  if (const int64_t bytes = params_->read_values_bytes(); bytes > 0) {
    LOG(INFO) << Self() << ": delay compensation keeps what each trainer has read, up to " << bytes << " bytes";
    counters_.Get("delay_compensation.most_bytes", "bytes")->Add(bytes);
  }
  checkpoints_ = std::make_unique<ServerCheckpoints>(options_.checkpoint_dir, options_.job_name, options_.server_id,
                                                     plan.servers(), params_.get());
  sync_ = options_.sync;
  if (plan.has_sync() && plan.sync() != sync_) {
    return absl::InvalidArgumentError(absl::StrCat("the program is ", plan.sync() ? "sync" : "async", ", the job is ",
                                                   sync_ ? "sync" : "async"));
  }
  if (!sync_ && params_->average_by_trainers()) {
    return absl::InvalidArgumentError("average BY_TRAINERS needs sync: in async no step has gradients of several trainers");
  }
  eager_ = !sync_ && plan.async_eager();
  if (eager_ && params_->norm_rounds() > 0) {
    return absl::InvalidArgumentError("async_apply EAGER applies parts on arrival; norms of whole parameters need all of a step");
  }
  exchanges_norms_ = params_->norm_rounds() > 0 && plan.servers() > 1;
  const TrainingMode mode = ModeOf(options_.main);
  async_tables_ = sync_ && mode.async_tables;
  trainer_count_ = plan.trainers();
  if (trainer_count_ < 1) return absl::InvalidArgumentError("the plan has no trainers");
  for (int t = 0; t < trainer_count_; ++t) nodes_.push_back(AlignedNodes(LanesOfTrainer(plan.lanes(), trainer_count_, t)));
  if (!options_.checkpoint_dir.empty()) {
    ASSIGN_OR_RETURN(probe_, WriteProbe(options_.checkpoint_dir));
  }
  MutexLock lock(&mu_);
  trainers_.resize(static_cast<size_t>(trainer_count_));
  if (!sync_ && mode.staleness >= 0) gate_ = std::make_unique<StalenessGate>(trainer_count_, mode.staleness);
  board_ = ExchangeBoard(trainer_count_);
  connecting_since_ = connect_warning_ = version_since_ = options_.clock->Now();
  return absl::OkStatus();
}

ServerCoreImpl::~ServerCoreImpl() {
  if (!probe_.name.empty()) RemoveProbe(options_.checkpoint_dir, probe_.name);
  Actions actions;
  {
    MutexLock lock(&mu_);
    if (failure_.ok()) failure_ = absl::UnavailableError(absl::StrCat(Self(), " is going away"));
    Fail(failure_, &actions);
  }
  RunAll(&actions);
}

void ServerCoreImpl::Handle(Method method, const Slices& request, ReplyCallback answer) {
  wire_.Request(method, TotalSize(request));
  // Copied: an answer may be given when this is gone.
  const ReplyCallback reply = [wire = wire_, method, answer = std::move(answer)](absl::StatusOr<Slices> bytes) {
    if (bytes.ok()) wire.Answer(method, TotalSize(*bytes));
    answer(std::move(bytes));
  };
  switch (method) {
    case Method::kJoin:
      return HandleJoin(request, reply);
    case Method::kHeartbeat:
      return HandleHeartbeat(request, reply);
    case Method::kPush:
      return HandlePush(request, reply);
    case Method::kPull:
      return HandlePull(request, reply);
    case Method::kExchange:
      return HandleExchange(request, reply);
    case Method::kControl:
      return HandleControl(request, reply);
    case Method::kNorms:
      return HandleNorms(request, reply);
  }
  reply(absl::UnimplementedError(absl::StrCat("method ", static_cast<int>(method))));
}

// ------------------------------------------------------------------------------------------------------- who is who

std::string ServerCoreImpl::Name(int trainer) const {
  const Trainer& t = trainers_[static_cast<size_t>(trainer)];
  return absl::StrCat("trainer ", trainer, t.process.empty() ? " (not joined)" : absl::StrCat(" (", t.process, ")"));
}

bool ServerCoreImpl::AllJoined() const {
  return std::none_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.state == Trainer::kAbsent; });
}

bool ServerCoreImpl::Excused(int trainer) const {
  const Trainer::State state = trainers_[static_cast<size_t>(trainer)].state;
  return !sync_ && (state == Trainer::kDead || state == Trainer::kDone);
}

absl::Status ServerCoreImpl::Aborted(int trainer) {
  if (trainer >= 0 && trainer < trainer_count_) trainers_[static_cast<size_t>(trainer)].told = true;
  return absl::AbortedError(absl::StrCat("the job has failed: ", failure_.message()));
}

absl::Status ServerCoreImpl::CheckJoin(const v1::JoinRequest& request, absl::Time now) {
  const int trainer = request.caller().trainer();
  const std::string who = absl::StrCat("trainer ", trainer, " (", request.process(), ")");
  if (request.caller().job_id() != options_.job_name) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), " runs job ", options_.job_name, ", ", who, " belongs to job ",
                                                      request.caller().job_id()));
  }
  if (request.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " speaks wire version ", kWireVersion, ", ", who, " ", request.wire_version()));
  }
  const std::string build(kBuild);
  if (request.build() != build) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " is build ", build, ", ", who, " is build ", request.build(), "; use one build for a job"));
  }
  if (request.server_index() != options_.server_id) {
    return absl::FailedPreconditionError(absl::StrCat("this is ", Self(), ", ", who, " expects server ",
                                                      request.server_index(),
                                                      " at this address; is the order of endpoints the same everywhere?"));
  }
  if (request.plan_fingerprint() != fingerprint_) {
    return absl::FailedPreconditionError(absl::StrCat("the job of ", who, " is not that of ", Self(), ": ",
                                                      FirstPlanDifference(options_.plan_text, request.plan_text())));
  }
  if (request.arithmetic() != options_.arithmetic && !options_.arithmetic.empty()) {
    const std::string text =
        absl::StrCat(Self(), " computes with ", options_.arithmetic, ", ", who, " with ", request.arithmetic(),
                     "; set train.arithmetic to what both have, or distribute.reproducible: false");
    if (sync_ && options_.reproducible) return absl::FailedPreconditionError(text);
    LOG(WARNING) << text;
  }
  if (trainer < 0 || trainer >= trainer_count_) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", trainer, " of ", request.process(), "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  const Trainer& holder = trainers_[static_cast<size_t>(trainer)];
  if (holder.process == request.process() && holder.incarnation == request.incarnation()) {
    if (holder.state == Trainer::kDead) {
      return absl::FailedPreconditionError(absl::StrCat(Name(trainer), " was declared dead and cannot go on"));
    }
    return absl::OkStatus();  // a repeat
  }
  if (holder.state == Trainer::kJoined) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer id ", trainer, " is held by ", holder.process, " and claimed by ", request.process(),
                     "; the lease of the first runs ", Seconds(holder.lease_until - now), " more"));
  }
  if (holder.state == Trainer::kDone) {
    return absl::FailedPreconditionError(
        absl::StrCat("trainer id ", trainer, " of ", holder.process, " has finished; ", request.process(), " comes too late"));
  }
  return absl::OkStatus();
}

void ServerCoreImpl::HandleJoin(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::JoinRequest> request = Parse<v1::JoinRequest>(bytes, "JoinRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  absl::StatusOr<v1::JoinReply> answer = [&]() -> absl::StatusOr<v1::JoinReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckJoin(*request, now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    Trainer& trainer = trainers_[static_cast<size_t>(id)];
    if (trainer.state == Trainer::kAbsent || trainer.state == Trainer::kDead) {
      const bool again = trainer.state == Trainer::kDead;
      // What has taken effect under this id, here or in the run that was resumed, has done so.
      const int64_t applied_step = trainer.applied_step;
      trainer = Trainer();
      trainer.applied_step = applied_step;
      trainer.state = Trainer::kJoined;
      if (gate_ != nullptr) gate_->Join(id);
      trainer.takes_over = again;
      trainer.process = request->process().substr(0, kMaxText);
      trainer.incarnation = request->incarnation();
      ++sessions_;
      trainer.session = StableHash(absl::StrCat(request->process(), "/", sessions_, "/", options_.process)) | 1;
      trainer.progress = trainer.last_warning = now;
      connecting_since_ = now;
      LOG(INFO) << Self() << ": " << Name(id) << (again ? " takes the place of a dead one" : " has joined");
    }
    trainer.lease_until = now + lease_;
    v1::JoinReply joined;
    joined.set_server_index(options_.server_id);
    joined.set_process(options_.process);
    joined.set_session(trainer.session);
    for (int t = 0; t < trainer_count_; ++t) {
      if (trainers_[static_cast<size_t>(t)].state != Trainer::kAbsent) joined.add_joined(t);
    }
    joined.set_checkpoint_probe(probe_.name);
    joined.set_checkpoint_token(probe_.token);
    joined.set_version(version_.version);
    if (exchanges_norms_) joined.set_norm_rounds(params_->norm_rounds());
    if (trainer.takes_over) joined.set_next_step(trainer.applied_step + 1);
    return joined;
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  reply(Serialize(*answer));
}

absl::Status ServerCoreImpl::CheckCaller(const v1::Caller& caller, absl::Time now) {
  if (caller.job_id() != options_.job_name) {
    return absl::FailedPreconditionError(
        absl::StrCat(Self(), " runs job ", options_.job_name, ", the caller belongs to job ", caller.job_id()));
  }
  const int id = caller.trainer();
  if (id < 0 || id >= trainer_count_) {
    return absl::InvalidArgumentError(absl::StrCat("trainer id ", id, "; the job has trainers 0 to ", trainer_count_ - 1));
  }
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (trainer.state == Trainer::kAbsent) {
    return absl::FailedPreconditionError(absl::StrCat("trainer ", id, " has not joined ", Self()));
  }
  if (trainer.session != caller.session()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the lease of trainer ", id, " has passed to ", trainer.process, "; this caller cannot go on"));
  }
  if (trainer.state == Trainer::kDead) {
    return absl::FailedPreconditionError(absl::StrCat(Name(id), " was declared dead after ", Seconds(lease_),
                                                      " without a sign of life; it cannot go on"));
  }
  trainer.lease_until = now + lease_;
  return absl::OkStatus();
}

void ServerCoreImpl::HandleHeartbeat(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::HeartbeatRequest> request = Parse<v1::HeartbeatRequest>(bytes, "HeartbeatRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  absl::StatusOr<v1::HeartbeatReply> answer = [&]() -> absl::StatusOr<v1::HeartbeatReply> {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    const absl::Status known = CheckCaller(request->caller(), now);
    // In a failed job every caller hears why, the one declared dead too.
    if (!known.ok() && failure_.ok()) return known;
    v1::HeartbeatReply answer;
    if (known.ok()) {
      const int id = request->caller().trainer();
      Trainer& trainer = trainers_[static_cast<size_t>(id)];
      if (request->step() > trainer.step) {
        trainer.step = request->step();
        trainer.progress = now;
      }
      trainer.waiting_for = request->waiting_for().substr(0, kMaxText);
      if (request->stop_requested()) stop_requested_ = true;
      if (!request->failure().empty()) {
        const int code = request->failure_code();
        const bool known_code = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
        Fail(absl::Status(known_code ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown,
                          request->failure().substr(0, kMaxText)),
             &actions);
      }
      if (request->done() && trainer.state == Trainer::kJoined) {
        trainer.state = Trainer::kDone;
        if (gate_ != nullptr) gate_->Leave(id);
        LOG(INFO) << Self() << ": " << Name(id) << " is done";
        AnswerExchanges(now, &actions);
      }
      if (!failure_.ok()) trainer.told = true;
    }
    answer.set_version(version_.version);
    answer.set_stop_requested(stop_requested_);
    if (!failure_.ok()) {
      answer.set_failure(std::string(failure_.message()));
      answer.set_failure_code(static_cast<int>(failure_.code()));
    }
    for (int t = 0; t < trainer_count_; ++t) {
      const Trainer& each = trainers_[static_cast<size_t>(t)];
      if (each.state == Trainer::kDead) answer.add_dead(t);
      if (each.state == Trainer::kDone) answer.add_done(t);
      if (each.slow) answer.add_slow(absl::StrCat(Name(t), " at step ", std::max(each.step, each.pending.step)));
    }
    return answer;
  }();
  RunAll(&actions);
  if (!answer.ok()) return reply(answer.status());
  reply(Serialize(*answer));
}

// ------------------------------------------------------------------------------------------------------------- pushes

absl::StatusOr<v1::PushReply> ServerCoreImpl::BookPart(const v1::PushRequest& request, std::vector<Gradient> gradients,
                                                       std::vector<Gradient>* eager, bool* eager_first, bool* wait,
                                                       Actions* actions) {
  const absl::Time now = options_.clock->Now();
  ExpireLeases(now, actions);
  RETURN_IF_ERROR(CheckCaller(request.caller(), now));
  const int id = request.caller().trainer();
  if (!failure_.ok()) return Aborted(id);
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  PendingStep& pending = trainer.pending;
  v1::PushReply reply;
  reply.set_version(version_.version);
  const auto duplicate = [&] {
    parts_repeated_->Add();
    reply.set_duplicate(true);
    return reply;
  };
  const std::string part_name = absl::StrCat(Name(id), ", step ", request.step(), ", part ", request.part());
  if (request.step() < 0 || request.part() < 0 || request.part() >= kMaxParts) {
    return absl::InvalidArgumentError(absl::StrCat(part_name, ": steps start at 0, parts run from 0 to ", kMaxParts - 1));
  }

  if (request.step() < (sync_ ? version_.version : trainer.applied_step + 1)) return duplicate();
  if (trainer.state == Trainer::kDone) return absl::FailedPreconditionError(absl::StrCat(part_name, ": it has said that it is done"));
  if (sync_) {
    if (request.step() > version_.version) {
      return absl::FailedPreconditionError(absl::StrCat(part_name, ": ", Self(), " is at step ", version_.version));
    }
    for (int t = 0; t < trainer_count_; ++t) {
      if (trainers_[static_cast<size_t>(t)].state != Trainer::kDone) continue;
      const absl::Status status = absl::FailedPreconditionError(
          absl::StrCat(Name(t), " has ended before step ", request.step(), ", which ", Name(id), " pushes"));
      Fail(status, actions);
      return status;
    }
  } else if (pending.step >= 0 && request.step() != pending.step) {
    return absl::FailedPreconditionError(absl::StrCat(part_name, ": step ", pending.step, " is not finished"));
  }

  const size_t part = static_cast<size_t>(request.part());
  if (pending.part_count >= 0 && request.part() >= pending.part_count) {
    return absl::InvalidArgumentError(absl::StrCat(part_name, ": the step has ", pending.part_count, " parts"));
  }
  if (part < pending.parts.size() && pending.parts[part]) {
    // The answer to a repeat of a step in the middle of taking effect means what the first answer will.
    *wait = AppliesBeforeAnswer(pending);
    if (options_.planted.count_repeats) AddAgain(gradients, &pending);
    return duplicate();
  }
  for (Gradient& gradient : gradients) gradient.arrival = arrivals_++;
  if (request.has_part_count()) {
    if (request.part_count() != request.part() + 1 || static_cast<size_t>(request.part_count()) < pending.parts.size()) {
      return absl::InvalidArgumentError(absl::StrCat(part_name, ": says it is the last of ", request.part_count(), " parts, after ",
                                                     pending.parts.size(), " were numbered"));
    }
    if (request.samples() < 0 || request.samples() > kMaxSamples) {
      return absl::InvalidArgumentError(absl::StrCat(part_name, ": ", request.samples(), " samples; at most ", kMaxSamples));
    }
    if (eager_ && request.verdict() == v1::SKIP) {
      return absl::InvalidArgumentError(absl::StrCat(part_name, ": verdict SKIP, but parts have taken effect (async_apply EAGER)"));
    }
    pending.part_count = request.part_count();
    pending.samples = request.samples();
    pending.verdict = request.verdict();
  }
  if (request.stop_requested()) stop_requested_ = true;
  pending.step = request.step();
  if (pending.parts.size() <= part) pending.parts.resize(part + 1, false);
  pending.parts[part] = true;
  ++pending.received;
  trainer.step = std::max(trainer.step, request.step());
  trainer.progress = now;
  trainer.slow = false;
  if (eager_ && request.samples() > 0 && !request.has_part_count() && control_ == nullptr && controls_.empty() &&
      !gradients.empty()) {
    *eager = std::move(gradients);
    *eager_first = !pending.begun;
    pending.begun = true;
    ++applies_;
  } else {
    std::move(gradients.begin(), gradients.end(), std::back_inserter(pending.gradients));
  }
  *wait = AppliesBeforeAnswer(pending);
  return reply;
}

void ServerCoreImpl::AddAgain(const std::vector<Gradient>& gradients, PendingStep* pending) {
  for (Gradient& booked : pending->gradients) {
    for (const Gradient& again : gradients) {
      if (booked.of_table != again.of_table || booked.target != again.target || !(booked.node == again.node) ||
          booked.begin != again.begin || booked.count != again.count) {
        continue;
      }
      const size_t n = static_cast<size_t>(booked.count) * static_cast<size_t>(std::max(1, booked.width));
      // What keeps the ids alive stays with the new values.
      auto doubled = std::make_shared<std::pair<std::vector<float>, std::shared_ptr<const void>>>();
      doubled->second = booked.keep;
      for (size_t i = 0; i < n; ++i) doubled->first.push_back(booked.values[i] + again.values[i]);
      booked.values = doubled->first.data();
      booked.keep = doubled;
    }
  }
}

void ServerCoreImpl::HandlePush(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  v1::PushRequest request;
  if (!request.ParseFromString(frame->header)) return reply(absl::InvalidArgumentError("Push: the header is no PushRequest"));
  const int id = request.caller().trainer();
  if (id < 0 || id >= trainer_count_) {
    return reply(absl::InvalidArgumentError(absl::StrCat("trainer id ", id, "; the job has trainers 0 to ", trainer_count_ - 1)));
  }
  if (request.checksum() != Checksum(frame->payload)) {
    return reply(absl::DataLossError(absl::StrCat("Push: trainer ", id, ", step ", request.step(), ", part ", request.part(),
                                                  ": the payload's checksum does not match")));
  }
  const Slice payload = Contiguous(frame->payload, &buffers_);
  std::vector<Gradient> gradients;
  const absl::Status parsed = ParseGradients(request, payload, nodes_[static_cast<size_t>(id)], *params_, &gradients);
  if (!parsed.ok()) return reply(parsed);

  Actions actions;
  std::vector<Gradient> eager;
  bool eager_first = false, wait = false;
  absl::StatusOr<v1::PushReply> answer;
  {
    MutexLock lock(&mu_);
    answer = BookPart(request, std::move(gradients), &eager, &eager_first, &wait, &actions);
    if (answer.ok() && wait) trainers_[static_cast<size_t>(id)].applied_waiters.push_back(reply);
  }
  RunAll(&actions);
  if (answer.ok() && !eager.empty()) {
    TrainerGradients own{.trainer = id, .samples = request.samples(), .gradients = std::move(eager)};
    const absl::Status applied =
        params_->Apply(request.step(), absl::MakeConstSpan(&own, 1),
                       eager_first ? ServerParams::StepPart::kFirst : ServerParams::StepPart::kLater);
    MutexLock lock(&mu_);
    --applies_;
    if (!applied.ok()) {
      answer = applied;
      FailApply(id, request.step(), applied, &actions);
    }
  }
  RunAll(&actions);
  if (!answer.ok()) {
    reply(answer.status());
  } else if (!wait) {
    reply(EncodeFrame(answer->SerializeAsString(), {}));
  }
  Advance();
}

bool ServerCoreImpl::AllComplete() const {
  // The analysis of locks does not know that the lambda runs under the one held here.
  const int64_t version = version_.version;
  return std::all_of(trainers_.begin(), trainers_.end(), [version](const Trainer& t) {
    return t.pending.step == version && t.pending.Complete();
  });
}

void ServerCoreImpl::Advance() {
  while (true) {
    std::shared_ptr<ControlCall> control;
    int async_trainer = -1;
    int tables_trainer = -1;
    {
      MutexLock lock(&mu_);
      if (!failure_.ok() || control_ != nullptr) return;
      if (!controls_.empty()) {
        if (applies_ > 0) return;  // whoever ends the last of them comes here again
        control = control_ = controls_.front();
        controls_.pop_front();
      } else if (sync_) {
        for (int t = 0; async_tables_ && t < trainer_count_ && tables_trainer < 0; ++t) {
          PendingStep& pending = trainers_[static_cast<size_t>(t)].pending;
          if (!pending.Complete() || pending.tables_taken) continue;
          pending.tables_taken = true;
          tables_trainer = t;
        }
        if (tables_trainer < 0 && (applies_ > 0 || !AllComplete() || NormStep(0).norms.Waiting())) return;
        ++applies_;
      } else {
        for (int t = 0; t < trainer_count_ && async_trainer < 0; ++t) {
          const Trainer& trainer = trainers_[static_cast<size_t>(t)];
          const bool ready = trainer.pending.Complete() && !trainer.pending.norms.Waiting();
          if (ready && !trainer.applying && trainer.state != Trainer::kDead) async_trainer = t;
        }
        if (async_trainer < 0) return;
        trainers_[static_cast<size_t>(async_trainer)].applying = true;
        ++applies_;
      }
    }
    if (control != nullptr) {
      RunControl(std::move(control));
    } else if (tables_trainer >= 0) {
      ApplyTables(tables_trainer);
    } else if (sync_) {
      ApplySync();
    } else {
      ApplyAsync(async_trainer);
    }
  }
}

void ServerCoreImpl::HoldForNorms(int id, uint64_t session, NormRounds norms, Actions* actions) {
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  // Another has its place.
  if (trainer.session != session) return;
  trainer.applying = false;
  trainer.progress = options_.clock->Now();
  if (trainer.state == Trainer::kDead) {
    // It brings nothing more.
    trainer.pending = PendingStep();
  } else {
    trainer.pending.norms = std::move(norms);
  }
  AnswerNorms(trainer.progress, actions);
}

absl::StatusOr<bool> ServerCoreImpl::MakeNorms(int64_t step, const std::vector<TrainerGradients>& gathered,
                                               NormRounds* norms) {
  while (!norms->Complete()) {
    // In sync nothing comes between two rounds of a step.
    ASSIGN_OR_RETURN(NormSums sums, params_->SumsOfRound(step, gathered, norms->round(), norms->norms(), /*keep=*/sync_));
    if (exchanges_norms_) {
      norms->Offer(std::move(sums));
      return false;
    }
    RETURN_IF_ERROR(norms->OfferAlone(sums));
  }
  return true;
}

void ServerCoreImpl::ApplySync() {
  std::shared_ptr<std::vector<TrainerGradients>> steps;
  NormRounds norms;
  VersionInfo next;
  ServerParams::StepPart part = ServerParams::StepPart::kWhole;
  {
    MutexLock lock(&mu_);
    PendingStep& first = trainers_[0].pending;
    if (first.gathered == nullptr) {
      first.norms = NormRounds(params_->norm_rounds());
      first.gathered = std::make_shared<std::vector<TrainerGradients>>();
      for (int t = 0; t < trainer_count_; ++t) {
        PendingStep& pending = trainers_[static_cast<size_t>(t)].pending;
        // Booking stays: parts that come again are still known.
        first.gathered->push_back({t, pending.samples, std::move(pending.gradients)});
      }
    }
    for (const Trainer& trainer : trainers_) {
      next.samples += trainer.pending.samples;
      next.skipped |= trainer.pending.verdict == v1::SKIP;
    }
    steps = first.gathered;
    norms = first.norms;
    next.version = version_.version + 1;
    if (begun_) part = ServerParams::StepPart::kLater;
    begun_ = false;
  }
  absl::Status status;
  if (next.samples > 0 && !next.skipped) {
    const absl::StatusOr<bool> complete = MakeNorms(next.version - 1, *steps, &norms);
    if (complete.ok() && !*complete) {
      Actions waiting;
      {
        MutexLock lock(&mu_);
        applies_ = 0;
        trainers_[0].pending.norms = std::move(norms);
        // From now on everyone waits for it.
        trainers_[0].progress = options_.clock->Now();
        AnswerNorms(trainers_[0].progress, &waiting);
      }
      return RunAll(&waiting);
    }
    status = complete.ok() ? params_->Apply(next.version - 1, *steps, part, norms.norms()) : complete.status();
  }
  steps = nullptr;

  Actions actions;
  std::vector<WaitingPull> ready;
  {
    MutexLock lock(&mu_);
    applies_ = 0;
    // The step without samples that ends a run is none.
    if (next.samples > 0) (next.skipped ? pushes_skipped_ : pushes_applied_)->Add(trainer_count_);
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(Self(), ": step ", next.version - 1, ": ", status.message())), &actions);
    } else {
      // From here on the answer of this version is fixed, also if someone asks for the end a moment later.
      next.stop = stop_requested_ && options_.server_id == 0;
      version_ = next;
      version_since_ = options_.clock->Now();
      for (Trainer& trainer : trainers_) {
        trainer.pending = PendingStep();
        trainer.slow = false;
      }
      TakeReadyPulls(&ready);
      AnswerNorms(version_since_, &actions);
    }
  }
  RunAll(&actions);
  ServeAll(std::move(ready), next);
}

void ServerCoreImpl::ApplyTables(int id) {
  TrainerGradients own{.trainer = id};
  int64_t step = 0;
  ServerParams::StepPart part = ServerParams::StepPart::kFirst;
  {
    MutexLock lock(&mu_);
    PendingStep& pending = trainers_[static_cast<size_t>(id)].pending;
    std::vector<Gradient>& all = pending.gradients;
    const auto of_tables = std::stable_partition(all.begin(), all.end(), [](const Gradient& g) { return !g.of_table; });
    own.samples = pending.verdict == v1::APPLY ? pending.samples : 0;
    own.gradients.assign(std::make_move_iterator(of_tables), std::make_move_iterator(all.end()));
    all.erase(of_tables, all.end());
    step = pending.step;
    if (own.samples > 0 && !own.gradients.empty()) {
      part = begun_ ? ServerParams::StepPart::kLater : ServerParams::StepPart::kFirst;
      begun_ = true;
    }
  }
  absl::Status status;
  if (own.samples > 0 && !own.gradients.empty()) status = params_->Apply(step, absl::MakeConstSpan(&own, 1), part);

  Actions actions;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    --applies_;
    if (!status.ok()) {
      Fail(absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", id, ", step ", step, ": ", status.message())), &actions);
    }
    // Dense blocks that somebody asked for meanwhile: of this version, which rows do not change.
    info = version_;
    TakeReadyPulls(&ready);
  }
  RunAll(&actions);
  ServeAll(std::move(ready), info);
}

void ServerCoreImpl::ApplyAsync(int id) {
  std::shared_ptr<std::vector<TrainerGradients>> own;
  NormRounds norms;
  int64_t step = 0;
  uint64_t session = 0;
  bool apply = false;
  ServerParams::StepPart part = ServerParams::StepPart::kWhole;
  {
    MutexLock lock(&mu_);
    session = trainers_[static_cast<size_t>(id)].session;
    PendingStep& pending = trainers_[static_cast<size_t>(id)].pending;
    if (pending.gathered == nullptr) {
      pending.norms = NormRounds(params_->norm_rounds());
      pending.gathered = std::make_shared<std::vector<TrainerGradients>>();
      pending.gathered->push_back({id, pending.samples, std::move(pending.gradients)});
    }
    own = pending.gathered;
    norms = pending.norms;
    step = pending.step;
    apply = pending.samples > 0 && pending.verdict == v1::APPLY;
    if (pending.begun) part = ServerParams::StepPart::kLater;
  }
  const int64_t samples = own->front().samples;
  Actions actions;
  absl::Status status;
  if (apply) {
    const absl::StatusOr<bool> complete = MakeNorms(step, *own, &norms);
    if (complete.ok() && !*complete) {
      {
        MutexLock lock(&mu_);
        --applies_;
        HoldForNorms(id, session, std::move(norms), &actions);
      }
      return RunAll(&actions);
    }
    status = complete.ok() ? params_->Apply(step, *own, part, norms.norms()) : complete.status();
  }
  own = nullptr;

  std::vector<ReplyCallback> waiters;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    --applies_;
    // A step that took effect in part cannot be taken back, and its trainer may not live to say so.
    if (!status.ok()) FailApply(id, step, status, &actions);
    Trainer& trainer = trainers_[static_cast<size_t>(id)];
    // Unless it died meanwhile and another has its place.
    if (trainer.session == session) {
      trainer.applying = false;
      waiters = std::move(trainer.applied_waiters);
      trainer.applied_waiters.clear();
      if (gate_ != nullptr && samples == 0) {
        // Its streams have ended, or it stops: nobody waits for it. The step is none that it has done.
        gate_->Leave(id);
      } else {
        trainer.applied_step = step;
        if (gate_ != nullptr) {
          // Samples after a push without: it was not the last.
          if (trainer.state == Trainer::kJoined) gate_->Join(id);
          gate_->Finished(id, step);
        }
      }
      trainer.pending = PendingStep();
    } else if (status.ok()) {
      // Whoever has its place must not do it again.
      trainer.applied_step = std::max(trainer.applied_step, step);
    }
    if (samples > 0) (apply ? pushes_applied_ : pushes_skipped_)->Add();
    ++version_.version;
    version_.samples = samples;
    version_.skipped = !apply && samples > 0;
    info = version_;
    TakeReadyPulls(&ready);
    AnswerNorms(options_.clock->Now(), &actions);
  }
  RunAll(&actions);
  for (const ReplyCallback& waiter : waiters) {
    if (status.ok()) {
      v1::PushReply reply;
      reply.set_version(info.version);
      waiter(EncodeFrame(reply.SerializeAsString(), {}));
    } else {
      waiter(absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", id, ", step ", step, ": ", status.message())));
    }
  }
  ServeAll(std::move(ready), info);
}

// -------------------------------------------------------------------------------------------------------------- pulls

bool ServerCoreImpl::PullReady(const v1::PullRequest& request) const {
  if (gate_ != nullptr) return gate_->MayBegin(request.caller().trainer(), request.version());
  const bool rows_only = std::all_of(request.items().begin(), request.items().end(),
                                     [](const v1::PullItem& item) { return item.width() > 0; });
  if (async_tables_ && rows_only && !request.items().empty()) return true;
  // In sync nobody reads while a step takes effect.
  return version_.version >= request.version() && !(sync_ && applies_ > 0);
}

void ServerCoreImpl::NoteBegun(const v1::PullRequest& request) {
  if (gate_ == nullptr) return;
  const int64_t before = gate_->most_ahead();
  gate_->Begin(request.caller().trainer(), request.version());
  counters_.Get("staleness.most_steps", "steps")->Add(gate_->most_ahead() - before);
}

void ServerCoreImpl::TakeReadyPulls(std::vector<WaitingPull>* ready) {
  for (auto pull = pulls_.begin(); pull != pulls_.end();) {
    if (PullReady(pull->request)) {
      trainers_[static_cast<size_t>(pull->trainer)].progress = options_.clock->Now();
      NoteBegun(pull->request);
      ready->push_back(std::move(*pull));
      pull = pulls_.erase(pull);
    } else {
      ++pull;
    }
  }
}

namespace {

// Ids of an item that asks for rows and lies in the payload.
absl::Span<const int64_t> RowIds(const v1::PullItem& item, const Slice& payload) {
  return absl::MakeConstSpan(reinterpret_cast<const int64_t*>(payload.data + item.offset()), static_cast<size_t>(item.count()));
}

}  // namespace

absl::Status ServerCoreImpl::CheckPull(const v1::PullRequest& request, const Slice& payload) {
  uint64_t total = 0;
  for (const v1::PullItem& item : request.items()) {
    const auto wrong = [&](const std::string& what) {
      return absl::InvalidArgumentError(absl::StrCat("pull of ", item.name().substr(0, 200), ": ", what));
    };
    if (item.count() < 0) return wrong(absl::StrCat("count is ", item.count()));
    if (item.width() < 0) return wrong(absl::StrCat("width is ", item.width()));
    uint64_t floats = static_cast<uint64_t>(item.count());
    if (item.width() > 0) {
      const int table = params_->FindTable(item.name());
      const int block = table >= 0 ? -1 : params_->FindBlock(item.name());
      if (table < 0 && block < 0) return wrong(absl::StrCat("server ", options_.server_id, " has no such table or block"));
      const int width = table >= 0 ? params_->table(table).width() : params_->block(block).sparse_width;
      if (width == 0) return wrong("the block is pulled whole; it has no rows to ask for");
      if (item.width() != width) return wrong(absl::StrCat("rows of ", item.width(), " floats; the table's have ", width));
      if (item.offset() < 0 || item.offset() % static_cast<int64_t>(kAlignment) != 0 ||
          static_cast<uint64_t>(item.offset()) > payload.size ||
          floats > (payload.size - static_cast<uint64_t>(item.offset())) / sizeof(int64_t)) {
        return wrong(absl::StrCat(item.count(), " ids at offset ", item.offset(), " of a payload of ", payload.size, " bytes"));
      }
      floats *= static_cast<uint64_t>(width);
      if (block >= 0) {
        const int64_t rows = params_->block(block).rows;
        for (const int64_t id : RowIds(item, payload)) {
          if (id < 0 || id >= rows) return wrong(absl::StrCat("row ", id, " of a block with ", rows, " rows"));
        }
      }
    } else {
      const int block = params_->FindBlock(item.name());
      if (block < 0) return wrong(absl::StrCat("server ", options_.server_id, " has no such block"));
      const int64_t count = params_->block(block).count;
      if (item.begin() < 0 || item.begin() > count || item.count() > count - item.begin()) {
        return wrong(absl::StrCat("elements [", item.begin(), ", ", item.begin(), " + ", item.count(), ") of a block of ", count));
      }
    }
    total += AlignUp(floats * sizeof(float));
    if (total > kMaxReplyPayload) {
      return wrong(absl::StrCat("the reply would have more than ", kMaxReplyPayload, " bytes; ask in several calls"));
    }
  }
  return absl::OkStatus();
}

void ServerCoreImpl::ServePull(const v1::PullRequest& request, const Slice& payload, const VersionInfo& info,
                               const ReplyCallback& reply) {
  size_t size = 0;
  for (const v1::PullItem& item : request.items()) {
    size += AlignUp(static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width())) * sizeof(float));
  }
  Slices values;
  if (size > 0) {
    const WireBuffer buffer = buffers_.Get(size);
    size_t at = 0;
    for (const v1::PullItem& item : request.items()) {
      float* const out = reinterpret_cast<float*>(buffer.data + at);
      const size_t bytes =
          static_cast<size_t>(item.count()) * static_cast<size_t>(std::max(1, item.width())) * sizeof(float);
      if (item.width() == 0) {
        params_->CopyBlock(params_->FindBlock(item.name()), item.begin(), item.count(), out, request.caller().trainer());
      } else if (const int table = params_->FindTable(item.name()); table < 0) {
        params_->CopyRows(params_->FindBlock(item.name()), RowIds(item, payload), out);
      } else {
        // Rows come into being when their first update takes effect; until then they read as their initial values. So what
        // exists at a version depends on no one's reading ahead.
        const absl::Status status =
            params_->table(table).Pull(RowIds(item, payload), /*create=*/false, out, options_.pool);
        if (!status.ok()) return reply(status);
      }
      std::fill(buffer.data + at + bytes, buffer.data + at + AlignUp(bytes), '\0');
      at += AlignUp(bytes);
    }
    values.push_back(buffer.Piece(0, size));
  }
  v1::PullReply header;
  header.set_ready(true);
  header.set_version(info.version);
  header.set_skipped(info.skipped);
  header.set_stop(info.stop);
  header.set_samples(info.samples);
  header.set_checksum(Checksum(values));
  reply(EncodeFrame(header.SerializeAsString(), values));
}

void ServerCoreImpl::ServeAll(std::vector<WaitingPull> pulls, const VersionInfo& info) {
  options_.pool->ParallelFor(static_cast<int64_t>(pulls.size()), [&](int64_t i) {
    const WaitingPull& pull = pulls[static_cast<size_t>(i)];
    ServePull(pull.request, pull.payload, info, pull.reply);
  });
}

void ServerCoreImpl::HandlePull(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<Frame> frame = DecodeFrame(bytes);
  if (!frame.ok()) return reply(frame.status());
  v1::PullRequest request;
  if (!request.ParseFromString(frame->header)) return reply(absl::InvalidArgumentError("Pull: the header is no PullRequest"));
  const Slice payload = Contiguous(frame->payload, &buffers_);
  const absl::Status valid = CheckPull(request, payload);
  if (!valid.ok()) return reply(valid);

  Actions actions;
  VersionInfo info;
  bool ready = false;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request.caller(), now));
    const int id = request.caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    info = version_;
    ready = PullReady(request);
    if (ready) {
      NoteBegun(request);
      trainers_[static_cast<size_t>(id)].progress = now;
      return absl::OkStatus();
    }
    const absl::Duration wait = std::min(kMaxWait, OfSeconds(request.wait_s()));
    if (wait > absl::ZeroDuration()) {
      pulls_.push_back({id, std::move(request), payload, now + wait, reply});
      return absl::OkStatus();
    }
    v1::PullReply header;
    header.set_ready(false);
    header.set_version(version_.version);
    header.set_waiting_for(WaitingFor(request));
    header.set_checksum(Checksum({}));
    actions.push_back([reply, text = header.SerializeAsString()] { reply(EncodeFrame(text, {})); });
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  if (ready) ServePull(request, payload, info, reply);
}

// ----------------------------------------------------------------------------------------------------------- exchange

bool ServerCoreImpl::TryAnswerExchange(const WaitingExchange& call, bool final, Actions* actions) {
  const std::vector<int> missing = board_.Missing(call.request.key(), [this](int t) {
    mu_.AssertHeld();
    return Excused(t);
  });
  if (!missing.empty() && !final) return false;
  v1::ExchangeReply reply;
  reply.set_ready(missing.empty());
  for (int t : missing) reply.add_missing(t);
  absl::Status status;
  if (missing.empty()) {
    trainers_[static_cast<size_t>(call.trainer)].progress = options_.clock->Now();
    if (call.request.read_trainer() >= 0) status = board_.Read(call.request, call.trainer, &reply);
  }
  actions->push_back([callback = call.reply, status, reply = std::move(reply)] {
    if (status.ok()) {
      callback(Serialize(reply));
    } else {
      callback(status);
    }
  });
  return true;
}

void ServerCoreImpl::AnswerExchanges(absl::Time now, Actions* actions) {
  for (auto call = exchanges_.begin(); call != exchanges_.end();) {
    if (TryAnswerExchange(*call, now >= call->deadline, actions)) {
      call = exchanges_.erase(call);
    } else {
      ++call;
    }
  }
}

void ServerCoreImpl::HandleExchange(const Slices& bytes, const ReplyCallback& reply) {
  absl::StatusOr<v1::ExchangeRequest> request = Parse<v1::ExchangeRequest>(bytes, "ExchangeRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request->caller(), now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    if (options_.server_id != 0) {
      return absl::InvalidArgumentError(absl::StrCat("Exchange goes to server 0; this is ", Self()));
    }
    if (request->key().empty()) return absl::InvalidArgumentError("Exchange: the key is empty");
    if (request->has_contribution()) {
      RETURN_IF_ERROR(board_.Put(*request, id));
      request->clear_contribution();
      AnswerExchanges(now, &actions);
    }
    // Whoever asks for the others is not waited for; its own deadline ends that.
    trainers_[static_cast<size_t>(id)].progress = now;
    WaitingExchange call{id, *std::move(request), now, reply};
    call.deadline = now + std::min(kMaxWait, OfSeconds(call.request.wait_s()));
    if (!TryAnswerExchange(call, now >= call.deadline, &actions)) exchanges_.push_back(std::move(call));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
}

// -------------------------------------------------------------------------------------------------------------- norms

absl::Status ServerCoreImpl::BookNorms(const v1::NormsRequest& request) {
  const int id = request.caller().trainer();
  if (!exchanges_norms_) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), ": its steps need no norms from others"));
  }
  if (sync_ && id != 0) {
    return absl::FailedPreconditionError(absl::StrCat(Self(), ": in sync trainer 0 brings the norms; this is ", Name(id)));
  }
  const std::string what = absl::StrCat(Name(id), ", norms of step ", request.step(), ", round ", request.round());
  if (request.round() < 0 || request.round() > params_->norm_rounds()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": rounds run from 0 to ", params_->norm_rounds()));
  }
  Trainer& trainer = trainers_[static_cast<size_t>(id)];
  if (request.step() <= (sync_ ? version_.version - 1 : trainer.applied_step)) return absl::OkStatus();
  if (request.step() != trainer.pending.step || !trainer.pending.Complete()) {
    return absl::FailedPreconditionError(absl::StrCat(what, ": the pushes of that step are not complete"));
  }
  if (request.round() == 0) return absl::OkStatus();
  const bool waiting = trainer.pending.norms.Waiting();
  const absl::Status booked = trainer.pending.norms.Book(request.round() - 1, request.norms());
  if (!booked.ok()) return absl::Status(booked.code(), absl::StrCat(what, ": ", booked.message()));
  if (waiting && !trainer.pending.norms.Waiting()) trainer.progress = options_.clock->Now();
  return absl::OkStatus();
}

bool ServerCoreImpl::TryAnswerNorms(const WaitingNorms& call, bool final, Actions* actions) {
  const Trainer& trainer = trainers_[static_cast<size_t>(call.trainer)];
  const NormRounds& norms = NormStep(call.trainer).norms;
  v1::NormsReply reply;
  reply.set_ready(true);
  if (call.step <= (sync_ ? version_.version - 1 : trainer.applied_step)) {
    reply.set_over(true);
  } else if (sync_ && call.round == params_->norm_rounds()) {
    // Everything is here; who waits for the new version pulls it.
  } else if (norms.Waiting() && norms.round() == call.round) {
    norms.Fill(&reply);
  } else if (final) {
    reply.set_ready(false);
    reply.set_waiting_for(WaitingFor(v1::PullRequest()));
  } else {
    return false;
  }
  actions->push_back([callback = call.reply, reply = std::move(reply)] { callback(Serialize(reply)); });
  return true;
}

void ServerCoreImpl::AnswerNorms(absl::Time now, Actions* actions) {
  for (auto call = norm_calls_.begin(); call != norm_calls_.end();) {
    if (TryAnswerNorms(*call, now >= call->deadline, actions)) {
      call = norm_calls_.erase(call);
    } else {
      ++call;
    }
  }
}

void ServerCoreImpl::HandleNorms(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::NormsRequest> request = Parse<v1::NormsRequest>(bytes, "NormsRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request->caller(), now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    RETURN_IF_ERROR(BookNorms(*request));
    WaitingNorms call{id, request->step(), request->round(), now + std::min(kMaxWait, OfSeconds(request->wait_s())), reply};
    if (!TryAnswerNorms(call, now >= call.deadline, &actions)) norm_calls_.push_back(std::move(call));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) reply(status);
  Advance();
}

// ------------------------------------------------------------------------------------------------------------ control

void ServerCoreImpl::HandleControl(const Slices& bytes, const ReplyCallback& reply) {
  const absl::StatusOr<v1::ControlRequest> request = Parse<v1::ControlRequest>(bytes, "ControlRequest");
  if (!request.ok()) return reply(request.status());
  Actions actions;
  const absl::Status status = [&]() -> absl::Status {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    ExpireLeases(now, &actions);
    RETURN_IF_ERROR(CheckCaller(request->caller(), now));
    const int id = request->caller().trainer();
    if (!failure_.ok()) return Aborted(id);
    if (request->action_case() == v1::ControlRequest::ACTION_NOT_SET) {
      return absl::InvalidArgumentError("Control: no action");
    }
    trainers_[static_cast<size_t>(id)].progress = now;
    // A save may take longer than a caller waits for one answer; its repeat joins the first instead of starting anew.
    const auto same = [&](const std::shared_ptr<ControlCall>& call) {
      return call != nullptr && request->has_request_id() && call->request.request_id() == request->request_id() &&
             call->trainer == id && call->session == request->caller().session();
    };
    if (same(last_control_)) {
      actions.push_back([reply, result = last_control_reply_] {
        if (result.ok()) {
          reply(Serialize(*result));
        } else {
          reply(result.status());
        }
      });
      return absl::OkStatus();
    }
    for (const std::shared_ptr<ControlCall>& waiting : controls_) {
      if (same(waiting)) {
        waiting->replies.push_back(reply);
        return absl::OkStatus();
      }
    }
    if (same(control_)) {
      control_->replies.push_back(reply);
      return absl::OkStatus();
    }
    controls_.push_back(std::make_shared<ControlCall>(ControlCall{id, request->caller().session(), *request, {reply}}));
    return absl::OkStatus();
  }();
  RunAll(&actions);
  if (!status.ok()) return reply(status);
  Advance();
}

void ServerCoreImpl::RunControl(std::shared_ptr<ControlCall> call) {
  const absl::StatusOr<v1::ControlReply> result = ForGood(DoControl(call->request));
  std::vector<ReplyCallback> replies;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    control_ = nullptr;
    last_control_ = call;
    last_control_reply_ = result;
    replies = std::move(call->replies);
    info = version_;
    // Meanwhile everyone waited for this server.
    version_since_ = options_.clock->Now();
    for (Trainer& trainer : trainers_) trainer.progress = version_since_;
    TakeReadyPulls(&ready);  // a load has set the version
  }
  for (const ReplyCallback& reply : replies) {
    if (result.ok()) {
      reply(Serialize(*result));
    } else {
      reply(result.status());
    }
  }
  ServeAll(std::move(ready), info);
}

absl::StatusOr<v1::ControlReply> ServerCoreImpl::DoControl(const v1::ControlRequest& request) {
  int64_t version = 0;
  std::vector<int64_t> trainer_steps;
  {
    MutexLock lock(&mu_);
    version = version_.version;
    for (const Trainer& trainer : trainers_) trainer_steps.push_back(sync_ ? version : trainer.applied_step + 1);
  }
  const auto check_step = [&](bool given, int64_t step) -> absl::Status {
    if (!sync_ || !given || step == version) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(Self(), " is at step ", version, ", asked for step ", step));
  };
  v1::ControlReply reply;
  if (request.has_digest()) {
    RETURN_IF_ERROR(check_step(request.digest().has_step(), request.digest().step()));
    params_->Digest(&reply);
    return reply;
  }
  switch (request.action_case()) {
    case v1::ControlRequest::kSave:
      RETURN_IF_ERROR(check_step(request.save().has_step(), request.save().step()));
      RETURN_IF_ERROR(checkpoints_->Save(request.save(), &reply));
      for (int64_t step : trainer_steps) reply.add_trainer_steps(step);
      return reply;
    case v1::ControlRequest::kPublish:
      RETURN_IF_ERROR(checkpoints_->Publish(request.publish()));
      return reply;
    case v1::ControlRequest::kFind:
      RETURN_IF_ERROR(checkpoints_->Find(&reply));
      return reply;
    case v1::ControlRequest::kSetAside:
      RETURN_IF_ERROR(checkpoints_->SetAside());
      return reply;
    default:
      RETURN_IF_ERROR(DoLoad(request.load()));
      return reply;
  }
}

absl::Status ServerCoreImpl::DoLoad(const v1::LoadCheckpoint& load) {
  {
    MutexLock lock(&mu_);
    for (int t = 0; t < trainer_count_; ++t) {
      if (trainers_[static_cast<size_t>(t)].pending.step < 0) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(Self(), ": ", Name(t), " has already pushed; a checkpoint is loaded before the first step"));
    }
  }
  ASSIGN_OR_RETURN(const ServerCheckpoints::Loaded loaded, checkpoints_->Load(load));
  MutexLock lock(&mu_);
  version_ = VersionInfo{.version = loaded.step};
  version_since_ = options_.clock->Now();
  // Another number of trainers goes on from where all of them had come at least (trainer/train_loop.cc reads on there).
  const std::vector<int64_t>& steps = loaded.trainer_steps;
  const bool same = steps.size() == static_cast<size_t>(trainer_count_);
  const int64_t least = steps.empty() ? 0 : *std::min_element(steps.begin(), steps.end());
  for (int t = 0; t < trainer_count_; ++t) {
    int64_t& applied_step = trainers_[static_cast<size_t>(t)].applied_step;
    applied_step = (same ? steps[static_cast<size_t>(t)] : least) - 1;
    if (gate_ != nullptr) gate_->Finished(t, applied_step);
  }
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------- failures and the passing of time

void ServerCoreImpl::Fail(const absl::Status& status, Actions* actions) {
  if (failure_.ok()) {
    failure_ = status;
    failed_at_ = options_.clock->Now();
    LOG(ERROR) << Self() << ": the job has failed: " << status.message();
  }
  const auto abort = [&](int trainer, const ReplyCallback& reply) {
    mu_.AssertHeld();
    actions->push_back([reply, status = Aborted(trainer)] { reply(status); });
  };
  for (const WaitingPull& pull : pulls_) abort(pull.trainer, pull.reply);
  pulls_.clear();
  for (const WaitingExchange& call : exchanges_) abort(call.trainer, call.reply);
  exchanges_.clear();
  for (const WaitingNorms& call : norm_calls_) abort(call.trainer, call.reply);
  norm_calls_.clear();
  for (const auto& call : controls_) {
    for (const ReplyCallback& reply : call->replies) abort(call->trainer, reply);
  }
  controls_.clear();
  for (int t = 0; t < static_cast<int>(trainers_.size()); ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (trainer.applying) continue;  // answered when its step has taken effect
    for (const ReplyCallback& reply : trainer.applied_waiters) abort(t, reply);
    trainer.applied_waiters.clear();
  }
}

void ServerCoreImpl::FailApply(int trainer, int64_t step, const absl::Status& status, Actions* actions) {
  Fail(absl::Status(status.code(), absl::StrCat(Self(), ": trainer ", trainer, ", step ", step, ": ", status.message())), actions);
}

void ServerCoreImpl::ExpireLeases(absl::Time now, Actions* actions) {
  // This process itself was asleep: signs of life may lie unread.
  const bool overslept = options_.clock == Clock::Real() && now - last_look_ > lease_ / 2;
  last_look_ = now;
  if (overslept) {
    for (Trainer& trainer : trainers_) trainer.lease_until = std::max(trainer.lease_until, now + lease_ / 2);
  }
  for (int t = 0; t < trainer_count_; ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (trainer.state != Trainer::kJoined || now <= trainer.lease_until) continue;
    const int64_t step = std::max(trainer.step, trainer.pending.step);
    const std::string text = absl::StrCat(Name(t), " is dead: no sign of life for ", Seconds(now - trainer.lease_until + lease_),
                                          step < 0 ? ", before its first step" : absl::StrCat(", at step ", step));
    // Its unfinished step is dropped. One that is taking effect goes through.
    if (!trainer.applying) trainer.pending = PendingStep();
    if (sync_ && !AllJoined()) {
      // Nothing has begun: the place is free again.
      LOG(WARNING) << Self() << ": " << text << "; its id is free";
      trainer = Trainer();
      connecting_since_ = now;
      continue;
    }
    trainer.state = Trainer::kDead;
    if (gate_ != nullptr) gate_->Leave(t);
    if (sync_) {
      Fail(absl::UnavailableError(text), actions);
    } else {
      LOG(WARNING) << Self() << ": " << text << "; its unfinished step is dropped, the others go on";
      for (const ReplyCallback& reply : trainer.applied_waiters) {
        if (trainer.applying) break;
        actions->push_back([reply, text] { reply(absl::FailedPreconditionError(text)); });
      }
      if (!trainer.applying) trainer.applied_waiters.clear();
      for (auto call = norm_calls_.begin(); call != norm_calls_.end();) {
        if (call->trainer == t) actions->push_back([reply = call->reply, text] { reply(absl::FailedPreconditionError(text)); });
        call = call->trainer == t ? norm_calls_.erase(call) : std::next(call);
      }
      AnswerExchanges(now, actions);
      if (std::all_of(trainers_.begin(), trainers_.end(), [](const Trainer& t) { return t.state == Trainer::kDead; })) {
        Fail(absl::UnavailableError(absl::StrCat("every trainer is dead; the last: ", text)), actions);
      }
    }
  }
}

std::string ServerCoreImpl::WaitingFor(const v1::PullRequest& request) const {
  std::vector<std::string> names;
  if (sync_ && NormStep(0).norms.Waiting()) {
    return absl::StrCat(Name(0), ", which brings the norms of step ", version_.version);
  }
  std::vector<int> held_by;
  if (gate_ != nullptr) held_by = gate_->HeldBy(request.caller().trainer(), request.version());
  for (int t = 0; t < trainer_count_ && names.size() < 5; ++t) {
    const Trainer& trainer = trainers_[static_cast<size_t>(t)];
    if (gate_ != nullptr) {
      if (std::find(held_by.begin(), held_by.end(), t) == held_by.end()) continue;
      names.push_back(absl::StrCat(Name(t), trainer.applied_step < 0
                                                ? ", which has finished no step"
                                                : absl::StrCat(", which has finished step ", trainer.applied_step)));
      continue;
    }
    if (sync_ && trainer.pending.Complete()) continue;
    if (!sync_ && trainer.state != Trainer::kAbsent) continue;
    std::string name = Name(t);
    if (trainer.state != Trainer::kAbsent) {
      absl::StrAppend(&name, " at step ", std::max<int64_t>(0, std::max(trainer.step, trainer.pending.step)));
      if (!trainer.waiting_for.empty()) absl::StrAppend(&name, ", which waits for ", trainer.waiting_for.substr(0, 200));
    }
    names.push_back(std::move(name));
  }
  return absl::StrJoin(names, "; ");
}

void ServerCoreImpl::WatchConnecting(absl::Time now, Actions* actions) {
  std::vector<int> missing;
  for (int t = 0; t < trainer_count_; ++t) {
    if (trainers_[static_cast<size_t>(t)].state == Trainer::kAbsent) missing.push_back(t);
  }
  if (missing.empty()) return;
  const std::string who = absl::StrCat(missing.size() == 1 ? "trainer " : "trainers ", absl::StrJoin(missing, ", "));
  const absl::Duration waited = now - connecting_since_;
  if (waited > connect_deadline_) {
    return Fail(absl::DeadlineExceededError(absl::StrCat(who, missing.size() == 1 ? " has" : " have", " not joined ", Self(),
                                                         " within ", Seconds(connect_deadline_))),
                actions);
  }
  if (now - connect_warning_ >= slow_warning_) {
    connect_warning_ = now;
    LOG(WARNING) << Self() << ": waits for " << who << " to join, " << Seconds(waited) << " since the last sign of anyone";
  }
}

void ServerCoreImpl::WatchProgress(absl::Time now, Actions* actions) {
  // While a checkpoint is written or read everyone waits for this server.
  if (!AllJoined() || control_ != nullptr || !controls_.empty()) return;
  for (int t = 0; t < trainer_count_; ++t) {
    Trainer& trainer = trainers_[static_cast<size_t>(t)];
    // Who has given its part of the step waits for others and is not waited for.
    const bool waits = trainer.pending.Complete() && !trainer.pending.norms.Waiting();
    if (trainer.state != Trainer::kJoined || waits) continue;
    // Nor is who may not begin its step: it is the others that are slow.
    if (gate_ != nullptr && std::any_of(pulls_.begin(), pulls_.end(), [t](const WaitingPull& pull) { return pull.trainer == t; })) {
      continue;
    }
    const absl::Duration idle = now - std::max(trainer.progress, sync_ ? version_since_ : trainer.progress);
    if (idle < slow_warning_) continue;
    const std::string text =
        absl::StrCat(Name(t), " is slow: at step ", std::max<int64_t>(0, std::max(trainer.step, trainer.pending.step)),
                     ", nothing new from it for ", Seconds(idle),
                     trainer.waiting_for.empty() ? "" : absl::StrCat("; it waits for ", trainer.waiting_for.substr(0, 200)));
    trainer.slow = true;
    // One that waits for somebody else is not the culprit; if all wait for each other it still ends.
    const absl::Duration limit = trainer.waiting_for.empty() ? progress_deadline_ : 2 * progress_deadline_;
    if (idle > limit) return Fail(absl::DeadlineExceededError(text), actions);
    if (now - trainer.last_warning >= slow_warning_) {
      trainer.last_warning = now;
      LOG(WARNING) << Self() << ": " << text;
    }
  }
}

void ServerCoreImpl::Tick() {
  Actions actions;
  std::vector<WaitingPull> ready;
  VersionInfo info;
  {
    MutexLock lock(&mu_);
    const absl::Time now = options_.clock->Now();
    if (failure_.ok()) ExpireLeases(now, &actions);
    if (failure_.ok()) WatchConnecting(now, &actions);
    if (failure_.ok()) WatchProgress(now, &actions);
    info = version_;
    // Somebody who was waited for may have died, or be done.
    if (gate_ != nullptr) TakeReadyPulls(&ready);
    for (auto pull = pulls_.begin(); pull != pulls_.end();) {
      if (now < pull->deadline) {
        ++pull;
        continue;
      }
      v1::PullReply header;
      header.set_ready(false);
      header.set_version(version_.version);
      header.set_waiting_for(WaitingFor(pull->request));
      header.set_checksum(Checksum({}));
      actions.push_back([reply = pull->reply, text = header.SerializeAsString()] { reply(EncodeFrame(text, {})); });
      pull = pulls_.erase(pull);
    }
    AnswerExchanges(now, &actions);
    AnswerNorms(now, &actions);
    board_.Expire(now, 2 * lease_ + 2 * OfSeconds(options_.deadlines.rpc_s()), [this](int t) {
      mu_.AssertHeld();
      return Excused(t);
    });
  }
  RunAll(&actions);
  ServeAll(std::move(ready), info);
  Advance();
}

void ServerCoreImpl::RequestStop() {
  MutexLock lock(&mu_);
  stop_requested_ = true;
}

bool ServerCoreImpl::Finished() {
  MutexLock lock(&mu_);
  // Asked to stop, it waits for nobody who has not come yet.
  const bool stopping = stop_requested_;
  const auto gone = [stopping](const Trainer& t) {
    return t.state == Trainer::kDone || t.state == Trainer::kDead || (stopping && t.state == Trainer::kAbsent);
  };
  if (failure_.ok()) return std::all_of(trainers_.begin(), trainers_.end(), gone);
  const bool all_told =
      std::all_of(trainers_.begin(), trainers_.end(), [&](const Trainer& t) { return t.told || gone(t); });
  return all_told || options_.clock->Now() - failed_at_ > 2 * lease_;
}

absl::Status ServerCoreImpl::JobStatus() {
  MutexLock lock(&mu_);
  return failure_;
}

int64_t ServerCoreImpl::Version() {
  MutexLock lock(&mu_);
  return version_.version;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServerCore>> ServerCore::Create(ServerOptions options) {
  auto core = std::make_unique<ServerCoreImpl>(std::move(options));
  RETURN_IF_ERROR(core->Init());
  return std::unique_ptr<ServerCore>(std::move(core));
}

}  // namespace weir
