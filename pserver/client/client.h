// The trainer's side: joins every server, keeps its lease, pushes and pulls, and names whom it waits for.
//
// Thread-safe where ParamChannel is; heart-beats have a thread of their own (named "weir-heartbeat"), stopped by the
// destructor. A second thread may pull rows ahead of the program (Ahead). Every wait ends: with what was waited for,
// with the job's failure, or with a deadline.
#ifndef WEIR_PSERVER_CLIENT_CLIENT_H_
#define WEIR_PSERVER_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/protocol/transport.h"

namespace weir {

struct ClientOptions {
  v1::Plan plan;
  int trainer_id = 0;
  std::string job_name;
  std::string plan_text;
  v1::Deadlines deadlines;
  std::string checkpoint_dir;  // absolute, or empty
  bool checkpoint_per_host = false;
  std::string process;     // "host:pid"
  std::string arithmetic;  // resolved
  // Borrowed; outlive the client.
  Transport* transport = nullptr;
  Clock* clock = nullptr;
  ThreadPool* pool = nullptr;
  // The program's (framework/graph/training_mode.h): a step begins when no trainer is too far behind.
  bool bounded_staleness = false;
  // false: the caller calls Heartbeat() itself (tests with a fake clock).
  bool heartbeat_thread = true;
};

class Client : public ParamChannel {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);

  // Joins every server; names those that are missing every slow_warning_s until connect_deadline_s. Refusals end at
  // once. When it fails the servers that it has joined know: a refusal gives them their place back, a server that is
  // missing ends the job.
  virtual absl::Status Join() = 0;

  // One round of heart-beats to all servers.
  virtual void Heartbeat() = 0;

  // Async: pulls rows for steps to come, on one other thread beside the program's. BeginStep names the step that they
  // are for, and PullRows asks at the version that this step is entitled to: with bounded staleness it waits as the
  // step itself would. What the program has pushed for the step before may be missing. Only rows: everything else is
  // FailedPrecondition. Borrowed.
  //
  // The program takes the place that ids have in the newest pull with UseRowsAhead, while none is under way.
  virtual ParamChannel* Ahead() = 0;
  // The program waits for a pull that is under way there, or does not any more: servers are told what it waits for
  // meanwhile.
  virtual void NeedAhead(bool needed) = 0;
  // Ends the pull that is under way, and all later ones, with Cancelled. From any thread.
  virtual void CancelAhead() = 0;

  // The step this trainer goes on from after a resume. Before the first BeginStep.
  virtual void SetFirstStep(int64_t step) = 0;
  // Examples of this trainer in step 0 of the job, which servers judge the last steps by (PushRequest.first_samples).
  // Before FinishSends; without it no step is too small.
  virtual void SetFirstSamples(int64_t samples) = 0;
  // Async: this trainer has taken the place of a dead one, which would have begun this step next: where servers differ,
  // on the last of them, and with norms over servers on the first. Others have long begun: there is nothing to load or
  // to set aside. After Join.
  virtual std::optional<int64_t> TakesOver() = 0;
  // The same for all trainers of one run of the job, and of no other: what server 0 has drawn at random. "" without
  // checkpoints. After Join.
  virtual std::string RunId() = 0;
  // The servers need each other's sums for norms in every step. After Join.
  virtual bool ExchangesNorms() = 0;

  // Every trainer gives its bytes under `key` and gets everyone's, by trainer id. Waits for all, with the usual
  // deadlines. Any size. Keys are used once. kept: a trainer that takes the place of a dead one later gets what was
  // given then. In async the deadline runs only while no server's version moves.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution,
                                                            bool kept = false) = 0;
  // The same without waiting: gives now; TryCollect says whether all are there (async evaluation).
  // reader: the one trainer that will collect it, or the chief when that one is gone; -1: all. `all` is empty when this
  // trainer's own is not there any more: another chief has collected it.
  virtual absl::Status Contribute(std::string_view key, std::string contribution, int reader = -1) = 0;
  virtual absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) = 0;

  // Each trainer's newest bytes under a key, apart from those exchanged: they take the place of what this trainer has
  // posted with a smaller edition (0 and up), and nobody waits for anyone. "" of one that has posted nothing.
  virtual absl::Status Post(std::string_view key, std::string contribution, int64_t edition) = 0;
  virtual absl::StatusOr<std::string> Posted(std::string_view key, int trainer) = 0;

  // Bytes of any size for one other trainer, which reads them meanwhile with ReadStream: a few MiB of them are on their
  // way at a time. Keys are used once. One thread at a time.
  class Stream {
   public:
    virtual ~Stream() = default;
    // May wait for the reader, with the usual deadlines.
    virtual absl::Status Append(std::string_view bytes) = 0;
    virtual absl::Status Finish() = 0;
  };
  virtual std::unique_ptr<Stream> StreamTo(std::string_view key, int trainer) = 0;
  // Takes what another trainer streams, piece by piece, to its end. FailedPrecondition: the other is gone.
  using Take = std::function<absl::Status(std::string_view bytes)>;
  virtual absl::Status ReadStream(std::string_view key, int trainer, const Take& take) = 0;

  // The trainer that has the duties of the chief, as server 0 last said: it writes checkpoints, collects evaluations
  // and says their lines. Trainer 0, until it is dead or done; then (in async) the lowest living trainer, which keeps
  // them in its turn. After Join.
  virtual int Chief() = 0;
  // The newest post of anyone under a key.
  struct Word {
    int by = -1;  // its trainer; -1: nobody has posted
    int64_t edition = -1;
    std::string text;
    // This trainer is the chief, said server 0 in the same answer.
    bool chief = false;
  };
  // Waits until there is one with at least this edition, or until this trainer is the chief. Twice the usual deadline.
  virtual absl::StatusOr<Word> AwaitWord(std::string_view key, int64_t edition) = 0;
  // As it is now.
  virtual absl::StatusOr<Word> NewestWord(std::string_view key) = 0;

  // To every server; answers by server index. For the chief at a step border.
  virtual absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request) = 0;

  // Ask for the end of the job at the next common step border.
  virtual void RequestStop() = 0;
  // Someone asked for the end (async jobs look at this at their own step borders).
  virtual bool StopRequested() = 0;
  // Tells every server that this trainer ends with an error, so that the others end too. When the job has failed
  // elsewhere that is the story that is told (JobStatus). Returns when every server has heard, but those that are
  // themselves dead, or after 2 s.
  virtual void ReportFailure(const absl::Status& status) = 0;
  // Tells every server that this trainer is done. Waits for the acknowledgement.
  virtual absl::Status Done() = 0;
  // Not OK when the job has failed elsewhere or a server is dead.
  virtual absl::Status JobStatus() = 0;

  // Bytes and messages in and out since creation.
  struct Counters {
    int64_t bytes_sent = 0, bytes_received = 0, messages = 0, rows_pulled = 0, rows_pushed = 0, retries = 0;
  };
  virtual Counters counters() const = 0;

  // What gradients have lost in lossy formats and not sent yet (pserver/client/residuals.h). What is saved is a
  // weir.v1.Residuals of any size, taken and given in pieces; pieces of several trainers one after the other are one.
  virtual bool KeepsResiduals() const = 0;
  // Sync, every trainer at the same step border: `take` of trainer `to` gets everyone's. `step`: steps that have been
  // pushed.
  virtual absl::Status GatherResiduals(int64_t step, int to, const Take& take) = 0;
  // Async: posts this trainer's at a step border; takes those of the others as they posted them last, and this one's of
  // now.
  virtual absl::Status PostResiduals(int64_t step) = 0;
  virtual absl::Status TakeResiduals(int64_t step, const Take& take) = 0;
  // Every trainer, before the first step: gets its part of what trainer `from` reads, who gives it to `Take` when
  // asked; `step` is the one it goes on at. DataLoss: it is no such thing.
  virtual absl::Status DealResiduals(int from, const std::function<absl::Status(const Take&)>& read, int64_t step) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_CLIENT_H_
