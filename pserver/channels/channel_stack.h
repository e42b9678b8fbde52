// Channels between the programs of one trainer and its servers, in the one place that knows their order.
//
// Each is present only if the job asks for it. Steps go through these, from the program to the servers:
//
//   AccumulatingChannel   one per worker, made by its Session (train.accumulate_steps)
//   WorkerGroup           merges the workers' pushes (train.workers > 1)
//   ReplicaChannel        distribute.dense: ALL_REDUCE
//   CachedRowSource       table.cache
//   Client
//
// A geo job has GeoChannel in place of the group and the cache. With prefetch_rows, the rows of steps come through a
// second stack, and so does the cache, since no rows of training pass through the first:
//
//   CachedRowSource       table.cache
//   ReplicaRowsAhead      distribute.dense: ALL_REDUCE
//   Client::ahead()
#ifndef WEIR_PSERVER_CHANNELS_CHANNEL_STACK_H_
#define WEIR_PSERVER_CHANNELS_CHANNEL_STACK_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/param_channel.h"
#include "proto/job.pb.h"
#include "pserver/channels/geo_channel.h"
#include "pserver/channels/half_async.h"
#include "pserver/channels/replica_channel.h"
#include "pserver/channels/row_cache.h"
#include "pserver/client/client.h"
#include "pserver/replica/dense_replica.h"
#include "pserver/replica/replica_reads.h"
#include "transpiler/split/transpile.h"

namespace weir {

// Threads as ParamChannel.
class ChannelStack {
 public:
  struct Options {
    // Borrowed for the life of the stack. The client has joined.
    Client* client = nullptr;
    ThreadPool* pool = nullptr;
    // Borrowed for the call of Create.
    const v1::JobConfig* config = nullptr;
    const Programs* programs = nullptr;
    int trainer_id = 0;
    // Borrowed for the life of the stack; null: servers hold the dense parameters.
    DenseReplica* replica = nullptr;
    // Number of steps that this trainer has done before.
    int64_t first_step = 0;
  };
  // Errors as GeoChannel::Create and MakeReplicaChannel.
  static absl::StatusOr<std::unique_ptr<ChannelStack>> Create(const Options& options);

  // Returns the channel for the program of a worker. Requires: 0 <= worker < TrainingMode.workers.
  ParamChannel* ForSteps(int worker);
  // Returns the source of rows that are pulled ahead of the program; null without prefetch_rows.
  RowSource* ForRowsAhead() { return rows_ahead_; }

  // Runs fn(worker) for every worker at the same time, and returns the first error. With one worker it runs on the
  // calling thread. Requires: no other call is under way.
  absl::Status RunWorkers(const std::function<absl::Status(int)>& fn);
  // Ends the exchanges with other trainers of a step that has failed with `error`: afterwards its gradients are not
  // read any more.
  void EndExchanges(const absl::Status& error);
  // Ends the exchanges of geo. Later reads return the values of the servers. Requires: called after the last step.
  absl::Status Finish();

 private:
  ChannelStack() = default;

  ParamChannel* steps_ = nullptr;    // below group_
  RowSource* rows_ahead_ = nullptr;  // null without prefetch_rows
  std::unique_ptr<ReplicaRowsAhead> replica_ahead_;
  std::unique_ptr<CachedRowSource> cache_;
  std::unique_ptr<ChannelWithRows> cached_steps_;  // steps with rows of cache_; null with prefetch_rows
  std::unique_ptr<ReplicaChannel> all_reduce_;
  std::unique_ptr<GeoChannel> copy_;
  std::unique_ptr<WorkerGroup> group_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_CHANNEL_STACK_H_
