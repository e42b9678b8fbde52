// Channel of a trainer that holds all dense parameters (distribute.dense is ALL_REDUCE). It lies between the trainer's
// program and its servers.
//
// Dense gradients, and gradient rows of parameters that are sparse and not distributed, stay among the trainers and
// update the replica: the sums of all trainers in each step (pserver/channels/all_reduce_channel.h), or a trainer's own
// (pserver/channels/local_sgd_channel.h). Rows of distributed tables go to the servers, which decide whether the step
// takes effect, for tables and replica alike. Threads as ParamChannel.
#ifndef WEIR_PSERVER_CHANNELS_REPLICA_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_REPLICA_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"
#include "pserver/protocol/norm_party.h"
#include "pserver/replica/compressed_sum.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

// Gradient of one block of parameters that trainers hold.
struct GradientPart {
  std::string name;  // of the block
  std::string parameter;
  int owner = -1;         // trainer that updates the block; -1: every one does
  int target = -1;        // index in the replica's parameters; -1: this trainer does not update it
  int64_t count = 0;      // elements
  int width = 0;          // > 0: rows
  bool measured = false;  // a measurement for a running average, not a gradient
};

class ReplicaChannel : public ParamChannel {
 public:
  struct Options {
    // The trainer's program. Borrowed for the call that creates the channel.
    const v1::ProgramDesc* main = nullptr;
    int trainer_id = 0;
    // Borrowed. `servers` must have joined.
    DenseReplica* replica = nullptr;
    ParamChannel* servers = nullptr;
    // Further periods of averages with local_sgd, in steps: the replicas are also averaged after each multiple of one
    // of them, when a checkpoint, an evaluation or a digest reads them. 0 adds none.
    std::vector<int64_t> equal_every = {};
    // Keeps residuals of gradients that travel in 16 bits (CompressedSum). May be null.
    ResidualMemory residuals = nullptr;
  };

  // Ends the exchanges of a step that has failed with `error`, here and on the other trainers; does nothing if none is
  // under way. The destructor calls it. Requires: called before the gradients of the step are destroyed, which
  // exchanges read until then.
  virtual void EndExchanges(const absl::Status& error) = 0;

  // Returns the holder of parts of norms over dense parameters and tables, for ServerSteps::SetNormParty; null if no
  // norm covers both. Valid as long as the channel.
  virtual NormParty* norm_party() = 0;

  absl::Status BeginStep(int64_t step, bool read_only) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override;
  void UseRowsAhead() override { servers_.UseRowsAhead(); }
  void SetStepSamples(int64_t samples) override { servers_.SetStepSamples(samples); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 protected:
  explicit ReplicaChannel(const Options& options);

  // Reads the parts from the program's ops of type `op`. InvalidArgument: the replica does not hold a block, or two ops
  // have one.
  absl::Status ReadParts(const v1::ProgramDesc& main, const char* op);

  // Forgets the gradients of the step before.
  virtual void Clear() = 0;
  // Take the gradient of parts()[part]; rows as PackNodeRows makes them. Called by the threads of SendDense and
  // SendRows.
  virtual absl::Status GiveDense(size_t part, absl::Span<const LaneTensor> lanes) = 0;
  virtual void GiveRows(size_t part, std::string rows) = 0;
  // Ends the sends of a step that is not read-only, those to the servers too.
  virtual absl::Status Finish(int64_t samples, v1::Verdict verdict) = 0;
  // Ends a step whose sends have ended; `effective`: with an update.
  virtual absl::Status End(const StepOutcome& outcome, bool effective) = 0;

  DenseReplica& replica() const { return replica_; }
  ParamChannel& servers() const { return servers_; }
  const std::vector<GradientPart>& parts() const { return parts_; }  // in the order of the program
  int lanes() const { return lanes_; }                               // leaves of the lane tree
  const std::vector<LaneRange>& own_nodes() const { return own_nodes_; }
  int64_t step() const { return step_; }

 private:
  // Returns the index of the block's part; FailedPrecondition in a step that sends nothing.
  absl::StatusOr<size_t> FindPart(const BlockRef& block) const;

  DenseReplica& replica_;
  ParamChannel& servers_;
  const int lanes_;
  const std::vector<LaneRange> own_nodes_;
  // Constant after ReadParts.
  std::vector<GradientPart> parts_;
  std::map<std::string, size_t, std::less<>> part_of_;  // by block

  // Used by the thread that runs the program.
  int64_t step_ = 0;
  bool read_only_ = false;
  bool sent_ = false;  // the sends of this step have ended
  std::vector<std::pair<int, Tensor*>> wanted_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_REPLICA_CHANNEL_H_
