// Pushes of the gradients of one trainer: sums them over its lanes, cuts them into tensors, packs these into parts, and
// sends the parts. Keeps what lossy formats lose for the next step.
#ifndef WEIR_PSERVER_CLIENT_PUSHER_H_
#define WEIR_PSERVER_CLIENT_PUSHER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/lane_tree.h"
#include "framework/runtime/param_channel.h"
#include "framework/wire/buffer_pool.h"
#include "framework/wire/push_plan.h"
#include "framework/wire/slices.h"
#include "proto/parameter_server.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/lane_sums.h"
#include "pserver/client/push_builder.h"
#include "pserver/client/residuals.h"
#include "pserver/client/row_orders.h"
#include "pserver/member/calls.h"
#include "pserver/protocol/merge_gradients.h"

namespace weir {

// SendDense and SendRows may be called by several threads at once; all other functions by one thread at a time.
class Pusher {
 public:
  // Borrows all. `pulled`: the ids of the step's rows. parts_apply: servers apply a part on arrival where they can.
  Pusher(const BlockPlacement* placement, Calls* calls, BufferPool* buffers, ThreadPool* pool, RowOrders* pulled,
         bool parts_apply);

  // Begins a step that reads `read_version` of the parameters. Requires: no send is under way.
  void BeginStep(int64_t step, int64_t read_version);
  // Begins a step that sends nothing.
  void BeginReadOnlyStep();
  // Client::SetFirstSamples.
  void SetFirstSamples(int64_t samples) { first_samples_ = samples; }

  // Functions of StepChannel.
  void SetStepSamples(int64_t samples) { step_samples_ = samples; }
  absl::Status SendDense(const BlockRef& block, absl::Span<const StepChannel::LaneTensor> lanes);
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const StepChannel::LaneRows> lanes);
  // Who waits for acknowledgements.
  enum class Acks {
    kAwaited,  // AwaitSends
    kLater,    // the caller of TakeSends, who asks the same servers for the step's result: they may come with it
    kKept,     // as kLater; and the last parts are not sent yet, but by the caller of TakeSends
  };
  void SetAcks(Acks acks) { acks_ = acks; }
  // Sends the last parts. Requires: BeginStep; every SendDense and SendRows of the step has returned; AwaitSends or
  // TakeSends follows.
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict, bool stop_requested);
  absl::Status AwaitSends();
  struct Sends {
    std::vector<CallPtr> under_way, kept;
  };
  Sends TakeSends();

  // Step, samples and verdict of the last FinishSends.
  struct Sent {
    int64_t step = -1;
    int64_t samples = 0;
    v1::Verdict verdict = v1::APPLY;
  };
  const Sent& sent() const { return sent_; }
  // Returns the number of rows pushed so far. Thread-safe.
  int64_t rows() const { return rows_; }

  Residuals& residuals() { return residuals_; }
  // Ends a step for the residuals (Residuals::Keep, Drop), and counts its gradients beyond the range of WIRE_FLOAT16.
  // Requires: all parts of the step are acknowledged.
  void EndStep(bool took_effect);
  // Returns their number so far. Thread-safe.
  int64_t large_gradients() const { return residuals_.large().count; }
  // Returns the nodes of this trainer's lanes, each of which is pushed as one sum.
  absl::Span<const LaneRange> nodes() const { return nodes_; }

 private:
  struct DenseGradient;
  struct RowGradient;
  // Returns the lanes of a node that have a gradient, elements [begin, begin + count) of each.
  static std::vector<DenseRun> RunsOf(const LaneRange& node, absl::Span<const StepChannel::LaneTensor> lanes,
                                      int64_t begin, int64_t count);
  // Adds the lanes of one node of a dense gradient, a large one on all threads.
  void Sum(const DenseGradient& gradient, absl::Span<float> out);
  // Sums and encodes one node of a dense gradient.
  void WriteDense(const DenseGradient& gradient, char* out, v1::PushItem* item);
  // Sends rows at [begin, end) of the order to a server.
  void SendRowRange(const RowGradient& gradient, int server, size_t begin, size_t end);
  // Writes the ids, sums and counts of one node's rows.
  void WriteRows(const RowGradient& gradient, size_t node, const RowUnion::Range& range, const PushRowLayout& layout,
                 char* out, v1::PushItem* item);
  void SendPart(int server, v1::PushRequest header, const Slices& payload);
  // Returns true if the part takes effect on arrival, by itself.
  bool TakesEffectAlone(const v1::PushRequest& header) const;

  const BlockPlacement& placement_;
  Calls& calls_;
  BufferPool& buffers_;
  ThreadPool& pool_;
  RowOrders& pulled_;
  const bool parts_apply_;
  const std::vector<LaneRange> nodes_;
  const std::vector<PushNode> push_nodes_;              // the same, for plans
  Residuals residuals_;                                 // of gradients pushed in lossy formats
  std::vector<std::unique_ptr<PushBuilder>> builders_;  // by server; constant
  // Constant while lanes run.
  struct Begun {
    bool read_only = false;
    int64_t step = -1;
    int64_t read_version = 0;
  };
  Begun begun_;
  Acks acks_ = Acks::kAwaited;
  int64_t first_samples_ = 0;
  Sent sent_;
  std::atomic<int64_t> step_samples_{0};  // atomic: read by any thread that sends a part
  std::atomic<int64_t> rows_{0};          // atomic: for counters alone
  int64_t large_ = 0;                     // large gradients, up to the last EndStep
  Counter* const large_counter_;
  Mutex mu_;
  Sends sends_ ABSL_GUARDED_BY(mu_);  // of this step
};

}  // namespace weir

#endif  // WEIR_PSERVER_CLIENT_PUSHER_H_
