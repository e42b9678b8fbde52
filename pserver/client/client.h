// Client of the parameter servers, in parts: the trainer as a member of its job, what it tells other trainers, the
// steps of its program, rows of later steps, residuals. Every part names the process that a wait depends on.
//
// Heart-beats run on a thread of their own ("weir-heartbeat"), which the destructor stops. A second thread may pull
// rows ahead of the program. Every wait is bounded: it returns with the answer, with the job's failure, or with a
// deadline error.
#ifndef WEIR_PSERVER_CLIENT_CLIENT_H_
#define WEIR_PSERVER_CLIENT_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/clock.h"
#include "framework/base/thread_pool.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/residual_exchange.h"
#include "pserver/client/server_steps.h"
#include "pserver/member/exchanged.h"
#include "pserver/member/member.h"
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

class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Create(ClientOptions options);

  // Joins every server. Logs the servers that are missing every slow_warning_s, until connect_deadline_s. A refusal
  // fails at once. Member::RequestStop ends it with Cancelled if a second later some server is still missing. On
  // failure the servers already joined are told: after a refusal they get this trainer's place back; a missing server,
  // and a stop, end the job.
  absl::Status Join();

  // Thread-safe, save Join and Control.
  Member& member() { return member_; }
  Board& board() { return member_.exchanges(); }
  // Returns a board with the same posts, which threads may use beside the program's and the one ahead of it. Its waits
  // for answers end with the job's failure; servers are not told of them.
  PostBoard& board_beside() { return member_.exchanges_beside(); }
  // For the thread that runs the program.
  ServerSteps& steps() { return *steps_; }
  // Speaks to the servers with relayed[server] through the relay of this host from now on (pserver/host). `nodes`: by
  // trainer, what it has residuals of. Requires: Join; called by every trainer, before its first step.
  void UseRelay(std::vector<bool> relayed, std::vector<std::vector<LaneRange>> nodes);
  // For one thread beside it.
  AheadRows& ahead() { return steps_->ahead(); }
  // For the thread that runs the program, at step borders.
  ResidualExchange& residuals() { return residuals_; }

  // Bytes and messages in and out since creation.
  struct Counters {
    int64_t bytes_sent = 0, bytes_received = 0, messages = 0, rows_pulled = 0, rows_pushed = 0, retries = 0;
    // Finite elements of gradients beyond 65504, pushed in WIRE_FLOAT16.
    int64_t large_gradients = 0;
  };
  Counters counters() const;

 private:
  explicit Client(ClientOptions options);

  const ClientOptions options_;
  Member member_;
  BlockPlacement placement_;
  BufferPool buffers_;
  const std::unique_ptr<ServerSteps> steps_;
  ResidualExchange residuals_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_CLIENT_H_
