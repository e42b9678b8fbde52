// Collective operations among the ranks of a group: all-reduce, reduce, reduce-scatter, all-gather, gather, broadcast,
// all-to-all, barrier. Thread-safe.
//
// Every rank begins the same operations in the same order. An operation whose kind, name, type, shape, reduction or
// root differs on one rank fails on all, and the error names both. Any failure ends the group: operations that are not
// complete fail, and all later ones fail with the same error. An argument that cannot be right (no such rank, too many
// addends) is such a failure.
//
// Reductions follow the lane tree (framework/runtime/lane_tree.h): their bits depend on the lanes' values alone, not on
// the number of ranks, the order of arrival, or the sizes of messages; which of several NaN a sum is may depend on
// them. A rank gives the sums of its largest aligned nodes. A node without values is left out, never added as zeros.
// Values may be several arrays, the segments, one behind the other: a node may lack any of them, and the bits of each
// are those of an operation of its own. Adasums (framework/collective/adasum.h) have whole segments as their operands.
//
// Cost for V bytes on p ranks, k the number of addends of a rank: an all-reduce sends (k + 1)(p - 1)/p V from each
// rank, or 2 (p - 1)/p V in any order; a reduce-scatter k (p - 1)/p V, an all-gather (p - 1)/p V. An all-reduce of few
// values sends k (p - 1) V, but in one exchange (whole_run.h), on the threads of its caller: the others get this
// rank's values with SendBegun or the next Wait, for any operation.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_H_
#define WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/base/mutex.h"
#include "framework/collective/collective_counters.h"
#include "framework/collective/hosts.h"
#include "framework/collective/mesh.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduction.h"
#include "framework/collective/sizes.h"
#include "framework/collective/whole_run.h"
#include "framework/tensor/dtype.h"

namespace weir {

class Collective {
 public:
  struct Options {
    CollectiveWaits waits;
    // Operations that run at once; the same on all ranks.
    int streams = 2;
    // Most bytes of a message, up to kMostMessageBytes; the same on all ranks. While one is reduced, the next ones are
    // under way.
    int64_t message_bytes = kOperationMessageBytes;
    // Hosts of the ranks; the same on all. Where several share one, all-reduces, reduce-scatters and all-gathers send
    // what leaves a host once for all of its ranks, but for those of few values and of 16 bits.
    Hosts hosts = {};
    // Name of this rank among the counters of the process (CollectiveCounters); "": messages are not counted.
    std::string counted_as = {};
  };
  static constexpr int64_t kMostMessageBytes = int64_t{32} << 20;

  // An operation on the threads of its caller.
  struct Short;

  // An operation under way. Its buffers must live, and inputs must not change, until Wait has returned.
  class Pending {
   public:
    // Waits for the end of the operation, which comes by the deadlines of CollectiveWaits. Thread-safe.
    absl::Status Wait();
    // Results of a reduction: whether any rank had an addend, or one with the segment (else the output, or the segment
    // of it, is unchanged), and the sum of all ranks' samples. Requires: Wait has returned OK.
    bool present() const { return present_ != 0; }
    bool present(size_t segment) const { return (present_ >> segment & 1) != 0; }
    int64_t samples() const { return samples_; }

   private:
    friend class Collective;
    explicit Pending(Collective* collective) : collective_(*collective) {}

    Collective& collective_;  // not used once the operation has ended
    Mutex mu_;
    CondVar changed_;
    // Set while an operation on the threads of its caller has not been ended by one of them.
    std::shared_ptr<Short> short_ ABSL_GUARDED_BY(mu_);
    bool sent_ ABSL_GUARDED_BY(mu_) = false;  // short_
    bool ended_ ABSL_GUARDED_BY(mu_) = false;
    absl::Status status_ ABSL_GUARDED_BY(mu_);
    // Written by the thread that ends the operation before ended_ is set; constant then.
    uint64_t present_ = 0;  // bit s: segment s
    int64_t samples_ = 0;
  };
  using PendingPtr = std::shared_ptr<Pending>;

  // `mesh` is borrowed, and is aborted when an operation fails. A mesh serves one Collective in its life: a second one
  // would use its tags again.
  Collective(Mesh* mesh, Options options);
  // Waits for operations under way. Abort gives them up before.
  ~Collective();

  int rank() const { return mesh_.rank(); }
  int size() const { return mesh_.size(); }

  // Arguments that all reductions have. Equal on all ranks: name, dtype, shape, segments, reduction, lanes.
  struct Values {
    std::string name;
    DType dtype = v1::FLOAT32;
    std::vector<int64_t> shape;
    // Number of elements of each segment; together those of the shape. Empty: one segment. At most kMostSegments.
    std::vector<int64_t> segments;
    Reduction reduction = Reduction::kSum;
    // Leaves of the tree. 0: one for each rank, and a rank's values are its lane `rank`.
    int lanes = 0;
    // Addends of this rank, ascending; may be empty, and at most 64. Each has the memory of all elements of the shape,
    // and values in the segments that are present.
    std::vector<LaneAddend> addends;
    // Samples that this rank's addends stand for; they count for kAverage.
    int64_t samples = 0;
    // An all-reduce may add sums and averages of types with at least 32 bits in an order that suits the backend, maybe
    // by its own all-reduce. All ranks still get the same bits, which then depend on the number of ranks, and a segment
    // that a rank lacks counts as zeros there, unless no rank has it. Equal on all ranks.
    bool any_order = false;
    // FLOAT16 and BFLOAT16, for each element of the shape, or null: what rounding takes from the results of this rank's
    // slice is added to it, unless that is not finite.
    float* lost = nullptr;
  };
  // Returns the addends of a rank that has one value in a group without lanes.
  std::vector<LaneAddend> Own(const void* values) const { return {{.lanes = {rank(), 1}, .values = values}}; }

  // Gives every rank the result in `out`, which may be the memory of one addend, but must not overlap any otherwise.
  PendingPtr AllReduce(Values values, void* out);
  // Rank `root` gets the result; `out` is not used on others.
  PendingPtr Reduce(Values values, int root, void* out);
  // Rank r gets elements [begins[r], begins[r + 1]) of the result in `out`, which may be their place in one addend.
  // begins: size() + 1 ascending numbers from 0 to the number of elements, equal on all ranks.
  PendingPtr ReduceScatter(Values values, std::vector<int64_t> begins, void* out);

  // Rank r has elements [begins[r], begins[r + 1]) of `all` in their place; every rank gets the rest. begins: as above.
  PendingPtr AllGather(const std::string& name, DType dtype, std::vector<int64_t> begins, void* all);
  // Gives every rank the bytes of all ranks, which may differ in number.
  PendingPtr AllGatherBytes(const std::string& name, std::string bytes, std::vector<std::string>* all);
  // Rank `root` gets the bytes of each; on others `all` becomes empty.
  PendingPtr GatherBytes(const std::string& name, std::string bytes, int root, std::vector<std::string>* all);
  // `to[r]` goes to rank r; `from[r]` becomes what rank r has sent to this one.
  PendingPtr AllToAllBytes(const std::string& name, std::vector<std::string> to, std::vector<std::string>* from);
  // The elements of `root` become those of all. `shape` is equal on all ranks.
  PendingPtr Broadcast(const std::string& name, DType dtype, const std::vector<int64_t>& shape, int root, void* values);
  // Ends when every rank has begun it.
  PendingPtr Barrier(const std::string& name);

  // Sends what operations that have begun have to send at once, if no Wait has done so. Does not wait. Thread-safe.
  void SendBegun();

  // Fails everything under way and everything later, on the other ranks too as far as they can be told. Thread-safe.
  void Abort(const absl::Status& status);

 private:
  using Body = std::function<absl::Status(Operation*, Pending*)>;
  struct Queued {
    v1::CollectiveHeader header;
    Body body;
    PendingPtr pending;
  };
  // Hands an operation to the stream whose turn it is. `refused`: the operation fails with it, without a message.
  PendingPtr Begin(v1::CollectiveHeader header, absl::Status refused, Body body);
  // Has SendBegun, or a Wait, begin an all-reduce of few values.
  PendingPtr BeginShort(v1::CollectiveHeader header, WholeRun::Options options);
  // Returns `refused`, or why this operation cannot be begun.
  absl::Status RefusalOf(const v1::CollectiveHeader& header, absl::Status refused) const;
  // Ends the group, since this rank cannot begin what the others may have begun.
  PendingPtr Refuse(v1::CollectiveHeader header, absl::Status refused);
  // Ends a short operation that was sent, on the thread that waits for it.
  void EndShort(Short* of);
  // Lets go of short operations that have ended and whose messages the others have.
  void DropShorts();
  // Waits for all short operations, and for their messages to arrive.
  void EndShorts();
  // Returns the body of a reduction: a Run with these options.
  template <typename Run>
  static Body BodyOf(typename Run::Options options);
  PendingPtr BeginReduction(const char* operation, Values values, std::optional<int> root, std::vector<int64_t> begins,
                            void* out);
  void RunStream(size_t stream);
  static void End(Pending* pending, const absl::Status& status);

  Mesh& mesh_;
  const Options options_;
  const std::optional<CollectiveCounters> counters_;

  Mutex mu_;
  CondVar changed_;
  // Invariant: operation n is queued in stream n % streams, on every rank.
  int64_t next_ ABSL_GUARDED_BY(mu_) = 0;                        // sequence number of the next operation
  std::vector<std::deque<Queued>> queues_ ABSL_GUARDED_BY(mu_);  // by stream
  // Short operations by their beginning: not sent yet; sent, but not ended, or with messages under way.
  std::deque<std::shared_ptr<Short>> unsent_ ABSL_GUARDED_BY(mu_), sent_ ABSL_GUARDED_BY(mu_);
  absl::Status failure_ ABSL_GUARDED_BY(mu_);
  bool closing_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_;  // constant after construction
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_COLLECTIVE_H_
