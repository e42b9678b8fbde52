// Client of the parameter servers: joins every server, keeps the trainer's lease, pushes and pulls, and names the
// process that a wait depends on.
//
// Thread-safe where ParamChannel is. Heart-beats run on a thread of their own ("weir-heartbeat"), which the destructor
// stops. A second thread may pull rows ahead of the program (Ahead). Every wait is bounded: it returns with the answer,
// with the job's failure, or with a deadline error.
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
#include "pserver/member/exchanged.h"
#include "pserver/protocol/norm_party.h"
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
  // Borrowed; must outlive the client.
  Transport* transport = nullptr;
  Clock* clock = nullptr;
  ThreadPool* pool = nullptr;
  // Set from the program's training mode (framework/graph/training_mode.h): a step begins only when no trainer is too
  // far behind.
  bool bounded_staleness = false;
  // Set from the program's training mode: dense gradients travel in 16 bits between trainers, and DenseResidual keeps
  // what they lose.
  bool compresses = false;
  // In sync FinishSends returns before its pushes are acknowledged, and FinishReceives waits for that and for the
  // blocks of the new version at the same time: one round trip less in a step. Without effect in jobs whose steps
  // exchange norms.
  bool receives_beside_sends = false;
  // False if the caller calls Heartbeat() itself (tests with a fake clock); no thread is started then.
  bool heartbeat_thread = true;
};

class Client : public ParamChannel {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);

  // Joins every server. Logs the servers that are missing every slow_warning_s, until connect_deadline_s. A refusal
  // fails at once. RequestStop ends it with Cancelled if a second later some server is still missing. On failure the
  // servers already joined are told: after a refusal they get this trainer's place back; a missing server, and a stop,
  // end the job.
  virtual absl::Status Join() = 0;

  // Sends one round of heart-beats to all servers. Requires: ClientOptions::heartbeat_thread is false.
  virtual void Heartbeat() = 0;

  // Returns a borrowed source of rows for later steps, for use by one thread beside the program's. BeginStep names the
  // step the rows are for, and PullRows asks at the version that this step is entitled to: in sync at its own; with
  // bounded staleness it waits as the step itself would. In async the rows may miss what the program has pushed for the
  // step before.
  //
  // The program adopts the id positions of the newest pull with UseRowsAhead. Requires: no pull is under way then.
  virtual RowSource* Ahead() = 0;
  // Sync: whether Ahead() pulls rows ahead of their version, and then corrects those that have changed; else its pulls
  // wait at the servers for the version. The rows are the same. At first true. Requires: nothing is pulled ahead.
  virtual void PullAheadOfVersion(bool on) = 0;
  // Sets whether the program waits for a pull that is under way on Ahead(). While it does, heart-beats tell the servers
  // what that pull waits for.
  virtual void NeedAhead(bool needed) = 0;
  // Ends the pull that is under way, and all later ones, with Cancelled. Callable from any thread.
  virtual void CancelAhead() = 0;

  // Sets the step that this trainer continues from after a resume. Requires: called before the first BeginStep.
  virtual void SetFirstStep(int64_t step) = 0;
  // Sets the number of examples of this trainer in step 0 of the job, by which servers judge the last steps
  // (PushRequest.first_samples). Without it no step counts as too small. Requires: called before FinishSends.
  virtual void SetFirstSamples(int64_t samples) = 0;
  // Sync: the step of the next FinishSends takes no effect, and the run ends before it, whatever the others push.
  virtual void EndWithNextSends() = 0;
  // Async: returns the step to begin with when this trainer has taken the place of a dead one, else nullopt. It is the
  // step that the dead trainer would have begun next; where servers differ, the smallest of their steps, and with norms
  // over servers the largest. The other trainers have long begun, so there is nothing to load or to set aside.
  // Requires: Join.
  virtual std::optional<int64_t> TakesOver() = 0;
  // Returns a token that all trainers of one run of the job share and that no other run has: server 0 draws it at
  // random. "" without checkpoints. Requires: Join.
  virtual std::string RunId() = 0;
  // Returns true if servers need each other's sums for norms in every step. Requires: Join.
  virtual bool ExchangesNorms() = 0;

  // Gives this trainer's bytes under `key` and returns the bytes of every trainer, by trainer id. Waits for all
  // trainers, with the usual deadlines; in async the deadline runs only while no server's version moves. Contributions
  // may have any size. Requires: the key is new; all trainers call it. `kept`: a trainer that later takes the place of
  // a dead one gets the bytes given now. `until_stop`: RequestStop ends the wait with Cancelled when it lasts a second
  // longer; the caller then ends the job (ReportFailure), as others may have seen the exchange complete.
  virtual absl::StatusOr<std::vector<std::string>> Exchange(std::string_view key, std::string contribution,
                                                            bool kept = false, bool until_stop = false) = 0;
  // Contribute gives this trainer's bytes without waiting; TryCollect returns whether all contributions are there, and
  // then sets `all` (async evaluation). `reader`: the one trainer that will collect them, or the chief when that one is
  // gone; -1: all trainers. `all` comes back empty when this trainer's own contribution is gone because another chief
  // has collected it.
  virtual absl::Status Contribute(std::string_view key, std::string contribution, int reader = -1) = 0;
  virtual absl::StatusOr<bool> TryCollect(std::string_view key, std::vector<std::string>* all) = 0;

  // Post replaces what this trainer has posted under the key with a smaller edition (0 and up); Posted returns a
  // trainer's newest post, "" if it has posted none. Posts are kept apart from exchanged bytes, and no call waits for
  // another trainer.
  virtual absl::Status Post(std::string_view key, std::string contribution, int64_t edition) = 0;
  virtual absl::StatusOr<std::string> Posted(std::string_view key, int trainer) = 0;

  // Returns a borrowed board with the same posts, which threads may use beside the program's and the one ahead of it.
  // Its waits for answers end with the job's failure; servers are not told of them.
  virtual PostBoard* Beside() = 0;
  // Sets whether this trainer waits for data that does not exist yet (data.follow). Heart-beats tell the servers, and
  // no deadline for progress runs while a trainer waits. Callable from any thread.
  virtual void SetAwaitsFiles(bool awaits) = 0;
  // Returns whether some trainer waits for such data, as the servers last said. Callable from any thread.
  virtual bool AnyAwaitsFiles() = 0;

  // Sends bytes of any size to one other trainer, which reads them meanwhile with ReadStream; only a few MiB are under
  // way at a time. Requires: the key is new.
  using Stream = ByteStream;
  virtual std::unique_ptr<Stream> StreamTo(std::string_view key, int trainer) = 0;
  // Passes what another trainer streams to `take`, piece by piece, to its end. FailedPrecondition: the other trainer is
  // gone.
  using Take = TakeBytes;
  virtual absl::Status ReadStream(std::string_view key, int trainer, const Take& take) = 0;

  // Returns the trainer that has the duties of the chief, as server 0 last said: it writes checkpoints, collects
  // evaluations and logs their lines. It is trainer 0 until that one is dead or done; then (in async) it is the lowest
  // living trainer, which keeps the duties in its turn. Requires: Join.
  virtual int Chief() = 0;
  using Word = PostedWord;
  // Waits until a post with at least this edition exists, or until this trainer is the chief. Waits twice the usual
  // deadline at most.
  virtual absl::StatusOr<Word> AwaitWord(std::string_view key, int64_t edition) = 0;
  // Returns the newest post without waiting.
  virtual absl::StatusOr<Word> NewestWord(std::string_view key) = 0;

  // Sends the request to every server; answers by server index. Requires: this trainer is the chief, at a step border.
  // `until_stop`: as in Exchange; servers then finish the request by themselves.
  virtual absl::StatusOr<std::vector<v1::ControlReply>> Control(const v1::ControlRequest& request,
                                                                bool until_stop = false) = 0;

  // Asks for the end of the job at the next common step border.
  virtual void RequestStop() = 0;
  // Returns true if some process has asked for the end of the job. Async jobs check this at their own step borders.
  virtual bool StopRequested() = 0;
  // Tells every server that this trainer ends with an error, so that the other processes end too. When the job has
  // failed elsewhere, reports that failure instead (JobStatus). Returns when every living server has heard, or after 2
  // s. Callable from any thread.
  virtual void ReportFailure(const absl::Status& status) = 0;
  // Tells every server that this trainer is done and waits for the acknowledgement. Requires: Join; no step follows.
  // `stopped`: the job ends before it is complete, because its end was requested.
  virtual absl::Status Done(bool stopped = false) = 0;
  // Returns an error when the job has failed elsewhere or a server is dead.
  virtual absl::Status JobStatus() = 0;

  // Bytes and messages in and out since creation.
  struct Counters {
    int64_t bytes_sent = 0, bytes_received = 0, messages = 0, rows_pulled = 0, rows_pushed = 0, retries = 0;
    // Finite elements of gradients beyond 65504, pushed in WIRE_FLOAT16.
    int64_t large_gradients = 0;
  };
  virtual Counters counters() const = 0;

  // The next functions save and restore residuals: the parts of gradients that were lost in lossy formats and have
  // not been sent yet (pserver/client/residuals.h). The saved form is a weir.v1.Residuals of any size, handed over in
  // pieces; the pieces of several trainers, concatenated, are one such message.
  //
  // Returns the residual of a parameter in the sum of all lanes of this trainer, `count` floats, zeros at first. The
  // channel that adds gradients among the trainers keeps it there. Valid as long as the client. Requires:
  // DealResiduals.
  virtual absl::Span<float> DenseResidual(const std::string& parameter, int64_t count) = 0;
  // Returns true if this client keeps residuals.
  virtual bool KeepsResiduals() const = 0;
  // Calls `take` on trainer `to` with the residuals of every trainer. `step`: number of steps pushed so far. Requires:
  // sync; every trainer calls it at the same step border.
  virtual absl::Status GatherResiduals(int64_t step, int to, const Take& take) = 0;
  // Async: PostResiduals posts this trainer's residuals at a step border. TakeResiduals calls `take` with the newest
  // post of every other trainer and with this trainer's present residuals.
  virtual absl::Status PostResiduals(int64_t step) = 0;
  virtual absl::Status TakeResiduals(int64_t step, const Take& take) = 0;
  // Trainer `from` calls `read`, which passes the saved residuals to its Take; every trainer restores its part of them.
  // Requires: every trainer calls it before the first step. `step`: the step this trainer goes on at. DataLoss: the
  // bytes are not saved residuals.
  virtual absl::Status DealResiduals(int from, const std::function<absl::Status(const Take&)>& read, int64_t step) = 0;

  // Sets the holder of parts of norms beside the servers; null: none. Borrowed until the last FinishSends. Only the
  // client that brings norms asks it. Requires: all trainers call it, before the first FinishSends.
  virtual void SetNormParty(NormParty* party) = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_CLIENT_H_
