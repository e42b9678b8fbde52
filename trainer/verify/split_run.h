// The whole cluster of a job in one process: real servers and clients over direct calls, the programs of every server
// and every trainer, each trainer on a thread of its own.
#ifndef WEIR_TRAINER_VERIFY_SPLIT_RUN_H_
#define WEIR_TRAINER_VERIFY_SPLIT_RUN_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/checkpoint/digest.h"
#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/tensor/tensor.h"
#include "proto/plan.pb.h"
#include "pserver/channels/replica_channel.h"
#include "pserver/client/client.h"
#include "pserver/inside/in_process.h"
#include "pserver/replica/dense_replica.h"
#include "trainer/data/lane_reader.h"
#include "trainer/session/loss_scaler.h"
#include "trainer/session/session.h"
#include "transpiler/base/programs.h"

namespace weir {

struct Job;

struct SplitRunOptions {
  // Threads of each trainer, and of all servers together.
  int threads = 1;
  // Direct calls make and compare checksums of payloads, as a network does.
  bool check_payloads = false;
  // Set: returns the transport by which trainers call the servers, instead of direct calls.
  std::function<absl::StatusOr<std::unique_ptr<Transport>>(InProcessServers*)> network = {};
  // Lets tests plant defects: called before the run with each server's programs, and with the trainers' programs and
  // server -1.
  std::function<void(int server, Programs* programs)> edit = {};
  // Passed to every server (ServerOptions::dense_sum).
  const DenseSum* dense_sum = nullptr;
};

// Sync jobs only. Not thread-safe.
class SplitRun {
 public:
  // Borrows the job.
  SplitRun(const Job& job, SplitRunOptions options);
  SplitRun(const SplitRun&) = delete;
  SplitRun& operator=(const SplitRun&) = delete;

  // Makes the servers and the trainers, which receive the initial values. Call once. `columns`: those of the batches.
  absl::Status Start(const std::vector<Column>& columns);

  // Runs a step on every trainer. `batches`: those that make the step, each with the batches of all lanes, which are
  // copied. Returns the first cause when trainers fail.
  absl::Status Step(int64_t step, const std::vector<std::vector<LaneBatch>>& batches);

  // Returns the digests of everything that servers and replicas hold, as of `version`.
  absl::StatusOr<DigestTable> Digests(int64_t version);

  // Returns the value that a trainer has received; nullptr if its program has no such variable.
  const Tensor* Received(size_t trainer, const std::string& parameter) const;

  size_t trainers() const { return sessions_.size(); }
  const v1::Plan& plan() const { return trainer_.main.plan(); }

 private:
  // Creates what trainers have that hold the dense parameters.
  absl::Status MakeReplicas(const v1::Deadlines& deadlines);
  // Makes the values of all replicas known to all of them.
  absl::Status GatherValues();
  ParamChannel* channel(int trainer);

  const Job& job_;
  const SplitRunOptions options_;
  LossScaler loss_scaler_;
  ThreadPool pool_;                                 // of the servers
  std::vector<std::unique_ptr<ThreadPool>> pools_;  // one per trainer, as in separate processes
  Programs trainer_;
  std::unique_ptr<InProcessServers> servers_;
  std::unique_ptr<Transport> network_;  // null: direct calls
  std::vector<std::unique_ptr<Client>> clients_;
  // Meshes and collectives by trainer with dense: ALL_REDUCE; else empty.
  std::unique_ptr<LocalMeshes> meshes_;
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<DenseReplica>> replicas_;
  std::vector<std::unique_ptr<ReplicaChannel>> channels_;
  std::vector<std::unique_ptr<Session>> sessions_;
};

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_SPLIT_RUN_H_
