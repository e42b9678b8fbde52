// ParamChannel: the seam between a running program and the servers that hold its parameters.
//
// send, send_barrier, recv, fetch_barrier and prefetch kernels (ops/) call it; pserver/ implements it over gRPC and
// over an embedded server. One channel serves one trainer process. Calls come from the executor: Send may come from any
// pool thread and several at once, everything else from one thread at a time, in the order of the program.
//
// A step is one transaction: what Send hands over takes effect on the servers only after FinishSends.
#ifndef WEIR_FRAMEWORK_RUNTIME_PARAM_CHANNEL_H_
#define WEIR_FRAMEWORK_RUNTIME_PARAM_CHANNEL_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/tensor/tensor.h"
#include "proto/parameter_server.pb.h"

namespace weir {

// A dense block on its server, as send and recv ops describe it.
struct BlockRef {
  std::string name;  // of the parameter block
  int server = 0;
  int64_t count = 0;  // elements
};

// What FinishReceives learned about the step that just took effect.
struct StepOutcome {
  int64_t version = 0;
  bool skipped = false;  // a trainer's verdict was SKIP
  bool stop = false;     // every trainer ends at this step border
  int64_t samples = 0;   // of the whole cluster
  bool ended = false;    // sync: the step took no effect, since the streams have ended or have too few examples left
  int64_t first_samples = 0;  // sync: samples of step 0, of the whole cluster; 0 if nobody said
};

class ParamChannel {
 public:
  virtual ~ParamChannel() = default;

  // Starts step `step` (from 0; counted by this trainer). read_only: rows are not created and nothing may be sent
  // (evaluation, prediction).
  virtual absl::Status BeginStep(int64_t step, bool read_only) = 0;

  // Samples of this process in the step, when they are known before its gradients. Optional; with async_apply EAGER it
  // is what lets parts take effect on arrival, before FinishSends. After BeginStep.
  virtual void SetStepSamples(int64_t samples) { (void)samples; }

  // Rows of all tables at once. For each table: distinct ids in; rows [ids.size(), width] out, already sized by the
  // caller. Blocks until they are there, in sync at the version of this step.
  struct TableRows {
    std::string table;
    int width = 0;
    const std::vector<int64_t>* ids = nullptr;
    float* rows = nullptr;
    // [ids.size()], or null: not 0 for rows that are in `rows` already and need not be asked for.
    const uint8_t* there = nullptr;
  };
  virtual absl::Status PullRows(absl::Span<const TableRows> tables) = 0;
  // The rows of the coming step, or batch of it, have been pulled ahead of it by another channel: what goes out of it
  // is of their ids. Before its BeginStep, while nothing is pulled ahead. A channel may make nothing of it: it only
  // saves work.
  virtual void UseRowsAhead() {}

  // Gradient of one dense block in every lane of this process that has examples. lanes[i] is the lane of the job
  // (ascending); grads[i] its gradient. The channel adds aligned subtrees of lanes (framework/runtime/lane_tree.h) and
  // may keep pointers until FinishSends returns: the executor does not touch a gradient before that.
  struct LaneTensor {
    int lane = 0;
    const Tensor* value = nullptr;
  };
  virtual absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) = 0;

  // Gradient rows of one table (merged by id within each lane). For is_sparse dense tables `block` names the block and
  // ids are rows of it; for distributed tables block.name is the table and block.server is -1: the channel buckets by
  // shard.
  struct LaneRows {
    int lane = 0;
    const SelectedRows* value = nullptr;
    // Of tables that count shows and clicks, else null: [rows of value, 2], samples that have the id, and their clicks.
    // They travel with the rows and are added in the same tree.
    const Tensor* counts = nullptr;
  };
  virtual absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) = 0;

  // Ends the step's pushes: the last part goes to every server with sample count and verdict. Returns when all are
  // acknowledged.
  virtual absl::Status FinishSends(int64_t samples, v1::Verdict verdict) = 0;

  // Asks for a dense block; the values are in `out` (already sized) when FinishReceives returns.
  virtual absl::Status Receive(const BlockRef& block, Tensor* out) = 0;
  // Waits for all blocks asked for, at the version after this step in sync, the newest in async.
  virtual absl::Status FinishReceives(StepOutcome* outcome) = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PARAM_CHANNEL_H_
