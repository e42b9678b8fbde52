// Implementation class behind Client, for the files that make it up:
//
//   client.cc             construction; calls: tries, waits, deadlines
//   client_membership.cc  joins, heart-beats, the end of the job
//   client_exchange.cc    exchanges between trainers, control of servers
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
// Interval at which a wait reads a clock that may be a fake one.
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
  // Checks an answer. True ends the call; false asks again at once (the other side was not ready). After DataLoss the
  // call is made once more.
  std::function<absl::StatusOr<bool>(const Slices&)> accept;
  // Step that the profiler records the call under, -1 if it is not recorded, and the name it has there.
  int64_t profiled_step = -1;
  ProfileName profiled_as;
  // Owned by the thread that waits for the call:
  bool finished = false;
  bool reread = false;
  absl::Status trouble;  // why the last try is repeated
  absl::Duration backoff = kFirstBackoff;
  absl::Time next_try = absl::InfinitePast();
  // Guarded by Shared::mu: whether a try is under way, and an answer that has not been checked yet.
  bool in_flight = false;
  bool answered = false;
  absl::StatusOr<Slices> answer = absl::UnknownError("");
};
using CallPtr = std::shared_ptr<Call>;

// State that callbacks of the transport use; they may run after the client is destroyed.
struct Shared {
  explicit Shared(int trainer) : wire("trainer", trainer) {}

  const WireCounters wire;
  Mutex mu;
  CondVar changed;
  CondVar heartbeat;  // the heart-beat thread waits here for closing or relay
  absl::Status failure ABSL_GUARDED_BY(mu);
  bool relay ABSL_GUARDED_BY(mu) = false;  // some server has yet to be told of the failure
  bool stop_requested ABSL_GUARDED_BY(mu) = false;
  int chief ABSL_GUARDED_BY(mu) = 0;
  bool expelled ABSL_GUARDED_BY(mu) = false;  // some server says that this trainer's lease has run out
  std::vector<absl::Time> last_heard ABSL_GUARDED_BY(mu);
  // Servers that have said that the job has failed (knows), and servers that have acknowledged that this trainer is
  // done (released). The former exit when they have told every trainer, the latter when all trainers are done.
  std::vector<bool> knows ABSL_GUARDED_BY(mu), released ABSL_GUARDED_BY(mu);
  std::vector<uint64_t> sessions ABSL_GUARDED_BY(mu);  // 0: not joined
  std::vector<std::string> processes ABSL_GUARDED_BY(mu);
  std::vector<int> norm_rounds ABSL_GUARDED_BY(mu);
  int64_t step ABSL_GUARDED_BY(mu) = -1;
  struct Waiting {
    std::string on;
    std::string held_by;  // the last cause a server gave in this wait
  };
  // Waits of the program, and of the thread that pulls ahead. A heart-beat tells servers the latter while ahead_needed,
  // else the former; they report it as what this trainer waits for.
  Waiting waiting ABSL_GUARDED_BY(mu), waiting_ahead ABSL_GUARDED_BY(mu);
  bool ahead_needed ABSL_GUARDED_BY(mu) = false, ahead_cancelled ABSL_GUARDED_BY(mu) = false;
  bool done ABSL_GUARDED_BY(mu) = false;
  bool closing ABSL_GUARDED_BY(mu) = false;
  // Newest version that any server has reported.
  int64_t version ABSL_GUARDED_BY(mu) = 0;
  // First step of a trainer that takes the place of a dead one (Client::TakesOver).
  std::optional<int64_t> takes_over ABSL_GUARDED_BY(mu);
  std::string run ABSL_GUARDED_BY(mu);     // server 0's token
  std::set<int> dead ABSL_GUARDED_BY(mu);  // trainers that are dead, according to server 0

  // Readable at any time.
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
  // Ids of one table in this step, as PullRows got them.
  struct StepIds {
    absl::Span<const int64_t> ids;
    int64_t step = -1;
    int64_t call = -1;  // number of the PullRows call they are from
    // Another table of that call with the same ids; its order and unions serve this one, too. Null: these are its own.
    StepIds* same_as = nullptr;
    IdOrder order;
    StepUnions unions;
    // Order of the ids to ask for: those that this table does not have already (TableRows.there).
    IdOrder asked;
  };
  // State of row pulls that follow one another. The program has one, and the thread that pulls ahead has another.
  struct RowPulls {
    bool ahead = false;
    int64_t step = -1;
    bool read_only = false;
    int64_t calls = 0;
    std::map<std::string, StepIds, std::less<>> ids;  // by table
    // Positions of the ids that a fetched parameter has, ascending by row.
    std::map<std::string, std::vector<uint32_t>, std::less<>> fetched;
  };
  // Channel that Client::Ahead returns.
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
  // Placement of a dense parameter whose rows are fetched.
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
  // Records and sorts the ids of each table; equal id lists are sorted once. Returns the order of the ids to ask for,
  // by table; null for a fetched parameter.
  absl::StatusOr<std::vector<IdOrder*>> OrderTables(RowPulls* pulls, absl::Span<const TableRows> tables);
  // Sorts the ids that lie in [0, rows) of the parameter; zeroes the rows of other ids.
  static void OrderRows(const TableRows& table, int64_t rows, std::vector<uint32_t>* order);
  // Issues calls that are answered before Issue returns, and checks their answers, on all threads. Waits for no one
  // else.
  absl::Status ServeInParallel(absl::Span<const CallPtr> calls);
  absl::Status PullRows(RowPulls* pulls, absl::Span<const TableRows> tables);
  // Starts a try. The caller holds no lock.
  void Issue(const CallPtr& call);
  CallPtr NewCall(int server, Method method, Slices request, std::function<absl::StatusOr<bool>(const Slices&)> accept);
  // Waits until all calls have their answers. `what` says in messages what they are for; `deadline` bounds the wait.
  struct WaitOptions {
    // Name in the profiler; null: "an answer".
    const ProfileName* profiled_as = nullptr;
    // If true, the deadline begins anew whenever a server's version has moved (async: another trainer is not ready, but
    // works).
    bool while_others_work = false;
    // True for pulls ahead of the program, which CancelAhead ends.
    bool ahead = false;
  };
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                    WaitOptions options);
  absl::Status Wait(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline) {
    return Wait(calls, what, deadline, {});
  }
  absl::Status WaitUntilAnswered(absl::Span<const CallPtr> calls, const std::string& what, absl::Duration deadline,
                                 const WaitOptions& options, int* last_server);
  // Checks one call; sets `issue` when it is to be tried (again). Runs `accept` outside the lock.
  absl::Status Look(const CallPtr& call, bool* issue);
  absl::Status FailureOfJob(const absl::Status& aborted);
  void SendHeartbeat(int server);
  // Sends a last heart-beat to every server that has let this trainer in and has not said that the job has failed.
  // Returns when all servers that still must be alive have heard it, or after 2 s. True: one of them says that this
  // trainer has lost its lease.
  bool SendLast(const v1::HeartbeatRequest& last);
  void HeartbeatLoop();
  absl::Status JoinServers();
  absl::Status CheckProbe(int server, const v1::JoinReply& reply);
  // Options of Upload: ExchangeRequest.keep, reader, edition (-1: no post).
  struct UploadAs {
    bool kept = false;
    int reader = -1;
    int64_t edition = -1;
  };
  absl::Status Upload(std::string_view key, const std::string& contribution, const UploadAs& as);
  class StreamWriter;
  // Sends a chunk of a stream when there is room for it. chunks: number of chunks of the whole stream, 0 while unknown.
  absl::Status SendChunk(const std::string& key, int trainer, int chunk, int chunks, std::string bytes);
  // Passes this trainer's residuals to `take` in the form that a file has.
  absl::Status SaveResiduals(int64_t step, const Take& take) const;
  // Returns a trainer's post. Sets `replaced` if a newer edition took its place meanwhile; the result is then not
  // usable.
  absl::StatusOr<std::string> ReadPost(std::string_view key, int trainer, bool* replaced);
  absl::Status ReadAll(std::string_view key, std::vector<std::string>* all);
  // Returns at once if `wait` is zero.
  absl::StatusOr<Word> HearWord(std::string_view key, int64_t edition, absl::Duration wait);
  void HearOfChief(const v1::ExchangeReply& reply);
  // Runs after the pushes of a step: collects the servers' sums for norms over whole parameters and brings them the
  // norms. Returns when every server has the norms (in async: has applied the step).
  absl::Status ExchangeNorms();
  // Asks for the sums of a round, and brings the norms computed from the previous round's sums.
  CallPtr NewNormsCall(int server, int round, const Norms& norms, v1::NormsReply* reply);
  // Reads the header of a pull's answer; the payload is not checked yet. False: the server is not ready.
  absl::StatusOr<bool> OpenPull(int server, bool ahead, const Slices& answer, v1::PullReply* header, Slices* payload);
  // Decodes the next n floats of an answer.
  WireBuffer ReadDecoded(PayloadReader* reader, v1::WireFormat format, size_t n, size_t group);
  // `take` reads the payload. Its effect counts only when the call ends well; otherwise the pull is repeated.
  CallPtr NewPull(int server, bool ahead, const v1::PullRequest& request, const Slices& ids,
                  std::function<absl::Status(const v1::PullReply&, PayloadReader*)> take);

  const ClientOptions options_;
  const absl::Duration rpc_, lease_, heartbeat_period_, slow_warning_, progress_deadline_;
  // Drawn at random, so that another process with this host and pid counts as another claimant of the id.
  const uint64_t incarnation_ = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  const std::vector<LaneRange> nodes_;
  const int tree_lanes_;
  const bool eager_;
  // A step begins only when the servers say so: in sync at its version, with a bound when no trainer is too far behind.
  const bool in_turn_;
  const std::shared_ptr<Shared> shared_;
  std::map<std::string, int64_t, std::less<>> block_counts_;
  std::map<std::string, const v1::PlacedTable*, std::less<>> tables_;  // into options_.plan
  std::map<std::string, FetchedParameter, std::less<>> fetched_;
  BufferPool buffers_;
  Residuals residuals_;  // of gradients pushed in lossy formats

  // Used only by the thread that runs the program.
  int64_t step_ = -1;
  int64_t first_step_ = 0;
  int64_t first_samples_ = 0;
  bool read_only_ = false;
  RowPulls rows_;
  int64_t version_wanted_ = 0;
  // Samples and verdict of the last FinishSends, from which async builds the outcome of its own step.
  int64_t own_samples_ = 0;
  v1::Verdict own_verdict_ = v1::APPLY;
  std::atomic<int64_t> step_samples_{0};  // read by any thread that sends a part
  struct Wanted {
    BlockRef block;
    Tensor* out;
  };
  std::vector<Wanted> wanted_;

  // Used only by the thread that pulls ahead, except in UseRowsAhead.
  AheadChannel ahead_{this};

  std::vector<std::unique_ptr<PushBuilder>> builders_;  // by server; constant
  Mutex push_mu_;
  std::vector<CallPtr> pushes_ ABSL_GUARDED_BY(push_mu_);

  std::atomic<uint64_t> next_request_{1};
  absl::Time last_round_ = absl::InfinitePast();  // of heart-beats; used only by the thread that calls Heartbeat
  std::thread heartbeat_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_CLIENT_IMPL_H_
