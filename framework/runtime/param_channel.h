// Interface between a running program and the servers that hold its parameters.
//
// send, send_barrier, recv, fetch_barrier and prefetch kernels (ops/) call it; pserver/ implements it over gRPC and
// over an embedded server. One channel serves one trainer process. Calls come from the executor: SendDense and SendRows
// may come from any pool thread, several at once; all others come from one thread at a time, in the order of the
// program.
//
// A step is one transaction: gradients of SendDense and SendRows take effect on the servers only after FinishSends.
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

// Dense block on its server, as described by send and recv ops.
struct BlockRef {
  std::string name;  // of the parameter block
  int server = 0;
  int64_t count = 0;  // elements
};

// Result of a step, returned by FinishReceives.
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

  // Sets the samples of this process in the step, if known before its gradients. Optional; with async_apply EAGER parts
  // can take effect on arrival, before FinishSends, only after this call. Call it after BeginStep.
  virtual void SetStepSamples(int64_t samples) { (void)samples; }

  // Request for rows of one table: distinct `ids`; `rows` [ids.size(), width] is allocated by the caller.
  struct TableRows {
    std::string table;
    int width = 0;
    const std::vector<int64_t>* ids = nullptr;
    float* rows = nullptr;
    // [ids.size()], or null: nonzero for rows that are in `rows` already and need not be pulled.
    const uint8_t* there = nullptr;
  };
  // Pulls rows of all tables at once. Blocks until they have arrived, in sync at the version of this step.
  virtual absl::Status PullRows(absl::Span<const TableRows> tables) = 0;
  // Tells that another channel has pulled the rows of the next step (or of a batch of it) ahead, so that the rows sent
  // in it have their ids. Call it before the step's BeginStep, while nothing is pulled ahead. Only saves work: a
  // channel may ignore it.
  virtual void UseRowsAhead() {}

  // Gradient of one dense block in one lane. `lane` is the lane of the job.
  struct LaneTensor {
    int lane = 0;
    const Tensor* value = nullptr;
  };
  // Sends the gradient of one dense block. `lanes` has every lane of this process that has examples, ascending. The
  // channel adds aligned subtrees of lanes (framework/runtime/lane_tree.h) and may keep pointers until FinishSends
  // returns: the executor does not change a gradient before that.
  virtual absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) = 0;

  // Gradient rows of one table in one lane, merged by id.
  struct LaneRows {
    int lane = 0;
    const SelectedRows* value = nullptr;
    // Shows and clicks for tables that count them, else null: [rows of value, 2], the samples that have the id, and
    // their clicks. They are sent with the rows and added in the same tree.
    const Tensor* counts = nullptr;
  };
  // Sends gradient rows of one table. For is_sparse dense tables `block` names the block and ids are rows of it; for
  // distributed tables block.name is the table and block.server is -1: the channel assigns rows to servers by shard.
  virtual absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) = 0;

  // Ends the step's pushes: sends the last part to every server with sample count and verdict. Returns when all are
  // acknowledged.
  virtual absl::Status FinishSends(int64_t samples, v1::Verdict verdict) = 0;

  // Requests a dense block; the values are in `out` (already sized) when FinishReceives returns.
  virtual absl::Status Receive(const BlockRef& block, Tensor* out) = 0;
  // Waits for all requested blocks, at the version after this step in sync, the newest in async.
  virtual absl::Status FinishReceives(StepOutcome* outcome) = 0;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PARAM_CHANNEL_H_
