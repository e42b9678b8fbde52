// Dense parameters of a trainer that holds all of them (distribute.dense is ALL_REDUCE): values, optimizer state and
// learning rates, updated by the optimize blocks of the trainer's own program. All trainers hold the same values; with
// local_sgd they do after each average. This class updates everything; pserver/replica/sharded_replica.h updates a
// share, and pserver/replica/make_replica.h chooses.
//
// Beside the job's servers trainer t is one more: number plan.servers() + t in digests and checkpoints. Not
// thread-safe.
#ifndef WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_
#define WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_

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
#include "framework/collective/collective.h"
#include "proto/checkpoint.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/params/gradient.h"
#include "pserver/params/server_params.h"
#include "pserver/protocol/norm_rounds.h"

namespace weir {

class DenseReplica {
 public:
  // A block of the plan that trainers hold.
  struct Block {
    v1::PlacedBlock placed;
    int target = -1;  // index in params(); -1: another trainer updates it
    int owner = -1;   // trainer that updates it; -1: every one does
  };
  // Parts that MakeReplica puts together.
  struct Parts {
    Collective* collective = nullptr;  // borrowed; its ranks are the trainers, by id
    int number = 0;                    // in checkpoints
    int norm_rounds = 0;               // most rounds of norms of an update, whichever trainer runs it
    std::unique_ptr<ServerParams> params = nullptr;
    std::vector<Block> blocks = {};  // in the order of the plan
  };
  explicit DenseReplica(Parts parts);
  virtual ~DenseReplica() = default;

  // The parameters that this trainer updates: all blocks, or its share, in the order of the plan.
  const ServerParams& params() const { return *params_; }
  ServerParams& params() { return *params_; }
  Collective& collective() const { return collective_; }
  virtual bool sharded() const { return false; }

  // Returns the index of a block by its name; -1 if trainers do not hold it.
  int FindBlock(std::string_view name) const;
  const Block& block(int i) const { return blocks_[static_cast<size_t>(i)]; }
  bool Holds(std::string_view parameter) const { return parameters_.contains(parameter); }
  // Copy the values of a block, and rows `ids` of a parameter with a gradient by rows to out [ids.size(), width].
  // InvalidArgument: the parameter is no such matrix, or has no such row.
  virtual void CopyBlock(int i, float* out);
  virtual absl::Status CopyRows(std::string_view parameter, absl::Span<const int64_t> ids, int width, float* out);

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
  // once, after Load or Start and before the first step.
  virtual absl::Status Gather() { return absl::OkStatus(); }
  // State that trainer `root` has loaded becomes that of all: all state, or with LoadValues values alone.
  virtual absl::Status Broadcast(int root);
  // Values and optimizer state become the mean of those of all trainers, by samples: `samples` of this trainer, of
  // `all_samples` (> 0, equal on all trainers) since they were equal. The mean has the same bits on all. Counters of
  // learning rates stay: they are equal. Requires: all_samples > 0; samples <= all_samples.
  absl::Status Average(int64_t samples, int64_t all_samples);
  // Compares what is equal on all trainers: all state, or all values. DataLoss names the trainers that differ from the
  // others, and the first variable. `when`: for the message ("before step 3").
  absl::Status CheckEqual(std::string_view when);
  // Returns on trainer `root` the digests of what trainers hold, which add up; on others nothing.
  virtual absl::StatusOr<std::vector<v1::ControlReply>> Digests(int root);
  // Write a checkpoint. AgreeOnSave returns the name that `root` gives. SaveShards has every trainer write a shard into
  // `directory`, its share of everything, and returns on `root` all shards by trainer, elsewhere nothing; `root` gets
  // the error of every trainer, with its name.
  absl::StatusOr<std::string> AgreeOnSave(int root, std::string name);
  absl::StatusOr<std::vector<v1::CheckpointShard>> SaveShards(int root, const std::string& directory);

  // Returns the digest of what this trainer updates.
  absl::StatusOr<v1::ControlReply> Digest();
  // Reads what this trainer updates from a checkpoint, written by jobs of any kind, which `manifest` describes.
  virtual absl::Status Load(const std::string& directory, const v1::CheckpointManifest& manifest) {
    return params_->Load(directory, manifest);
  }
  // Takes what this trainer updates from checkpoints of other jobs (ServerParams::Start).
  absl::Status Start(absl::Span<const StartCheckpoint> sources, const v1::StartPlan& plan) {
    return params_->Start(sources, plan);
  }
  // Reads what a trainer needs that makes no step, and of a sharded replica no more: the values of all parameters.
  virtual absl::Status LoadValues(const std::string& directory, const v1::CheckpointManifest& manifest) {
    return Load(directory, manifest);
  }

 protected:
  // Adds the sums of the other trainers to those of a round of norms.
  virtual absl::Status AddSumsOfOthers(int64_t /*step*/, NormSums* /*sums*/) { return absl::OkStatus(); }
  // Tells the other trainers what the gradients of a step have changed.
  virtual absl::Status TellUpdates(int64_t /*step*/, absl::Span<const TrainerGradients> /*gradients*/) {
    return absl::OkStatus();
  }
  // Returns the digests that CheckEqual compares.
  virtual absl::StatusOr<v1::ControlReply> DigestOfEqual() { return Digest(); }
  // Writes this trainer's shard of a checkpoint.
  virtual absl::StatusOr<v1::CheckpointShard> SaveOwn(const std::string& path);

  // Returns a name for the next collective operation, equal on all trainers.
  std::string NextName(std::string_view what);
  const std::vector<Block>& blocks() const { return blocks_; }
  // Blocks of each parameter.
  const std::map<std::string, std::vector<int>, std::less<>>& parameters() const { return parameters_; }

 private:
  // Returns the parameters that this trainer writes into a checkpoint.
  std::set<std::string, std::less<>> WrittenParameters() const;

  Collective& collective_;
  const int number_;
  const int norm_rounds_;
  const std::unique_ptr<ServerParams> params_;
  const std::vector<Block> blocks_;
  std::map<std::string, int, std::less<>> index_;
  std::map<std::string, std::vector<int>, std::less<>> parameters_;
  int64_t exchanges_ = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_DENSE_REPLICA_H_
