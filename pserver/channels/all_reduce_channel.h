// Channel of a trainer that holds all dense parameters (distribute.dense is ALL_REDUCE). It lies between the trainer's
// program and its servers.
//
// Dense gradients: each aligned node of the lane tree that this trainer has is summed over its lanes, the sums are
// added over all trainers in the tree (framework/collective), and the replica is updated with the result. Gradient rows
// of parameters that are sparse and not distributed are merged by id in each node, and every trainer gets the rows of
// all. Rows of distributed tables go to the servers.
//
// The program's mode may say otherwise of dense gradients, though not of measurements for running averages: sums in any
// order, of one sum for each trainer; 16 bits on the way (pserver/replica/compressed_sum.h); adasums of the lanes'
// means (framework/collective/adasum.h).
//
// If the trainers share the updates out, each gets the sums, and the rows, of its share alone, and the replica brings
// the new values of all.
//
// The dense gradients of a bucket (attribute of the program's all_reduce ops) are one exchange, the rows of a parameter
// one of their own. An exchange begins as soon as its gradients and those of all exchanges before it are there, while
// backward continues. The order of exchanges is that of their last all_reduce ops. The servers decide whether the step
// takes effect, for tables and replica alike. With 16 bits on the way a trainer gives its verdict when all exchanges
// have ended: a sum that is not finite is SKIP, and all trainers see the same sums. Threads as ParamChannel.
#ifndef WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_
#define WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/runtime/param_channel.h"
#include "proto/program.pb.h"
#include "pserver/protocol/norm_party.h"
#include "pserver/replica/compressed_sum.h"
#include "pserver/replica/dense_replica.h"

namespace weir {

struct AllReduceOptions {
  // The trainer's program. Borrowed for the call of Create.
  const v1::ProgramDesc* main = nullptr;
  int trainer_id = 0;
  // Borrowed. `servers` must have joined.
  DenseReplica* replica = nullptr;
  ParamChannel* servers = nullptr;
  // Further periods of averages with local_sgd, in steps: the replicas are also averaged after each multiple of one of
  // them, when a checkpoint, an evaluation or a digest reads them. 0 adds none.
  std::vector<int64_t> equal_every = {};
  // Keeps residuals of gradients that travel in 16 bits (CompressedSum). May be null.
  ResidualMemory residuals = nullptr;
};

class AllReduceChannel : public ParamChannel {
 public:
  // Creates the channel; that of local_sgd (pserver/channels/local_sgd_channel.h) if the program says so.
  // InvalidArgument: the program adds gradients that the replica does not hold, or one of its
  // buckets has too many.
  static absl::StatusOr<std::unique_ptr<AllReduceChannel>> Create(const AllReduceOptions& options);

  // Ends the exchanges of a step that has failed with `error`, here and on the other trainers; does nothing if none is
  // under way. The destructor calls it. Requires: called before the gradients of the step are destroyed, which
  // exchanges read until then.
  virtual void EndExchanges(const absl::Status& error) = 0;

  // Returns the holder of parts of norms over dense parameters and tables, for ServerSteps::SetNormParty; null if no
  // norm covers both. Valid as long as the channel.
  virtual NormParty* norm_party() = 0;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_ALL_REDUCE_CHANNEL_H_
