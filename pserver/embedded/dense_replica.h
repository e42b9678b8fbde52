// Dense parameters of a trainer that holds all of them (distribute.dense is ALL_REDUCE): values, optimizer state and
// learning rates, updated by the optimize blocks of the trainer's own program. All trainers hold the same bits; with
// local_sgd they do after each average.
//
// Beside the job's servers it is one more: number plan.servers() in digests and checkpoints. Not thread-safe.
#ifndef WEIR_PSERVER_EMBEDDED_DENSE_REPLICA_H_
#define WEIR_PSERVER_EMBEDDED_DENSE_REPLICA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/program.pb.h"
#include "pserver/server/gradient.h"

namespace weir {

class ServerParams;

class DenseReplica {
 public:
  struct Options {
    // Programs of the trainer, made by the transpiler for dense: ALL_REDUCE or read from files. Borrowed for the call
    // of Create.
    const v1::ProgramDesc* main = nullptr;
    const v1::ProgramDesc* startup = nullptr;
    // Borrowed. `collective`: its ranks are the trainers, by id.
    ThreadPool* pool = nullptr;
    Collective* collective = nullptr;
  };
  // Creates the parameters with their initial values. InvalidArgument names what the programs lack.
  static absl::StatusOr<std::unique_ptr<DenseReplica>> Create(const Options& options);
  ~DenseReplica();

  // The blocks, in the order of the plan.
  const ServerParams& params() const { return *params_; }
  ServerParams& params() { return *params_; }
  Collective& collective() const { return collective_; }

  // Runs the update of a step that takes effect. `gradients`: as ServerParams::Apply has them, of all trainers and
  // equal on all of them; with local_sgd those of this trainer. Empty: only schedules advance.
  absl::Status Update(int64_t step, absl::Span<const TrainerGradients> gradients);

  // Return the digests, and write the shard of a checkpoint into `directory`, as a server does.
  absl::StatusOr<v1::ControlReply> Digest();
  absl::StatusOr<v1::CheckpointShard> Save(const std::string& directory);
  // Reads the state from a checkpoint, written by jobs of any kind, which `manifest` describes.
  absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest);

  // The state of trainer `root` becomes that of all. Every trainer calls it at the same time, as CheckEqual.
  absl::Status Broadcast(int root);
  // Values and optimizer state become the mean of those of all trainers, by samples: `samples` of this trainer, of
  // `all_samples` (> 0, equal on all trainers) since they were equal. The mean has the same bits on all. Counters of
  // learning rates stay: they are equal. Every trainer calls it at the same time.
  absl::Status Average(int64_t samples, int64_t all_samples);
  // Compares the state of all trainers. DataLoss names the trainers that differ from the others, and the first
  // variable. `when`: for the message ("before step 3").
  absl::Status CheckEqual(std::string_view when);

 private:
  explicit DenseReplica(Collective* collective);

  Collective& collective_;
  std::string shard_file_;
  std::unique_ptr<ServerParams> params_;
  int64_t exchanges_ = 0;  // numbers the names of collective operations
};

}  // namespace weir

#endif  // WEIR_PSERVER_EMBEDDED_DENSE_REPLICA_H_
