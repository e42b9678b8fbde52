// Dense parameters of a trainer that holds all of them (distribute.dense is ALL_REDUCE): values, optimizer state and
// learning rates, updated by the optimize blocks of the trainer's own program. All trainers hold the same values; with
// local_sgd they do after each average.
//
// If the trainers share the updates out (distribute.update is SHARDED), each has the optimizer state of its share
// alone, runs its updates, and gives the new values to the others (pserver/replica/gathered_values.h).
//
// Beside the job's servers trainer t is one more: number plan.servers() + t in digests and checkpoints. Not
// thread-safe.
#ifndef WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_
#define WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/base/thread_pool.h"
#include "framework/collective/collective.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "proto/program.pb.h"
#include "pserver/params/gradient.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

class GatheredValues;
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

  // The parameters that this trainer updates: all blocks, or its share, in the order of the plan.
  const ServerParams& params() const { return *params_; }
  ServerParams& params() { return *params_; }
  Collective& collective() const { return collective_; }
  bool sharded() const { return values_ != nullptr; }

  // A block of the plan that trainers hold.
  struct Block {
    v1::PlacedBlock placed;
    int target = -1;  // index in params(); -1: another trainer updates it
  };
  // Returns the index of a block by its name; -1 if trainers do not hold it.
  int FindBlock(std::string_view name) const;
  const Block& block(int i) const { return blocks_[static_cast<size_t>(i)]; }
  bool Holds(std::string_view parameter) const { return parameters_.contains(parameter); }
  // Copy the values of a block, and rows `ids` of a parameter with a gradient by rows to out [ids.size(), width].
  // InvalidArgument: the parameter is no such matrix, or has no such row.
  void CopyBlock(int i, float* out);
  absl::Status CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out);

  // The following exchange values. Requires: every trainer calls them in the same order, since each waits for all.
  //
  // Runs the update of a step that takes effect. `gradients`: as ServerParams::Apply has them, of all trainers: of all
  // blocks, equal on all trainers, or of this trainer's share; with local_sgd those of this trainer. Empty: only
  // schedules advance. `shared`: norms of the first round that cover what servers hold, too.
  absl::Status Update(int64_t step, absl::Span<const TrainerGradients> gradients, const Norms& shared = {});
  // Returns the sums of the first round of norms under the names that `of` contains, over all dense parameters; changes
  // nothing. Exchanges sums if the replica is sharded.
  absl::StatusOr<NormSums> FirstSums(int64_t step, absl::Span<const TrainerGradients> gradients,
                                     const std::set<std::string>& of);
  // Makes the values of all shares known to all trainers. Does nothing unless the replica is sharded. Requires: called
  // once, after Load and before the first step.
  absl::Status Gather();
  // State that trainer `root` has loaded becomes that of all: all state, or with LoadValues values alone.
  absl::Status Broadcast(int root);
  // Values and optimizer state become the mean of those of all trainers, by samples: `samples` of this trainer, of
  // `all_samples` (> 0, equal on all trainers) since they were equal. The mean has the same bits on all. Counters of
  // learning rates stay: they are equal. Requires: all_samples > 0; samples <= all_samples.
  absl::Status Average(int64_t samples, int64_t all_samples);
  // Compares what is equal on all trainers: all state, or all values. DataLoss names the trainers that differ from the
  // others, and the first variable. `when`: for the message ("before step 3").
  absl::Status CheckEqual(std::string_view when);
  // Returns on trainer `root` the digests of what trainers hold, which add up; on others nothing.
  absl::StatusOr<std::vector<v1::ControlReply>> Digests(int root);
  // Write a checkpoint. AgreeOnSave returns the name that `root` gives. SaveShards has every trainer write a shard into
  // `directory`, its share of everything, and returns on `root` all shards by trainer, elsewhere nothing; `root` gets
  // the error of every trainer, with its name.
  absl::StatusOr<std::string> AgreeOnSave(int root, std::string name);
  absl::StatusOr<std::vector<v1::CheckpointShard>> SaveShards(int root, const std::string& directory);

  // Returns the digest of what this trainer updates.
  absl::StatusOr<v1::ControlReply> Digest();
  // Reads what this trainer updates from a checkpoint, written by jobs of any kind, which `manifest` describes.
  absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest);
  // Reads what a trainer needs that makes no step, and of a sharded replica no more: the values of all parameters.
  absl::Status LoadValues(const std::string& directory, const v1::CheckpointManifest& manifest);

 private:
  explicit DenseReplica(Collective* collective);

  absl::Status AddBlocks(const v1::Plan& plan, bool sharded);
  // Adds the sums of the other trainers to the sums of a round.
  absl::Status AddSumsOfOthers(NormSums* sums);
  using RowsByBlock = std::map<int, std::vector<int64_t>>;
  // Copies the values of this trainer's share to those that the others get: of blocks with gradients by rows only
  // `rows`, null: everything.
  void CopyShare(const RowsByBlock* rows);
  // Returns the rows of gradients.
  RowsByBlock RowsOf(absl::Span<const TrainerGradients> gradients) const;
  // Returns the digests that CheckEqual compares.
  absl::StatusOr<v1::ControlReply> DigestOfEqual();
  // Returns the parameters that this trainer writes into a checkpoint.
  std::set<std::string, std::less<>> WrittenParameters() const;
  // Sets the values of a whole parameter.
  absl::Status SetValues(const std::string& parameter, absl::Span<const float> whole);
  // Returns a name for the next collective operation, equal on all trainers.
  std::string NextName(std::string_view what);

  Collective& collective_;
  int number_ = 0;  // in checkpoints
  int norm_rounds_ = 0;
  std::unique_ptr<ServerParams> params_;
  std::vector<Block> blocks_;  // in the order of the plan
  std::map<std::string, int, std::less<>> index_;
  std::map<std::string, std::vector<int>, std::less<>> parameters_;  // blocks of each
  std::unique_ptr<GatheredValues> values_;                           // null: every trainer updates everything
  int64_t exchanges_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_
