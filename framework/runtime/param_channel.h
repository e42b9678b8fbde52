// Interface between a running program and the servers that hold its parameters.
//
// It has two halves: a RowSource, which prefetch kernels (ops/) call, and a StepChannel, which send, send_barrier, recv
// and fetch_barrier kernels call. pserver/ implements both over gRPC and over an embedded server. One channel serves
// one trainer process. Calls come from the executor: SendDense and SendRows may come from any pool thread, several at
// once; all others come from one thread at a time, in the order of the program.
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

// Rows that the steps of a program read.
class RowSource {
 public:
  virtual ~RowSource() = default;

  // Starts step `step` (from 0; counted by this trainer). read_only: rows are not created and nothing may be sent
  // (evaluation, prediction).
  virtual absl::Status BeginStep(int64_t step, bool read_only) = 0;

  // Request for rows of one table: distinct `ids`; `rows` [ids.size(), width] is allocated by the caller.
  struct TableRows {
    std::string table;
    int width = 0;
    const std::vector<int64_t>* ids = nullptr;
    float* rows = nullptr;
    // [ids.size()], or null: nonzero for rows that are in `rows` already and need not be pulled.
    const uint8_t* there = nullptr;
  };
  // Pulls rows of all tables at once. Blocks until they have arrived, in sync at the version of this step. Requires:
  // BeginStep.
  virtual absl::Status PullRows(absl::Span<const TableRows> tables) = 0;

  // Fills in those rows of the last PullRows that are known only when their step has come, for a source that pulls rows
  // ahead. Requires: the thread that runs the program calls it, before it uses the rows and while nothing is pulled
  // ahead. The ids and rows stay in place.
  virtual absl::Status FinishRows() { return absl::OkStatus(); }
};

// A step that is pushed, and the dense blocks that it receives.
class StepChannel {
 public:
  virtual ~StepChannel() = default;

  // Sets the samples of this process in the step, if known before its gradients. Optional; with async_apply EAGER parts
  // can take effect on arrival, before FinishSends, only after this call. Requires: BeginStep.
  virtual void SetStepSamples(int64_t samples) { (void)samples; }

  // Gradient of one dense block in one lane. `lane` is the lane of the job.
  struct LaneTensor {
    int lane = 0;
    const Tensor* value = nullptr;
  };
  // Sends the gradient of one dense block. `lanes` has every lane of this process that has examples, ascending. The
  // channel adds aligned subtrees of lanes (framework/runtime/lane_tree.h) and may keep pointers until FinishSends
  // returns. Requires: a step that is not read-only; no gradient is changed before FinishSends returns.
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
  // Requires: as SendDense.
  virtual absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) = 0;

  // Ends the step's pushes: sends the last part to every server with sample count and verdict. Returns when all are
  // acknowledged, or leaves waiting for that to FinishReceives (sync). Requires: every SendDense and SendRows of the
  // step has returned; called once for each BeginStep, also by a trainer without examples; in sync FinishReceives
  // follows.
  virtual absl::Status FinishSends(int64_t samples, v1::Verdict verdict) = 0;

  // Requests a dense block; the values are in `out` (already sized) when FinishReceives returns. Requires: `out` lives
  // and is left alone until then.
  virtual absl::Status Receive(const BlockRef& block, Tensor* out) = 0;
  // Waits for all requested blocks, at the version after this step in sync, the newest in async. Requires: FinishSends,
  // unless the step is read-only.
  virtual absl::Status FinishReceives(StepOutcome* outcome) = 0;
};

// Both halves of the channel to servers. RowSource::BeginStep begins a step for both.
class ParamChannel : public RowSource, public StepChannel {
 public:
  // Announces that another source has pulled the rows of the next step (or of a batch of it) ahead, so that the rows
  // sent in that step have the ids of that pull. Requires: called before the step's BeginStep, while nothing is pulled
  // ahead. A channel may ignore it: it only saves work.
  virtual void UseRowsAhead() {}
};

// Channel that reads rows from one source and sends and receives everything else through another channel.
class ChannelWithRows : public ParamChannel {
 public:
  // Borrows both. `rows` begins the steps of `steps`, too.
  ChannelWithRows(RowSource* rows, StepChannel* steps) : rows_(*rows), steps_(*steps) {}

  absl::Status BeginStep(int64_t step, bool read_only) override { return rows_.BeginStep(step, read_only); }
  absl::Status PullRows(absl::Span<const TableRows> tables) override { return rows_.PullRows(tables); }
  void SetStepSamples(int64_t samples) override { steps_.SetStepSamples(samples); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override {
    return steps_.SendDense(block, lanes);
  }
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    return steps_.SendRows(block, width, lanes);
  }
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override {
    return steps_.FinishSends(samples, verdict);
  }
  absl::Status Receive(const BlockRef& block, Tensor* out) override { return steps_.Receive(block, out); }
  absl::Status FinishReceives(StepOutcome* outcome) override { return steps_.FinishReceives(outcome); }

 private:
  RowSource& rows_;
  StepChannel& steps_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_RUNTIME_PARAM_CHANNEL_H_
