// The class behind Client, for the files that make it up:
//
//   client.cc             making it, and calls: tries, waits, deadlines
//   client_membership.cc  joins, heart-beats, the end
//   client_exchange.cc    what trainers tell each other, control of servers
//   client_residuals.cc   error feedback in checkpoints
//   client_pulls.cc       a step's reads, and those ahead of it
//   client_pushes.cc      a step's gradients, and norms over servers
#ifndef WEIR_PSERVER_CLIENT_CLIENT_IMPL_H_
#define WEIR_PSERVER_CLIENT_CLIENT_IMPL_H_

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/mutex.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/profiler.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/payload_reader.h"
#include "pserver/client/client.h"
#include "pserver/client/id_order.h"
#include "pserver/client/lane_sums.h"
#include "pserver/client/push_builder.h"
#include "pserver/client/residuals.h"
#include "pserver/protocol/merge_gradients.h"
#include "pserver/protocol/norm_rounds.h"
#include "pserver/protocol/wire_counters.h"

namespace weir {

inline constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
// How often a wait looks at a clock that may be a fake one.
inline constexpr absl::Duration kLook = absl::Milliseconds(2);

inline absl::Duration OfSeconds(double s) { return absl::Seconds(std::max(0.0, s)); }
inline std::string SecondsText(absl::Duration d) {
  return absl::StrCat(absl::ToInt64Milliseconds(d) / 100 / 10.0, " s");
}

inline bool Retryable(const absl::Status& status) {
  return status.code() == absl::StatusCode::kUnavailable || status.code() == absl::StatusCode::kDeadlineExceeded;
}

// One request until it has its answer, through any number of tries.
struct Call {
  int server = 0;
  Method method = Method::kPush;
  Slices request;
  // Looks at an answer: true ends the call, false asks again at once (the other side was not ready). DataLoss asks once
  // more.
  std::function<absl::StatusOr<bool>(const Slices&)> accept;
  // Of the profiler: the step it is part of, -1 when that is not recorded, and what it is called there.
  int64_t profiled_step = -1;
  ProfileName profiled_as;
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
  CondVar heartbeat;  // closing or relay: what the heart-beat's thread waits for
  absl::Status failure ABSL_GUARDED_BY(mu);
  bool relay ABSL_GUARDED_BY(mu) = false;  // somebody has yet to be told of the failure
  bool stop_requested ABSL_GUARDED_BY(mu) = false;
  int chief ABSL_GUARDED_BY(mu) = 0;
  bool expelled ABSL_GUARDED_BY(mu) = false;  // some server says that this trainer's lease has run out
  std::vector<absl::Time> last_heard ABSL_GUARDED_BY(mu);
  // Servers that have said that the job has failed, and that this trainer is done. They go when they have told
  // everyone, and when all are done.
  std::vector<bool> knows ABSL_GUARDED_BY(mu), released ABSL_GUARDED_BY(mu);
  std::vector<uint64_t> sessions ABSL_GUARDED_BY(mu);  // 0: not joined
  std::vector<std::string> processes ABSL_GUARDED_BY(mu);
  std::vector<int> norm_rounds ABSL_GUARDED_BY(mu);
  int64_t step ABSL_GUARDED_BY(mu) = -1;
  struct Waiting {
    std::string on;
    std::string held_by;  // what a server last said it waits for, in this wait
  };
  // What the program waits for is told to servers: it is what the trainer is slow for.
  Waiting waiting ABSL_GUARDED_BY(mu), waiting_ahead ABSL_GUARDED_BY(mu);
  bool ahead_needed ABSL_GUARDED_BY(mu) = false, ahead_cancelled ABSL_GUARDED_BY(mu) = false;
  bool done ABSL_GUARDED_BY(mu) = false;
  bool closing ABSL_GUARDED_BY(mu) = false;
  // Newest version that any server has told of.
  int64_t version ABSL_GUARDED_BY(mu) = 0;
  // Next step of the dead trainer whose place this one takes.
  std::optional<int64_t> takes_over ABSL_GUARDED_BY(mu);
  std::string run ABSL_GUARDED_BY(mu);     // server 0's token
  std::set<int> dead ABSL_GUARDED_BY(mu);  // trainers, as server 0 says

  // Counters, read at any time.
  std::atomic<int64_t> bytes_sent{0}, bytes_received{0}, messages{0}, rows_pulled{0}, rows_pushed{0}, retries{0};

  void SetFailure(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    if (!failure.ok()) return;
    failure = status;
    relay = true;
    changed.SignalAll();
    heartbeat.SignalAll();
  }
};

class ClientImpl : public Client {
 public:
  explicit ClientImpl(ClientOptions options);
  ~ClientImpl() override;

  absl::Status Join() override;
  void Heartbeat() override;
  void SetFirstStep(int64_t step) override { version_wanted_ = first_step_ = step; }
  void SetFirstSamples(int64_t samples) override { first_samples_ = samples; }
  std::optional<int64_t> TakesOver() override;
  std::string RunId() override;
  bool ExchangesNorms() override;
  absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution, bool kept) override;
  absl::Status Contribute(std::string_view key, std::string contribution, int reader) override;
  absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) override;
  absl::Status Post(std::string_view key, std::string contribution, int64_t edition) override;
  absl::StatusOr<std::string> Posted(std::string_view key, int trainer) override;
  std::unique_ptr<Stream> StreamTo(std::string_view key, int trainer) override;
  absl::Status ReadStream(std::string_view key, int trainer, const Take& take) override;
  int Chief() override;
  absl::StatusOr<Word> AwaitWord(std::string_view key, int64_t edition) override {
    return HearWord(key, edition, rpc_ / 2);
  }
  absl::StatusOr<Word> NewestWord(std::string_view key) override { return HearWord(key, 0, absl::ZeroDuration()); }
  absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request) override;
  void RequestStop() override;
  bool StopRequested() override;
  void ReportFailure(const absl::Status& status) override;
  absl::Status Done() override;
  absl::Status JobStatus() override;
  Counters counters() const override;
  bool KeepsResiduals() const override;
  absl::Status GatherResiduals(int64_t step, int to, const Take& take) override;
  absl::Status PostResiduals(int64_t step) override;
  absl::Status TakeResiduals(int64_t step, const Take& take) override;
  absl::Status DealResiduals(int from, const std::function<absl::Status(const Take&)>& read, int64_t step) override;

  absl::Status BeginStep(int64_t step, bool read_only) override;
  void SetStepSamples(int64_t samples) override { step_samples_ = samples; }
  absl::Status PullRows(absl::Span<const TableRows> tables) override { return PullRows(&rows_, tables); }
  void UseRowsAhead() override { rows_.ids.swap(ahead_.rows.ids); }
  ParamChannel* Ahead() override { return &ahead_; }
  void NeedAhead(bool needed) override;
  void CancelAhead() override;
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  // Ids of a table in this step, as PullRows had them.
  struct StepIds {
    absl::Span<const int64_t> ids;
    int64_t step = -1;
    int64_t call = -1;  // of PullRows, that they are of
    // Another table that the same call asked for the same ids: what follows of them stands there. Null: here.
    StepIds* same_as = nullptr;
    IdOrder order;
    StepUnions unions;
    // Of this table alone: those that are not there already.
    IdOrder asked;
  };
  // What pulls of rows work with, one after the other: the program has one, and what runs ahead of it another.
  struct RowPulls {
    bool ahead = false;
    int64_t step = -1;
    bool read_only = false;
    int64_t calls = 0;
    std::map<std::string, StepIds, std::less<>> ids;  // by table
    // Positions of the ids that a fetched parameter has, ascending by row.
    std::map<std::string, std::vector<uint32_t>, std::less<>> fetched;
  };
  // Client::Ahead.
  class AheadChannel : public ParamChannel {
   public:
    explicit AheadChannel(ClientImpl* client) : client_(*client) {}
    absl::Status BeginStep(int64_t step, bool read_only) override;
    absl::Status PullRows(absl::Span<const TableRows> tables) override { return client_.PullRows(&rows, tables); }
    absl::Status SendDense(const BlockRef&, absl::Span<const LaneTensor>) override { return OnlyRows(); }
    absl::Status SendRows(const BlockRef&, int, absl::Span<const LaneRows>) override { return OnlyRows(); }
    absl::Status FinishSends(int64_t, v1::Verdict) override { return OnlyRows(); }
    absl::Status Receive(const BlockRef&, Tensor*) override { return OnlyRows(); }
    absl::Status FinishReceives(StepOutcome*) override { return OnlyRows(); }

    RowPulls rows{.ahead = true};

   private:
    static absl::Status OnlyRows() { return absl::FailedPreconditionError("ahead of a step only rows are pulled"); }
    ClientImpl& client_;
  };
  // A dense parameter whose rows are fetched: where they are.
  struct FetchedParameter {
    struct Block {
      std::string name;
      int server;
      int64_t begin, end;  // rows
    };
    int64_t rows = 0;
    std::vector<Block> blocks;  // ascending
  };

  std::string Self() const { return absl::StrCat("trainer ", options_.trainer_id, " (", options_.process, ")"); }
  int servers() const { return options_.transport->servers(); }
  v1::Caller CallerFor(int server);
  // Notes the ids of the tables and puts them in order, the same ids once. The order of what each table is asked for,
  // null for a fetched parameter.
  absl::StatusOr<std::vector<IdOrder*>> OrderTables(RowPulls* pulls, absl::Span<const TableRows> tables);
  // Puts the ids that a parameter of so many rows has into order; the rows of others become zero.
  static void OrderRows(const TableRows& table, int64_t rows, std::vector<uint32_t>* order);
  // Issues calls that are answered before Issue returns, and takes their answers, on all threads. Waits for nobody.
  absl::Status ServeInParallel(absl::Span<const CallPtr> calls);
  absl::Status PullRows(RowPulls* pulls, absl::Span<const TableRows> tables);
  // Starts a try. Without locks.
  void Issue(const CallPtr& call);
  CallPtr NewCall(int server, Method method, Slices request, std::function<absl::StatusOr<bool>(const Slices&)> accept);
  // Until all calls have their answers. `what` says for what, in messages; `deadline` ends it.
  struct WaitOptions {
    // What the profiler calls it; null: "an answer".
    const ProfileName* profiled_as = nullptr;
    // It begins anew whenever a server's version has moved (async: someone else is not ready, but at work).
    bool while_others_work = false;
    // Of what runs ahead: CancelAhead ends it.
    bool ahead = false;
  };
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                    WaitOptions options);
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline) {
    return Wait(calls, what, deadline, {});
  }
  absl::Status WaitUntilAnswered(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                                 const WaitOptions& options, int* last_server);
  // One look at a call; sets `issue` when it is to be tried (again). Accepts answers outside the lock.
  absl::Status Look(const CallPtr& call, bool* issue);
  absl::Status FailureOfJob(const absl::Status& aborted);
  void SendHeartbeat(int server);
  // The last heart-beat to every server that has let this trainer in and has not said that the job has failed; returns
  // when all that must live have heard it, or after 2 s. True: one of them says that this trainer has lost its lease.
  bool SendLast(const v1::HeartbeatRequest& last);
  void HeartbeatLoop();
  absl::Status JoinServers();
  absl::Status CheckProbe(int server, const v1::JoinReply& reply);
  // How: ExchangeRequest.keep, reader, edition (-1: no post).
  struct UploadAs {
    bool kept = false;
    int reader = -1;
    int64_t edition = -1;
  };
  absl::Status Upload(std::string_view key, const std::string& contribution, const UploadAs& as);
  class StreamWriter;
  // Sends a chunk of a stream when there is room for it. chunks: 0, or of the whole.
  absl::Status SendChunk(const std::string& key, int trainer, int chunk, int chunks, std::string bytes);
  // This trainer's residuals, as a file has them.
  absl::Status SaveResiduals(int64_t step, const Take& take) const;
  // What a trainer has posted, if it is not replaced meanwhile; `replaced` says so.
  absl::StatusOr<std::string> ReadPost(std::string_view key, int trainer, bool* replaced);
  absl::Status ReadAll(std::string_view key, std::vector<std::string>* all);
  // `wait` zero: does not wait.
  absl::StatusOr<Word> HearWord(std::string_view key, int64_t edition, absl::Duration wait);
  void HearOfChief(const v1::ExchangeReply& reply);
  // Behind the pushes of a step: collects what servers have of norms over whole parameters, and brings them the norms.
  // Returns when every server has them (in async: has applied the step).
  absl::Status ExchangeNorms();
  // Asks for the sums of a round, and brings the norms of what `reply` offered in the round before.
  CallPtr NewNormsCall(int server, int round, const Norms& norms, v1::NormsReply* reply);
  // Reads the header of a pull's answer; the payload has yet to be checked. False: not ready.
  absl::StatusOr<bool> OpenPull(int server, bool ahead, const Slices& answer, v1::PullReply* header, Slices* payload);
  // The next n floats of an answer.
  WireBuffer ReadDecoded(PayloadReader* reader, v1::WireFormat format, size_t n, size_t group);
  // `take` reads the payload; what it has read counts only when the call ends well, else it is asked again.
  CallPtr NewPull(int server, bool ahead, const v1::PullRequest& request, const Slices& ids,
                  std::function<absl::Status(const v1::PullReply&, PayloadReader*)> take);

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
  Residuals residuals_;  // of what is pushed in lossy formats

  // Of the thread that runs the program.
  int64_t step_ = -1;
  int64_t first_step_ = 0;
  int64_t first_samples_ = 0;
  bool read_only_ = false;
  RowPulls rows_;
  int64_t version_wanted_ = 0;
  // Pushed samples and verdict of the last FinishSends: what async knows of its own step.
  int64_t own_samples_ = 0;
  v1::Verdict own_verdict_ = v1::APPLY;
  std::atomic<int64_t> step_samples_{0};  // read by whatever thread sends a part
  struct Wanted {
    BlockRef block;
    Tensor* out;
  };
  std::vector<Wanted> wanted_;

  // Of the thread that pulls ahead, but for UseRowsAhead.
  AheadChannel ahead_{this};

  std::vector<std::unique_ptr<PushBuilder>> builders_;  // by server; constant
  Mutex push_mu_;
  std::vector<CallPtr> pushes_ ABSL_GUARDED_BY(push_mu_);

  std::atomic<uint64_t> next_request_{1};
  absl::Time last_round_ = absl::InfinitePast();  // of heart-beats; of the thread that calls Heartbeat
  std::thread heartbeat_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_CLIENT_IMPL_H_
