#include "pserver/client.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/mutex.h"
#include "framework/base/stable_hash.h"
#include "framework/base/status_macros.h"
#include "framework/checkpoint/directory.h"
#include "framework/runtime/lane_tree.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "glog/logging.h"
#include "pserver/handshake.h"
#include "pserver/id_order.h"
#include "pserver/lane_sums.h"
#include "pserver/merge_gradients.h"
#include "pserver/norm_rounds.h"
#include "pserver/push_builder.h"
#include "pserver/wire_counters.h"

namespace weir {

namespace {

constexpr size_t kExchangeChunk = size_t{32} << 20;
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kLongestBackoff = absl::Seconds(1);
// How often a wait looks at a clock that may be a fake one.
constexpr absl::Duration kLook = absl::Milliseconds(2);
constexpr absl::Duration kRealLook = absl::Milliseconds(50);

absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }
std::string SecondsText(absl::Duration d) { return absl::StrCat(absl::ToInt64Milliseconds(d) / 100 / 10.0, " s"); }

bool Retryable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

// Reads a payload that lies in pieces from its beginning to its end.
class PayloadReader {
 public:
  explicit PayloadReader(const Slices& slices) : slices_(slices), left_(TotalSize(slices)) {}
  size_t left() const { return left_; }
  // The caller has compared with left() before.
  void Read(void* out, size_t size) {
    char* to = static_cast<char*>(out);
    left_ -= size;
    while (size > 0) {
      const Slice& slice = slices_[index_];
      const size_t here = std::min(size, slice.size - at_);
      if (to != nullptr) {
        std::memcpy(to, slice.data + at_, here);
        to += here;
      }
      size -= here;
      at_ += here;
      if (at_ == slice.size) {
        ++index_;
        at_ = 0;
      }
    }
  }
  void Skip(size_t size) { Read(nullptr, size); }

 private:
  const Slices& slices_;
  size_t index_ = 0;
  size_t at_ = 0;
  size_t left_;
};

// One request until it has its answer, through any number of tries.
struct Call {
  int server = 0;
  Method method = Method::kPush;
  Slices request;
  // Looks at an answer: true ends the call, false asks again at once (the other side was not ready). DataLoss asks once more.
  std::function<absl::StatusOr<bool>(const Slices&)> accept;
  // Of the thread that waits:
  bool finished = false;
  bool reread = false;
  absl::Status trouble;  // why the last try was repeated
  absl::Duration backoff = kFirstBackoff;
  absl::Time next_try = absl::InfinitePast();
  // Guarded by Shared::mu: an answer that nobody has looked at, and whether a try is under way.
  bool in_flight = false;
  bool answered = false;
  absl::StatusOr<Slices> answer = absl::UnknownError("");
};
using CallPtr = std::shared_ptr<Call>;

// What callbacks of the transport touch: they may come when the client is gone.
struct Shared {
  explicit Shared(int trainer) : wire("trainer", trainer) {}

  const WireCounters wire;
  Mutex mu;
  CondVar changed;
  absl::Status failure ABSL_GUARDED_BY(mu);
  bool relay ABSL_GUARDED_BY(mu) = false;  // somebody has yet to be told of the failure
  bool stop_requested ABSL_GUARDED_BY(mu) = false;
  std::vector<absl::Time> last_heard ABSL_GUARDED_BY(mu);
  std::vector<uint64_t> sessions ABSL_GUARDED_BY(mu);  // 0: not joined
  std::vector<std::string> processes ABSL_GUARDED_BY(mu);
  std::vector<int> norm_rounds ABSL_GUARDED_BY(mu);
  int64_t step ABSL_GUARDED_BY(mu) = -1;
  std::string waiting_for ABSL_GUARDED_BY(mu);
  std::string held_by ABSL_GUARDED_BY(mu);  // what a server last said it waits for, in this wait
  bool done ABSL_GUARDED_BY(mu) = false;
  bool closing ABSL_GUARDED_BY(mu) = false;
  // Newest version that any server has told of.
  int64_t version ABSL_GUARDED_BY(mu) = 0;
  // Next step of the dead trainer whose place this one takes.
  std::optional<int64_t> takes_over ABSL_GUARDED_BY(mu);
  std::set<int> dead ABSL_GUARDED_BY(mu);  // trainers, as server 0 says

  // Counters, read at any time.
  std::atomic<int64_t> bytes_sent{0}, bytes_received{0}, messages{0}, rows_pulled{0}, rows_pushed{0}, retries{0};

  void SetFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!failure.ok()) return;
    failure = status;
    relay = true;
    changed.SignalAll();
  }
};

class ClientImpl : public Client {
 public:
  explicit ClientImpl(ClientOptions options);
  ~ClientImpl() override;

  absl::Status Join() override;
  void Heartbeat() override;
  void SetFirstStep(int64_t step) override { version_wanted_ = first_step_ = step; }
  std::optional<int64_t> TakesOver() override;
  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution, bool kept) override;
  absl::Status Contribute(std::string_view key, std::string contribution, int reader) override;
  absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) override;
  absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request) override;
  void RequestStop() override;
  bool StopRequested() override;
  void ReportFailure(const absl::Status& status) override;
  absl::Status Done() override;
  absl::Status JobStatus() override;
  Counters counters() const override;

  absl::Status BeginStep(int64_t step, bool read_only) override;
  void SetStepSamples(int64_t samples) override { step_samples_ = samples; }
  absl::Status PullRows(absl::Span<const TableRows> tables) override;
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  // Ids of a table in this step, as PullRows had them.
  struct StepIds {
    const std::vector<int64_t>* ids = nullptr;
    IdOrder order;
    int64_t step = -1;
  };
  // A dense parameter whose rows are fetched: where they are, and in what order the step's ids go there.
  struct FetchedParameter {
    struct Block {
      std::string name;
      int server;
      int64_t begin, end;  // rows
    };
    int64_t rows = 0;
    std::vector<Block> blocks;      // ascending
    std::vector<uint32_t> order;    // positions of the ids of the last PullRows that it has, ascending by row
  };

  std::string Self() const { return absl::StrCat("trainer ", options_.trainer_id, " (", options_.process, ")"); }
  int servers() const { return options_.transport->servers(); }
  v1::Caller CallerFor(int server);
  // Puts the ids that the parameter has into its order; the rows of others become zero.
  static void OrderRows(const TableRows& table, FetchedParameter* parameter);
  // Starts a try. Without locks.
  void Issue(const CallPtr& call);
  CallPtr NewCall(int server, Method method, Slices request, std::function<absl::StatusOr<bool>(const Slices&)> accept);
  // Until all calls have their answers. `what` says for what, in messages; `deadline` ends it.
  // while_others_work: it begins anew whenever a server's version has moved (async: someone else is not ready, but at work).
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                    bool while_others_work = false);
  // One look at a call; sets `issue` when it is to be tried (again). Accepts answers outside the lock.
  absl::Status Look(const CallPtr& call, bool* issue);
  absl::Status FailureOfJob(const absl::Status& aborted);
  void SendHeartbeat(int server);
  void HeartbeatLoop();
  absl::Status JoinServers();
  absl::Status CheckProbe(int server, const v1::JoinReply& reply);
  // `kept`: ExchangeRequest.keep. `reader`: ExchangeRequest.reader.
  absl::Status Upload(std::string_view key, const std::string& contribution, bool kept, int reader);
  absl::Status ReadAll(std::string_view key, std::vector<std::string>* all);
  absl::Status PushRowsOfNode(const std::string& name, int server, int width, const LaneRange& node,
                              absl::Span<const LaneRows> lanes, const RowUnion& rows, const IdOrder& order,
                              absl::Span<const int64_t> ids, size_t begin, size_t end);
  // Behind the pushes of a step: collects what servers have of norms over whole parameters, and brings them the norms. Returns
  // when every server has them (in async: has applied the step).
  absl::Status ExchangeNorms();
  // Asks for the sums of a round, and brings the norms of what `reply` offered in the round before.
  CallPtr NewNormsCall(int server, int round, const Norms& norms, v1::NormsReply* reply);
  // Reads header and checks the payload of a pull's answer. False: not ready.
  absl::StatusOr<bool> OpenPull(int server, const Slices& answer, v1::PullReply* header, Slices* payload);
  CallPtr NewPull(int server, const v1::PullRequest& request, const Slices& ids,
                  std::function<absl::Status(const v1::PullReply&, const Slices&)> take);

  const ClientOptions options_;
  const absl::Duration rpc_, lease_, heartbeat_period_, slow_warning_, progress_deadline_;
  // Drawn at random: another process of the same host and pid is another claimant.
  const uint64_t incarnation_ = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  const std::vector<LaneRange> nodes_;
  const int tree_lanes_;
  const bool eager_;
  // A step is begun when the servers say so: in sync at its version, with a bound when no trainer is too far behind.
  const bool in_turn_;
  const std::shared_ptr<Shared> shared_;
  std::map<std::string, int64_t, std::less<>> block_counts_;
  std::map<std::string, const v1::PlacedTable*, std::less<>> tables_;  // into options_.plan
  std::map<std::string, FetchedParameter, std::less<>> fetched_;
  BufferPool buffers_;

  // Of the thread that runs the program.
  int64_t step_ = -1;
  int64_t first_step_ = 0;
  bool read_only_ = false;
  int64_t version_wanted_ = 0;
  // Pushed samples and verdict of the last FinishSends: what async knows of its own step.
  int64_t own_samples_ = 0;
  v1::Verdict own_verdict_ = v1::APPLY;
  std::atomic<int64_t> step_samples_{0};  // read by whatever thread sends a part
  std::map<std::string, StepIds, std::less<>> step_ids_;
  struct Wanted {
    BlockRef block;
    Tensor* out;
  };
  std::vector<Wanted> wanted_;

  std::vector<std::unique_ptr<PushBuilder>> builders_;  // by server; constant
  Mutex push_mu_;
  std::vector<CallPtr> pushes_ ABSL_GUARDED_BY(push_mu_);

  std::atomic<uint64_t> next_request_{1};
  absl::Time last_round_ = absl::InfinitePast();  // of heart-beats; of the thread that calls Heartbeat
  std::thread heartbeat_;
};

ClientImpl::ClientImpl(ClientOptions options)
    : options_(std::move(options)),
      rpc_(OfSeconds(options_.deadlines.rpc_s())),
      lease_(OfSeconds(options_.deadlines.lease_s())),
      heartbeat_period_(OfSeconds(options_.deadlines.heartbeat_s())),
      slow_warning_(OfSeconds(options_.deadlines.slow_warning_s())),
      progress_deadline_(OfSeconds(options_.deadlines.progress_deadline_s())),
      nodes_(AlignedNodes(LanesOfTrainer(options_.plan.lanes(), options_.plan.trainers(), options_.trainer_id))),
      tree_lanes_(options_.plan.lanes() == 0 ? options_.plan.trainers() : options_.plan.lanes()),
      eager_(!options_.plan.sync() && options_.plan.async_eager()),
      in_turn_(options_.plan.sync() || options_.bounded_staleness),
      shared_(std::make_shared<Shared>(options_.trainer_id)) {
  for (const v1::PlacedBlock& block : options_.plan.blocks()) block_counts_[block.name()] = block.element_count();
  for (const v1::PlacedTable& table : options_.plan.tables()) tables_[table.name()] = &table;
  for (const v1::FetchedRows& fetched : options_.plan.fetched_rows()) fetched_[fetched.parameter()].rows = fetched.rows();
  for (const v1::PlacedBlock& block : options_.plan.blocks()) {
    const auto fetched = fetched_.find(block.parameter());
    if (fetched == fetched_.end() || block.dims_size() != 2) continue;
    const int64_t begin = block.dims(1) == 0 ? 0 : block.element_begin() / block.dims(1);
    fetched->second.blocks.push_back({block.name(), block.server(), begin, begin + block.dims(0)});
  }
  {
    MutexLock lock(&shared_->mu);
    shared_->last_heard.assign(static_cast<size_t>(servers()), absl::InfinitePast());
    shared_->sessions.assign(static_cast<size_t>(servers()), 0);
    shared_->processes.assign(static_cast<size_t>(servers()), "");
    shared_->norm_rounds.assign(static_cast<size_t>(servers()), 0);
  }
  for (int s = 0; s < servers(); ++s) {
    builders_.push_back(std::make_unique<PushBuilder>(&buffers_, [this, s](v1::PushRequest header, Slices payload) {
      *header.mutable_caller() = CallerFor(s);
      header.set_step(step_);
      header.set_read_version(version_wanted_);
      const int64_t samples = step_samples_;
      if (eager_ && samples > 0 && !header.has_part_count()) {
        // A piece of a block cannot be applied by itself; it waits for the last part.
        bool whole = true;
        for (const v1::PushItem& item : header.items()) {
          const auto count = block_counts_.find(item.name());
          whole &= item.width() > 0 || (count != block_counts_.end() && item.count() == count->second);
        }
        if (whole) header.set_samples(samples);
      }
      const CallPtr call = NewCall(s, Method::kPush, EncodeFrame(header.SerializeAsString(), payload),
                                   [](const Slices& answer) -> absl::StatusOr<bool> {
                                     ASSIGN_OR_RETURN(const Frame frame, DecodeFrame(answer));
                                     v1::PushReply reply;
                                     if (!reply.ParseFromString(frame.header)) return absl::DataLossError("no PushReply");
                                     return true;
                                   });
      {
        MutexLock lock(&push_mu_);
        pushes_.push_back(call);
      }
      Issue(call);
    }));
  }
}

ClientImpl::~ClientImpl() {
  {
    MutexLock lock(&shared_->mu);
    shared_->closing = true;
    shared_->changed.SignalAll();
  }
  if (heartbeat_.joinable()) heartbeat_.join();
}

v1::Caller ClientImpl::CallerFor(int server) {
  v1::Caller caller;
  caller.set_job_id(options_.job_name);
  caller.set_trainer(options_.trainer_id);
  MutexLock lock(&shared_->mu);
  caller.set_session(shared_->sessions[static_cast<size_t>(server)]);
  return caller;
}

// -------------------------------------------------------------------------------------------------------------- calls

CallPtr ClientImpl::NewCall(int server, Method method, Slices request,
                            std::function<absl::StatusOr<bool>(const Slices&)> accept) {
  auto call = std::make_shared<Call>();
  call->server = server;
  call->method = method;
  call->request = std::move(request);
  call->accept = std::move(accept);
  return call;
}

void ClientImpl::Issue(const CallPtr& call) {
  {
    MutexLock lock(&shared_->mu);
    call->in_flight = true;
  }
  shared_->messages.fetch_add(1, std::memory_order_relaxed);
  shared_->bytes_sent.fetch_add(static_cast<int64_t>(TotalSize(call->request)), std::memory_order_relaxed);
  shared_->wire.Request(call->method, TotalSize(call->request));
  options_.transport->Call(
      call->server, call->method, call->request, rpc_,
      [shared = shared_, call, clock = options_.clock](absl::StatusOr<Slices> answer) {
        MutexLock lock(&shared->mu);
        if (answer.ok()) {
          shared->bytes_received.fetch_add(static_cast<int64_t>(TotalSize(*answer)), std::memory_order_relaxed);
          shared->wire.Answer(call->method, TotalSize(*answer));
        }
        if (answer.ok() || !Retryable(answer.status())) shared->last_heard[static_cast<size_t>(call->server)] = clock->Now();
        call->in_flight = false;
        call->answered = true;
        call->answer = std::move(answer);
        shared->changed.SignalAll();
      });
}

absl::Status ClientImpl::FailureOfJob(const absl::Status& aborted) {
  // A heart-beat's answer has the failure's own code.
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
  MutexLock lock(&shared_->mu);
  for (int i = 0; i < 100 && shared_->failure.ok(); ++i) shared_->changed.WaitWithTimeout(&shared_->mu, absl::Milliseconds(10));
  shared_->SetFailure(aborted);
  return shared_->failure;
}

absl::Status ClientImpl::Look(const CallPtr& call, bool* issue) {
  *issue = false;
  absl::StatusOr<Slices> answer = absl::UnknownError("");
  {
    MutexLock lock(&shared_->mu);
    if (call->in_flight) return absl::OkStatus();
    if (!call->answered) {
      *issue = options_.clock->Now() >= call->next_try;
      return absl::OkStatus();
    }
    call->answered = false;
    answer = std::move(call->answer);
    call->answer = absl::UnknownError("");
  }
  absl::Status status = answer.status();
  if (answer.ok()) {
    const absl::StatusOr<bool> accepted = call->accept(*answer);
    status = accepted.status();
    if (accepted.ok()) {
      call->finished = *accepted;
      *issue = !*accepted;
      call->backoff = kFirstBackoff;
      return absl::OkStatus();
    }
  }
  const bool reread = status.code() == absl::StatusCode::kDataLoss && !call->reread;
  if (Retryable(status) || reread) {
    call->reread |= reread;
    call->trouble = status;
    shared_->retries.fetch_add(1, std::memory_order_relaxed);
    call->next_try = options_.clock->Now() + call->backoff;
    call->backoff = std::min(2 * call->backoff, kLongestBackoff);
    return absl::OkStatus();
  }
  if (status.code() == absl::StatusCode::kAborted) return FailureOfJob(status);
  return absl::Status(status.code(), absl::StrCat(options_.transport->Describe(call->server), ": ", status.message()));
}

absl::Status ClientImpl::Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                              bool while_others_work) {
  absl::Time start = options_.clock->Now();
  absl::Time warned = start;
  int64_t version = -1;
  const absl::Duration look = options_.clock == Clock::Real() ? kRealLook : kLook;
  absl::Status result;
  while (true) {
    bool all = true, issued = false;
    for (const CallPtr& call : calls) {
      if (call->finished) continue;
      bool issue = false;
      result = Look(call, &issue);
      if (!result.ok()) break;
      if (issue) Issue(call);
      issued |= issue;
      all &= call->finished;
    }
    if (!result.ok() || all) break;
    if (issued) continue;  // an answer may be there already

    const absl::Time now = options_.clock->Now();
    if (while_others_work) {
      MutexLock lock(&shared_->mu);
      if (shared_->version > version) {
        version = shared_->version;
        start = now;
      }
    }
    std::vector<std::string> missing;
    std::string trouble;
    for (const CallPtr& call : calls) {
      if (call->finished) continue;
      missing.push_back(options_.transport->Describe(call->server));
      if (trouble.empty() && !call->trouble.ok()) trouble = absl::StrCat("; the last try: ", call->trouble.message());
    }
    missing.erase(std::unique(missing.begin(), missing.end()), missing.end());
    const std::string text = absl::StrCat(absl::StrJoin(missing, ", "), ": ", what);
    if (now - start > deadline) {
      MutexLock lock(&shared_->mu);
      const std::string held = shared_->held_by.empty() ? "" : absl::StrCat("; ", shared_->held_by);
      result = absl::DeadlineExceededError(
          absl::StrCat(Self(), " has waited ", SecondsText(now - start), " for ", text, trouble, held));
      break;
    }
    if (now - warned >= slow_warning_) {
      warned = now;
      LOG(WARNING) << Self() << ": waits for " << text << ", for " << SecondsText(now - start);
    }
    MutexLock lock(&shared_->mu);
    if (!shared_->failure.ok()) {
      result = shared_->failure;
      break;
    }
    if (now - start >= absl::Seconds(1)) shared_->waiting_for = text;
    const bool news = std::any_of(calls.begin(), calls.end(), [this](const CallPtr& call) {
      shared_->mu.AssertHeld();
      return !call->finished && call->answered;
    });
    if (!news) shared_->changed.WaitWithTimeout(&shared_->mu, look);
  }
  MutexLock lock(&shared_->mu);
  shared_->waiting_for.clear();
  shared_->held_by.clear();
  // Why the job failed says more than what this call met on the way.
  if (!result.ok() && !shared_->failure.ok()) return shared_->failure;
  return result;
}

// --------------------------------------------------------------------------------------------------------- membership

absl::Status ClientImpl::CheckProbe(int server, const v1::JoinReply& reply) {
  if (options_.checkpoint_dir.empty() || options_.checkpoint_per_host || reply.checkpoint_probe().empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> token = ReadProbe(options_.checkpoint_dir, reply.checkpoint_probe());
  if (token.ok() && *token == reply.checkpoint_token()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "checkpoint directory ", options_.checkpoint_dir, " of ", Self(), " is not the one of ",
      options_.transport->Describe(server), " (", reply.process(),
      "): the file that the server has written there is not seen here. Share the directory, or set checkpoint.per_host: true"));
}

absl::Status ClientImpl::JoinServers() {
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::JoinRequest request;
    *request.mutable_caller() = CallerFor(s);
    request.set_server_index(s);
    request.set_plan_fingerprint(StableHash(options_.plan_text));
    request.set_plan_text(options_.plan_text);
    request.set_build(std::string(kBuild));
    request.set_arithmetic(options_.arithmetic);
    request.set_process(options_.process);
    request.set_wire_version(kWireVersion);
    request.set_incarnation(incarnation_);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    calls.push_back(NewCall(s, Method::kJoin, std::move(bytes), [this, s](const Slices& answer) -> absl::StatusOr<bool> {
      v1::JoinReply reply;
      if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no JoinReply");
      RETURN_IF_ERROR(CheckProbe(s, reply));
      MutexLock lock(&shared_->mu);
      shared_->sessions[static_cast<size_t>(s)] = reply.session();
      shared_->processes[static_cast<size_t>(s)] = reply.process();
      shared_->norm_rounds[static_cast<size_t>(s)] = reply.norm_rounds();
      if (reply.has_next_step()) {
        std::optional<int64_t>& next = shared_->takes_over;
        next = std::min(next.value_or(reply.next_step()), reply.next_step());
      }
      shared_->last_heard[static_cast<size_t>(s)] = options_.clock->Now();
      return true;
    }));
  }
  return Wait(calls, "to join", OfSeconds(options_.deadlines.connect_deadline_s()));
}

absl::Status ClientImpl::Join() {
  // Heart-beats begin with the first session: a lease must not run out while another server is still missing.
  if (options_.heartbeat_thread && !heartbeat_.joinable()) heartbeat_ = std::thread([this] { HeartbeatLoop(); });
  return JoinServers();
}

void ClientImpl::SendHeartbeat(int server) {
  v1::HeartbeatRequest request;
  *request.mutable_caller() = CallerFor(server);
  if (request.caller().session() == 0) return;
  {
    MutexLock lock(&shared_->mu);
    request.set_step(shared_->step);
    request.set_waiting_for(shared_->waiting_for);
    request.set_stop_requested(shared_->stop_requested);
    if (!shared_->failure.ok()) {
      request.set_failure(std::string(shared_->failure.message()));
      request.set_failure_code(static_cast<int>(shared_->failure.code()));
    }
    request.set_done(shared_->done);
  }
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  shared_->messages.fetch_add(1, std::memory_order_relaxed);
  shared_->bytes_sent.fetch_add(static_cast<int64_t>(TotalSize(bytes)), std::memory_order_relaxed);
  shared_->wire.Request(Method::kHeartbeat, TotalSize(bytes));
  options_.transport->Call(
      server, Method::kHeartbeat, std::move(bytes), std::min(rpc_, lease_),
      [shared = shared_, server, clock = options_.clock](absl::StatusOr<Slices> answer) {
        MutexLock lock(&shared->mu);
        if (!answer.ok()) {
          if (Retryable(answer.status())) return;  // silence; the lease decides
          shared->last_heard[static_cast<size_t>(server)] = clock->Now();
          if (!shared->done) shared->SetFailure(answer.status());
          return;
        }
        shared->last_heard[static_cast<size_t>(server)] = clock->Now();
        shared->bytes_received.fetch_add(static_cast<int64_t>(TotalSize(*answer)), std::memory_order_relaxed);
        shared->wire.Answer(Method::kHeartbeat, TotalSize(*answer));
        v1::HeartbeatReply reply;
        if (!reply.ParseFromString(Flatten(*answer))) return;
        if (reply.stop_requested()) shared->stop_requested = true;
        shared->version = std::max(shared->version, reply.version());
        for (const int trainer : reply.dead()) {
          if (server == 0 && shared->dead.insert(trainer).second) {
            LOG(WARNING) << "trainer " << trainer << " is dead, says server 0; the others go on";
          }
        }
        if (!reply.failure().empty()) {
          const int code = reply.failure_code();
          const bool known = code > 0 && code <= static_cast<int>(absl::StatusCode::kUnauthenticated);
          shared->SetFailure(
              absl::Status(known ? static_cast<absl::StatusCode>(code) : absl::StatusCode::kUnknown, reply.failure()));
        }
      });
}

void ClientImpl::Heartbeat() {
  const absl::Time now = options_.clock->Now();
  std::vector<int> joined;
  {
    MutexLock lock(&shared_->mu);
    if (shared_->done) return;
    // This process itself was asleep: it cannot tell who else was.
    const bool overslept = now - last_round_ > heartbeat_period_ + lease_ / 2;
    for (int s = 0; s < servers(); ++s) {
      if (shared_->sessions[static_cast<size_t>(s)] == 0) continue;
      joined.push_back(s);
      absl::Time& heard = shared_->last_heard[static_cast<size_t>(s)];
      if (overslept) heard = std::max(heard, now);
      if (now - heard > lease_) {
        shared_->SetFailure(absl::UnavailableError(
            absl::StrCat(options_.transport->Describe(s), " (", shared_->processes[static_cast<size_t>(s)], ") is dead: ", Self(),
                         " has not heard from it for ", SecondsText(now - heard))));
      }
    }
    shared_->relay = false;
  }
  last_round_ = now;
  for (int s : joined) SendHeartbeat(s);
}

void ClientImpl::HeartbeatLoop() {
  pthread_setname_np(pthread_self(), "weir-heartbeat");
  // A step of the wall clock must not keep a sign of life back.
  using SteadyClock = std::chrono::steady_clock;
  const SteadyClock::duration period = absl::ToChronoNanoseconds(heartbeat_period_);
  while (true) {
    Heartbeat();
    const SteadyClock::time_point next = SteadyClock::now() + period;
    MutexLock lock(&shared_->mu);
    // A failure is passed on at once.
    for (SteadyClock::time_point now = SteadyClock::now(); !shared_->closing && !shared_->relay && now < next;
         now = SteadyClock::now()) {
      shared_->changed.WaitWithTimeout(&shared_->mu, absl::FromChrono(next - now));
    }
    if (shared_->closing) return;
  }
}

void ClientImpl::RequestStop() {
  {
    MutexLock lock(&shared_->mu);
    shared_->stop_requested = true;
  }
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
}

bool ClientImpl::StopRequested() {
  MutexLock lock(&shared_->mu);
  return shared_->stop_requested;
}

absl::Status ClientImpl::JobStatus() {
  MutexLock lock(&shared_->mu);
  return shared_->failure;
}

void ClientImpl::ReportFailure(const absl::Status& status) {
  if (status.ok()) return;
  {
    MutexLock lock(&shared_->mu);
    shared_->SetFailure(absl::Status(status.code(), absl::StrCat(Self(), ": ", status.message())));
  }
  // Each server's answer shows that it knows; one that does not answer soon finds out by the lease.
  const absl::Time end = options_.clock->Now() + std::min(lease_, absl::Seconds(2));
  std::vector<absl::Time> asked(static_cast<size_t>(servers()), options_.clock->Now());
  for (int s = 0; s < servers(); ++s) SendHeartbeat(s);
  MutexLock lock(&shared_->mu);
  for (int looks = 0; looks < 1000 && options_.clock->Now() < end; ++looks) {
    bool all = true;
    for (int s = 0; s < servers(); ++s) {
      all &= shared_->sessions[static_cast<size_t>(s)] == 0 ||
             shared_->last_heard[static_cast<size_t>(s)] >= asked[static_cast<size_t>(s)];
    }
    if (all) return;
    shared_->changed.WaitWithTimeout(&shared_->mu, kLook);
  }
}

absl::Status ClientImpl::Done() {
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::HeartbeatRequest request;
    *request.mutable_caller() = CallerFor(s);
    if (request.caller().session() == 0) continue;
    {
      MutexLock lock(&shared_->mu);
      request.set_step(shared_->step);
    }
    request.set_done(true);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    calls.push_back(NewCall(s, Method::kHeartbeat, std::move(bytes), [](const Slices& answer) -> absl::StatusOr<bool> {
      v1::HeartbeatReply reply;
      if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no HeartbeatReply");
      if (!reply.failure().empty()) return absl::AbortedError(absl::StrCat("the job has failed: ", reply.failure()));
      return true;
    }));
  }
  RETURN_IF_ERROR(Wait(calls, "to acknowledge the end", 2 * lease_));
  MutexLock lock(&shared_->mu);
  shared_->done = true;
  return absl::OkStatus();
}

Client::Counters ClientImpl::counters() const {
  return {.bytes_sent = shared_->bytes_sent,
          .bytes_received = shared_->bytes_received,
          .messages = shared_->messages,
          .rows_pulled = shared_->rows_pulled,
          .rows_pushed = shared_->rows_pushed,
          .retries = shared_->retries};
}

// ------------------------------------------------------------------------------------------------ exchange and control

absl::Status ClientImpl::Upload(std::string_view key, const std::string& contribution, bool kept, int reader) {
  const size_t chunks = std::max<size_t>(1, (contribution.size() + kExchangeChunk - 1) / kExchangeChunk);
  std::vector<CallPtr> calls;
  for (size_t c = 0; c < chunks; ++c) {
    v1::ExchangeRequest request;
    *request.mutable_caller() = CallerFor(0);
    request.set_key(std::string(key));
    request.set_contribution(contribution.substr(c * kExchangeChunk, kExchangeChunk));
    request.set_chunk(static_cast<int>(c));
    request.set_chunks(static_cast<int>(chunks));
    if (kept) request.set_keep(true);
    if (reader >= 0) request.set_reader(reader);
    Slices bytes;
    bytes.push_back(Slice::Own(request.SerializeAsString()));
    calls.push_back(NewCall(0, Method::kExchange, std::move(bytes), [](const Slices&) -> absl::StatusOr<bool> { return true; }));
  }
  return Wait(calls, absl::StrCat("exchange ", std::string(key)), progress_deadline_);
}

absl::Status ClientImpl::ReadAll(std::string_view key, std::vector<std::string>* all) {
  const int trainers = options_.plan.trainers();
  all->assign(static_cast<size_t>(trainers), "");
  // Chunks still to be read, by trainer; the first answer tells how many there are.
  std::vector<int> chunks(static_cast<size_t>(trainers), 1);
  std::vector<std::vector<std::string>> read(static_cast<size_t>(trainers));
  for (int chunk = 0; chunk < *std::max_element(chunks.begin(), chunks.end()); ++chunk) {
    std::vector<CallPtr> calls;
    for (int t = 0; t < trainers; ++t) {
      if (chunk >= chunks[static_cast<size_t>(t)]) continue;
      v1::ExchangeRequest request;
      *request.mutable_caller() = CallerFor(0);
      request.set_key(std::string(key));
      request.set_read_trainer(t);
      request.set_chunk(chunk);
      Slices bytes;
      bytes.push_back(Slice::Own(request.SerializeAsString()));
      calls.push_back(NewCall(0, Method::kExchange, std::move(bytes), [t, all, &chunks](const Slices& answer) -> absl::StatusOr<bool> {
        v1::ExchangeReply reply;
        if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
        if (!reply.ready()) return false;
        chunks[static_cast<size_t>(t)] = reply.chunks();
        (*all)[static_cast<size_t>(t)] += reply.contribution();
        return true;
      }));
    }
    RETURN_IF_ERROR(Wait(calls, absl::StrCat("exchange ", std::string(key)), progress_deadline_));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::Contribute(std::string_view key, std::string contribution, int reader) {
  return Upload(key, contribution, /*kept=*/false, reader);
}

std::optional<int64_t> ClientImpl::TakesOver() {
  MutexLock lock(&shared_->mu);
  return shared_->takes_over;
}

absl::StatusOr<bool> ClientImpl::TryCollect(std::string_view key, std::vector<std::string>* all) {
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerFor(0);
  request.set_key(std::string(key));
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  bool ready = false;
  const CallPtr call = NewCall(0, Method::kExchange, std::move(bytes), [&ready](const Slices& answer) -> absl::StatusOr<bool> {
    v1::ExchangeReply reply;
    if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
    ready = reply.ready();
    return true;
  });
  RETURN_IF_ERROR(Wait({call}, absl::StrCat("exchange ", std::string(key)), progress_deadline_));
  if (!ready) return false;
  RETURN_IF_ERROR(ReadAll(key, all));
  return true;
}

absl::StatusOr<std::vector<std::string>> ClientImpl::Exchange(std::string_view key, std::string contribution, bool kept) {
  RETURN_IF_ERROR(Upload(key, contribution, kept, /*reader=*/-1));
  v1::ExchangeRequest request;
  *request.mutable_caller() = CallerFor(0);
  request.set_key(std::string(key));
  request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  const absl::Time start = options_.clock->Now();
  std::string missing;  // whoever had not given anything when the server last answered
  const CallPtr call =
      NewCall(0, Method::kExchange, std::move(bytes), [&](const Slices& answer) -> absl::StatusOr<bool> {
        v1::ExchangeReply reply;
        if (!reply.ParseFromString(Flatten(answer))) return absl::DataLossError("no ExchangeReply");
        missing = reply.missing().empty() ? "" : absl::StrCat("trainer ", absl::StrJoin(reply.missing(), ", trainer "));
        if (!reply.ready() && options_.clock->Now() - start >= slow_warning_) {
          LOG(WARNING) << Self() << ": exchange " << std::string(key) << " waits for " << missing;
        }
        return reply.ready();
      });
  absl::Status status = Wait({call}, absl::StrCat("exchange ", std::string(key), " of all trainers"), progress_deadline_,
                             /*while_others_work=*/!options_.plan.sync());
  if (absl::IsDeadlineExceeded(status) && !missing.empty()) {
    status = absl::DeadlineExceededError(absl::StrCat(status.message(), "; nothing has come from ", missing));
  }
  RETURN_IF_ERROR(status);
  std::vector<std::string> all;
  RETURN_IF_ERROR(ReadAll(key, &all));
  return all;
}

absl::StatusOr<std::vector<v1::ControlReply>> ClientImpl::Control(const v1::ControlRequest& request) {
  std::vector<v1::ControlReply> replies(static_cast<size_t>(servers()));
  std::vector<CallPtr> calls;
  for (int s = 0; s < servers(); ++s) {
    v1::ControlRequest own = request;
    *own.mutable_caller() = CallerFor(s);
    own.set_request_id(next_request_++);
    Slices bytes;
    bytes.push_back(Slice::Own(own.SerializeAsString()));
    calls.push_back(NewCall(s, Method::kControl, std::move(bytes), [s, &replies](const Slices& answer) -> absl::StatusOr<bool> {
      if (!replies[static_cast<size_t>(s)].ParseFromString(Flatten(answer))) return absl::DataLossError("no ControlReply");
      return true;
    }));
  }
  RETURN_IF_ERROR(Wait(calls, "a control call", progress_deadline_));
  return replies;
}

// -------------------------------------------------------------------------------------------------------------- steps

absl::Status ClientImpl::BeginStep(int64_t step, bool read_only) {
  RETURN_IF_ERROR(JobStatus());
  read_only_ = read_only;
  wanted_.clear();
  step_samples_ = 0;
  if (read_only) return absl::OkStatus();
  step_ = step;
  {
    MutexLock lock(&shared_->mu);
    shared_->step = step;
  }
  if (in_turn_) version_wanted_ = step;
  for (const auto& builder : builders_) builder->Begin();
  MutexLock lock(&push_mu_);
  pushes_.clear();
  return absl::OkStatus();
}

absl::StatusOr<bool> ClientImpl::OpenPull(int server, const Slices& answer, v1::PullReply* header, Slices* payload) {
  ASSIGN_OR_RETURN(Frame frame, DecodeFrame(answer));
  if (!header->ParseFromString(frame.header)) return absl::DataLossError("no PullReply");
  if (!header->ready()) {
    MutexLock lock(&shared_->mu);
    shared_->waiting_for = absl::StrCat("server ", server, ": ", header->waiting_for());
    shared_->held_by = absl::StrCat("server ", server, " waits for ", header->waiting_for());
    return false;
  }
  if (header->checksum() != Checksum(frame.payload)) return absl::DataLossError("the payload's checksum does not match");
  *payload = std::move(frame.payload);
  return true;
}

CallPtr ClientImpl::NewPull(int server, const v1::PullRequest& request, const Slices& ids,
                            std::function<absl::Status(const v1::PullReply&, const Slices&)> take) {
  const absl::Time start = options_.clock->Now();
  return NewCall(server, Method::kPull, EncodeFrame(request.SerializeAsString(), ids),
                 [this, server, start, version = request.version(),
                  take = std::move(take)](const Slices& answer) -> absl::StatusOr<bool> {
                   v1::PullReply header;
                   Slices payload;
                   ASSIGN_OR_RETURN(const bool ready, OpenPull(server, answer, &header, &payload));
                   if (ready) {
                     RETURN_IF_ERROR(take(header, payload));
                     return true;
                   }
                   const absl::Duration waited = options_.clock->Now() - start;
                   if (waited >= slow_warning_) {
                     LOG(WARNING) << Self() << ": waits for version " << version << " of "
                                  << options_.transport->Describe(server) << ", which waits for " << header.waiting_for()
                                  << ", for " << SecondsText(waited);
                   }
                   return false;
                 });
}

void ClientImpl::OrderRows(const TableRows& table, FetchedParameter* parameter) {
  const std::vector<int64_t>& ids = *table.ids;
  const size_t width = static_cast<size_t>(table.width);
  parameter->order.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < parameter->rows) {
      parameter->order.push_back(static_cast<uint32_t>(i));
    } else {
      std::fill_n(table.rows + i * width, width, 0.0f);
    }
  }
  std::sort(parameter->order.begin(), parameter->order.end(), [&](uint32_t a, uint32_t b) { return ids[a] < ids[b]; });
}

absl::Status ClientImpl::PullRows(absl::Span<const TableRows> tables) {
  // What one call asks for: positions [begin, end) of the order of some tables, or of blocks of fetched parameters.
  struct Piece {
    const TableRows* table;
    const IdOrder* order;                    // of a table
    const FetchedParameter* parameter;       // else
    const FetchedParameter::Block* block;
    size_t begin, end;
    uint32_t position(size_t i) const { return order != nullptr ? (*order)[i] : parameter->order[i]; }
  };
  struct Request {
    int server;
    std::vector<Piece> pieces;
    size_t bytes = 0;  // of rows
  };
  std::vector<StepIds*> step_ids;  // null for a fetched parameter
  for (const TableRows& table : tables) {
    if (fetched_.contains(table.table)) {
      step_ids.push_back(nullptr);
      continue;
    }
    if (!tables_.contains(table.table)) {
      return absl::InvalidArgumentError(absl::StrCat("pull of table ", table.table, ", which the plan does not have"));
    }
    StepIds& ids = step_ids_[table.table];
    ids.ids = table.ids;
    ids.step = read_only_ ? -1 : step_;
    step_ids.push_back(&ids);
  }
  const auto sort = [&](int64_t i) {
    const TableRows& table = tables[static_cast<size_t>(i)];
    if (step_ids[static_cast<size_t>(i)] == nullptr) return OrderRows(table, &fetched_.find(table.table)->second);
    step_ids[static_cast<size_t>(i)]->order.Sort(
        *table.ids, static_cast<uint32_t>(tables_.find(table.table)->second->logical_shards()), servers());
  };
  options_.pool->ParallelFor(static_cast<int64_t>(tables.size()), sort);

  std::vector<Request> requests;
  for (int s = 0; s < servers(); ++s) {
    Request request{s, {}};
    // Cuts positions [piece.begin, piece.end) into calls.
    const auto ask_for = [&](Piece piece) {
      const size_t row_bytes = static_cast<size_t>(piece.table->width) * sizeof(float);
      const size_t rows_per_call = std::max<size_t>(1, kBytesPerCall / row_bytes);
      for (const size_t last = piece.end; piece.begin < last; piece.begin = piece.end) {
        piece.end = std::min(last, piece.begin + rows_per_call);
        const size_t bytes = (piece.end - piece.begin) * row_bytes;
        if (request.bytes > 0 && request.bytes + bytes > kBytesPerCall) {
          requests.push_back(std::move(request));
          request = {s, {}};
        }
        request.pieces.push_back(piece);
        request.bytes += AlignUp(bytes);
      }
    };
    for (size_t i = 0; i < tables.size(); ++i) {
      if (step_ids[i] != nullptr) {
        const IdOrder& order = step_ids[i]->order;
        ask_for({&tables[i], &order, nullptr, nullptr, order.begin(s), order.begin(s + 1)});
        continue;
      }
      const FetchedParameter& parameter = fetched_.find(tables[i].table)->second;
      const std::vector<int64_t>& ids = *tables[i].ids;
      const auto place_of = [&](int64_t row) {
        return static_cast<size_t>(std::lower_bound(parameter.order.begin(), parameter.order.end(), row,
                                                    [&](uint32_t position, int64_t r) { return ids[position] < r; }) -
                                   parameter.order.begin());
      };
      for (const FetchedParameter::Block& block : parameter.blocks) {
        if (block.server != s) continue;
        ask_for({&tables[i], nullptr, &parameter, &block, place_of(block.begin), place_of(block.end)});
      }
    }
    if (!request.pieces.empty()) requests.push_back(std::move(request));
  }

  std::vector<CallPtr> calls;
  for (Request& request : requests) {
    v1::PullRequest header;
    *header.mutable_caller() = CallerFor(request.server);
    header.set_version(in_turn_ && !read_only_ ? step_ : 0);
    header.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    size_t id_bytes = 0;
    for (const Piece& piece : request.pieces) {
      v1::PullItem* const item = header.add_items();
      item->set_name(piece.block == nullptr ? piece.table->table : piece.block->name);
      item->set_count(static_cast<int64_t>(piece.end - piece.begin));
      item->set_width(piece.table->width);
      item->set_offset(static_cast<int64_t>(id_bytes));
      id_bytes += AlignUp((piece.end - piece.begin) * sizeof(int64_t));
    }
    const WireBuffer buffer = buffers_.Get(id_bytes);
    char* at = buffer.data;
    for (const Piece& piece : request.pieces) {
      int64_t* const ids = reinterpret_cast<int64_t*>(at);
      const std::vector<int64_t>& from = *piece.table->ids;
      const int64_t first = piece.block == nullptr ? 0 : piece.block->begin;
      for (size_t i = piece.begin; i < piece.end; ++i) ids[i - piece.begin] = from[piece.position(i)] - first;
      const size_t bytes = (piece.end - piece.begin) * sizeof(int64_t);
      std::memset(at + bytes, 0, AlignUp(bytes) - bytes);
      at += AlignUp(bytes);
      shared_->rows_pulled.fetch_add(static_cast<int64_t>(piece.end - piece.begin), std::memory_order_relaxed);
    }
    const CallPtr call = NewPull(
        request.server, header, {buffer.Piece(0, id_bytes)},
        [pieces = std::move(request.pieces)](const v1::PullReply&, const Slices& payload) -> absl::Status {
          PayloadReader reader(payload);
          size_t expected = 0;
          for (const Piece& piece : pieces) {
            expected += AlignUp((piece.end - piece.begin) * static_cast<size_t>(piece.table->width) * sizeof(float));
          }
          if (reader.left() != expected) {
            return absl::DataLossError(absl::StrCat("rows of ", reader.left(), " bytes came, ", expected, " were asked for"));
          }
          for (const Piece& piece : pieces) {
            const size_t width = static_cast<size_t>(piece.table->width);
            for (size_t i = piece.begin; i < piece.end; ++i) {
              reader.Read(piece.table->rows + piece.position(i) * width, width * sizeof(float));
            }
            const size_t bytes = (piece.end - piece.begin) * width * sizeof(float);
            reader.Skip(AlignUp(bytes) - bytes);
          }
          return absl::OkStatus();
        });
    calls.push_back(call);
    Issue(call);
  }
  return Wait(calls, absl::StrCat("rows of step ", step_), progress_deadline_ + 2 * lease_);
}

absl::Status ClientImpl::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  if (read_only_) return absl::FailedPreconditionError(absl::StrCat("block ", block.name, ": a read-only step sends nothing"));
  const auto count = block_counts_.find(block.name);
  if (count == block_counts_.end() || block.server < 0 || block.server >= servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name, " on server ", block.server));
  }
  // Elements of one call, so that all nodes of a piece fit in one message.
  const int64_t piece = static_cast<int64_t>(kBytesOfOneTensor / nodes_.size() / kAlignment * kAlignment / sizeof(float));
  for (int64_t begin = 0; begin < count->second; begin += piece) {
    const int64_t n = std::min(piece, count->second - begin);
    std::vector<PushTensor> tensors;
    for (const LaneRange& node : nodes_) {
      std::vector<DenseRun> runs;
      for (const LaneTensor& lane : lanes) {
        if (lane.lane < node.begin || lane.lane >= node.begin + node.count) continue;
        if (lane.value == nullptr || !lane.value->initialized()) continue;  // absent, not zero
        if (lane.value->size() != count->second) {
          return absl::InvalidArgumentError(absl::StrCat("gradient of ", block.name, " has ", lane.value->size(),
                                                         " elements, the block has ", count->second));
        }
        runs.push_back({{lane.lane, 1}, 0, lane.value->span<float>().subspan(static_cast<size_t>(begin), static_cast<size_t>(n))});
      }
      if (runs.empty()) continue;
      PushTensor tensor;
      tensor.item.set_name(block.name);
      tensor.item.set_lane(node.begin);
      tensor.item.set_lanes(node.count);
      tensor.item.set_begin(begin);
      tensor.item.set_count(n);
      tensor.bytes = static_cast<size_t>(n) * sizeof(float);
      tensor.write = [runs = std::move(runs), lanes = tree_lanes_, n](char* out) {
        const absl::Status summed =
            SumDense(runs, lanes, absl::MakeSpan(reinterpret_cast<float*>(out), static_cast<size_t>(n)));
        CHECK(summed.ok()) << summed;
      };
      tensors.push_back(std::move(tensor));
    }
    builders_[static_cast<size_t>(block.server)]->Add(std::move(tensors));
  }
  return absl::OkStatus();
}

absl::Status ClientImpl::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (read_only_) return absl::FailedPreconditionError(absl::StrCat("table ", block.name, ": a read-only step sends nothing"));
  const bool by_shard = block.server < 0;
  const auto table = tables_.find(block.name);
  if (by_shard ? table == tables_.end() : block.server >= servers() || !block_counts_.contains(block.name)) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no table or block ", block.name, " on server ", block.server));
  }
  // Rows of prefetched tables know their place among the ids of the step. Others are brought into that form here.
  const StepIds* known = nullptr;
  if (by_shard) {
    const auto found = step_ids_.find(block.name);
    if (found != step_ids_.end() && found->second.step == step_) known = &found->second;
  }
  std::vector<SelectedRows> placed;
  std::vector<LaneRows> placed_lanes;
  std::vector<int64_t> union_ids;
  IdOrder union_order;
  const auto place_all = [&] {
    for (const LaneRows& lane : lanes) union_ids.insert(union_ids.end(), lane.value->ids.begin(), lane.value->ids.end());
    std::sort(union_ids.begin(), union_ids.end());
    union_ids.erase(std::unique(union_ids.begin(), union_ids.end()), union_ids.end());
    const uint32_t shards = by_shard ? static_cast<uint32_t>(table->second->logical_shards()) : 1;
    union_order.Sort(union_ids, shards, by_shard ? servers() : 1);
    placed.resize(lanes.size());
    for (size_t l = 0; l < lanes.size(); ++l) {
      placed[l] = *lanes[l].value;  // shares the values
      placed[l].step_rows.resize(placed[l].ids.size());
      for (size_t r = 0; r < placed[l].ids.size(); ++r) {
        placed[l].step_rows[r] = static_cast<int32_t>(
            std::lower_bound(union_ids.begin(), union_ids.end(), placed[l].ids[r]) - union_ids.begin());
      }
      placed_lanes.push_back({lanes[l].lane, &placed[l]});
    }
    lanes = placed_lanes;
  };
  const auto all_placed = [&] {
    return std::all_of(lanes.begin(), lanes.end(), [](const LaneRows& lane) {
      return lane.value->step_rows.size() == lane.value->ids.size();
    });
  };
  if (known == nullptr || !all_placed()) {
    known = nullptr;
    place_all();
  }
  const std::vector<int64_t>& ids = known != nullptr ? *known->ids : union_ids;
  const IdOrder& order = known != nullptr ? known->order : union_order;

  std::vector<RowUnion> unions(nodes_.size());
  Mutex mu;
  absl::Status status;
  options_.pool->ParallelFor(static_cast<int64_t>(nodes_.size()), [&](int64_t i) {
    if (unions[static_cast<size_t>(i)].Build(nodes_[static_cast<size_t>(i)], lanes, ids.size())) return;
    MutexLock lock(&mu);
    status = absl::InvalidArgumentError(
        absl::StrCat("gradient of ", block.name, ": a lane has an id twice, or one that was not prefetched in this step"));
  });
  RETURN_IF_ERROR(status);

  // Pieces of (server, range of the order), each with all nodes, written and sent in parallel.
  struct Piece {
    int server;
    size_t begin, end;
  };
  std::vector<Piece> pieces;
  const size_t row_bytes = sizeof(int64_t) + static_cast<size_t>(width) * sizeof(float);
  const size_t per_piece = std::max<size_t>(1, kBytesPerCall / row_bytes / nodes_.size());
  const auto cut = [&](int server, size_t begin, size_t end) {
    for (; begin < end; begin += per_piece) pieces.push_back({server, begin, std::min(end, begin + per_piece)});
  };
  if (by_shard) {
    for (int s = 0; s < servers(); ++s) cut(s, order.begin(s), order.begin(s + 1));
  } else {
    cut(block.server, 0, order.size());
  }
  options_.pool->ParallelFor(static_cast<int64_t>(pieces.size()), [&](int64_t p) {
    const Piece& piece = pieces[static_cast<size_t>(p)];
    std::vector<PushTensor> tensors;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (unions[i].empty()) continue;
      std::vector<uint32_t> places;
      unions[i].Present(order, piece.begin, piece.end, &places);
      if (places.empty()) continue;
      PushTensor tensor;
      tensor.item.set_name(block.name);
      tensor.item.set_lane(nodes_[i].begin);
      tensor.item.set_lanes(nodes_[i].count);
      tensor.item.set_count(static_cast<int64_t>(places.size()));
      tensor.item.set_width(width);
      const size_t id_bytes = places.size() * sizeof(int64_t);
      tensor.bytes = AlignUp(id_bytes) + places.size() * static_cast<size_t>(width) * sizeof(float);
      shared_->rows_pushed.fetch_add(static_cast<int64_t>(places.size()), std::memory_order_relaxed);
      tensor.write = [&order, &ids, rows = &unions[i], places = std::move(places), width, id_bytes](char* out) {
        rows->WriteIds(order, places, ids, reinterpret_cast<int64_t*>(out));
        std::memset(out + id_bytes, 0, AlignUp(id_bytes) - id_bytes);
        rows->WriteSums(order, places, width, reinterpret_cast<float*>(out + AlignUp(id_bytes)));
      };
      tensors.push_back(std::move(tensor));
    }
    builders_[static_cast<size_t>(piece.server)]->Add(std::move(tensors));
  });
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishSends(int64_t samples, v1::Verdict verdict) {
  if (read_only_) return absl::FailedPreconditionError("a read-only step sends nothing");
  own_samples_ = samples;
  own_verdict_ = verdict;
  for (const auto& builder : builders_) {
    v1::PushRequest header;
    header.set_samples(samples);
    header.set_verdict(verdict);
    header.set_stop_requested(StopRequested());
    builder->Finish(std::move(header));
  }
  std::vector<CallPtr> calls;
  {
    MutexLock lock(&push_mu_);
    calls.swap(pushes_);
  }
  RETURN_IF_ERROR(Wait(calls, absl::StrCat("pushes of step ", step_), progress_deadline_ + 2 * lease_));
  // In sync another trainer's verdict may count; in async an own step without effect has no norms.
  const bool brings_norms = options_.plan.sync() ? options_.trainer_id == 0 : samples > 0 && verdict == v1::APPLY;
  if (brings_norms) RETURN_IF_ERROR(ExchangeNorms());
  if (in_turn_) version_wanted_ = step_ + 1;
  return absl::OkStatus();
}

CallPtr ClientImpl::NewNormsCall(int server, int round, const Norms& norms, v1::NormsReply* reply) {
  v1::NormsRequest request;
  *request.mutable_caller() = CallerFor(server);
  request.set_step(step_);
  request.set_round(round);
  request.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
  for (const v1::PartialSum& part : reply->sums()) {
    v1::WholeNorm* const norm = request.add_norms();
    norm->set_name(part.name());
    norm->set_norm(norms.find(part.name())->second);
  }
  Slices bytes;
  bytes.push_back(Slice::Own(request.SerializeAsString()));
  return NewCall(server, Method::kNorms, std::move(bytes), [this, server, reply](const Slices& answer) -> absl::StatusOr<bool> {
    v1::NormsReply got;
    if (!got.ParseFromString(Flatten(answer))) return absl::DataLossError("no NormsReply");
    if (got.ready()) {
      *reply = std::move(got);
      return true;
    }
    MutexLock lock(&shared_->mu);
    shared_->waiting_for = absl::StrCat("server ", server, ": ", got.waiting_for());
    return false;
  });
}

absl::Status ClientImpl::ExchangeNorms() {
  std::vector<int> rounds;
  {
    MutexLock lock(&shared_->mu);
    rounds = shared_->norm_rounds;
  }
  std::vector<v1::NormsReply> replies(rounds.size());
  Norms norms;
  for (int round = 0;; ++round) {
    std::vector<CallPtr> calls;
    int over = 0;
    for (int s = 0; s < servers(); ++s) {
      const size_t at = static_cast<size_t>(s);
      if (rounds[at] == 0 || rounds[at] < round) continue;
      if (replies[at].over()) {
        ++over;
      } else {
        calls.push_back(NewNormsCall(s, round, norms, &replies[at]));
      }
    }
    if (calls.empty()) return absl::OkStatus();
    // A step that was skipped is over for all; one that took effect here without the norms of others cannot be.
    if (over > 0) {
      return absl::InternalError(absl::StrCat("step ", step_, " is over on ", over, " servers while others wait for its norms"));
    }
    RETURN_IF_ERROR(Wait(calls, absl::StrCat("norms of step ", step_), progress_deadline_ + 2 * lease_));
    NormSums sums;
    for (const v1::NormsReply& reply : replies) RETURN_IF_ERROR(AddSums(reply, &sums));
    const absl::StatusOr<Norms> made = NormsOf(sums);
    if (!made.ok()) return absl::Status(made.status().code(), absl::StrCat("step ", step_, ": ", made.status().message()));
    norms = *made;
  }
}

absl::Status ClientImpl::Receive(const BlockRef& block, Tensor* out) {
  const auto count = block_counts_.find(block.name);
  if (count == block_counts_.end() || block.server < 0 || block.server >= servers()) {
    return absl::InvalidArgumentError(absl::StrCat("the plan has no block ", block.name, " on server ", block.server));
  }
  if (out->dtype() != v1::FLOAT32 || out->size() != count->second) {
    return absl::InvalidArgumentError(absl::StrCat("block ", block.name, " has ", count->second, " floats, the variable ",
                                                   v1::DType_Name(out->dtype()), " ", ShapeString(out->dims())));
  }
  wanted_.push_back({block, out});
  return absl::OkStatus();
}

absl::Status ClientImpl::FinishReceives(StepOutcome* outcome) {
  struct Piece {
    std::string name;
    int64_t begin, count;
    float* out;
  };
  struct Request {
    int server;
    std::vector<Piece> pieces;
    size_t bytes = 0;
  };
  const bool sync = options_.plan.sync();
  StepOutcome result;
  std::vector<CallPtr> calls;
  const auto ask = [&](Request request) {
    v1::PullRequest header;
    *header.mutable_caller() = CallerFor(request.server);
    header.set_version(in_turn_ ? version_wanted_ : 0);
    header.set_wait_s(absl::ToDoubleSeconds(std::min(rpc_ / 2, slow_warning_)));
    for (const Piece& piece : request.pieces) {
      v1::PullItem* const item = header.add_items();
      item->set_name(piece.name);
      item->set_begin(piece.begin);
      item->set_count(piece.count);
    }
    const int server = request.server;
    const CallPtr call = NewPull(
        server, header, {},
        [pieces = std::move(request.pieces), server, &result](const v1::PullReply& reply, const Slices& payload) -> absl::Status {
          PayloadReader reader(payload);
          size_t expected = 0;
          for (const Piece& piece : pieces) expected += AlignUp(static_cast<size_t>(piece.count) * sizeof(float));
          if (reader.left() != expected) {
            return absl::DataLossError(absl::StrCat("blocks of ", reader.left(), " bytes came, ", expected, " were asked for"));
          }
          for (const Piece& piece : pieces) {
            const size_t bytes = static_cast<size_t>(piece.count) * sizeof(float);
            reader.Read(piece.out, bytes);
            reader.Skip(AlignUp(bytes) - bytes);
          }
          // What all trainers must see alike comes from server 0 alone.
          if (server == 0) result = {reply.version(), reply.skipped(), reply.stop(), reply.samples()};
          return absl::OkStatus();
        });
    calls.push_back(call);
    Issue(call);
  };
  for (int s = 0; s < servers(); ++s) {
    Request request{s, {}};
    for (const Wanted& wanted : wanted_) {
      if (wanted.block.server != s) continue;
      float* const out = wanted.out->data<float>();
      const int64_t per_call = static_cast<int64_t>(kBytesPerCall / sizeof(float));
      for (int64_t begin = 0; begin < wanted.out->size(); begin += per_call) {
        const int64_t n = std::min(per_call, wanted.out->size() - begin);
        const size_t bytes = static_cast<size_t>(n) * sizeof(float);
        if (request.bytes > 0 && request.bytes + bytes > kBytesPerCall) {
          ask(std::move(request));
          request = {s, {}};
        }
        request.pieces.push_back({wanted.block.name, begin, n, out + begin});
        request.bytes += bytes;
      }
    }
    // In sync every server is waited for, one without blocks too: the next step's pushes must not find it a version behind. With
    // a bound every server has to say that the step may begin.
    if (in_turn_ || s == 0 || !request.pieces.empty()) ask(std::move(request));
  }
  wanted_.clear();
  const std::string what = sync                         ? absl::StrCat("version ", version_wanted_)
                           : options_.bounded_staleness ? absl::StrCat("the others, to begin step ", version_wanted_)
                                                        : "blocks";
  RETURN_IF_ERROR(Wait(calls, what, progress_deadline_ + 2 * lease_));
  if (!sync) {
    // What this trainer knows of its own step; nobody else's is part of it.
    result.skipped = own_verdict_ == v1::SKIP;
    result.samples = own_samples_;
    result.stop = false;
  }
  if (outcome != nullptr) *outcome = result;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Client>> Client::Create(ClientOptions options) {
  CHECK(options.transport != nullptr && options.clock != nullptr && options.pool != nullptr);
  const v1::Plan& plan = options.plan;
  if (options.trainer_id < 0 || options.trainer_id >= plan.trainers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trainer id ", options.trainer_id, "; the job has trainers 0 to ", plan.trainers() - 1));
  }
  if (options.transport->servers() != plan.servers()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.transport->servers(), " servers are given, the plan has ", plan.servers()));
  }
  return std::unique_ptr<Client>(std::make_unique<ClientImpl>(std::move(options)));
}

}  // namespace weir
