// Reduces slices: each rank owns a slice of the values, gets every other rank's addends of it, and adds them in the
// lane tree; the results then go to all ranks, to one, or stay. Messages of the slices follow each other, so that some
// are under way while one is added.
//
// Values are one segment or several, which lie one behind the other and may be absent in single addends. A message that
// reaches over an absent segment is sent as the runs of present elements before and behind it.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_REDUCE_RUN_H_
#define WEIR_FRAMEWORK_COLLECTIVE_REDUCE_RUN_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "framework/collective/addend_nodes.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduction.h"
#include "framework/collective/sizes.h"
#include "framework/collective/slice_parts.h"
#include "framework/tensor/dtype.h"

namespace weir {

// A reduction on one rank.
class ReduceRun {
 public:
  static constexpr int kAll = -1, kNobody = -2;
  struct Options {
    DType dtype = v1::FLOAT32;
    Reduction reduction = Reduction::kSum;
    int lanes = 1;
    std::vector<LaneAddend> addends;  // of this rank, at most kMostAddends
    std::vector<int64_t> begins;      // borders of the slices, in elements
    std::vector<int64_t> segments;    // their numbers of elements, at most kMostSegments; empty: one segment
    int reader = kAll;                // rank that gets the results, kAll, or kNobody: each keeps its slice
    // Memory of all elements if this rank gets the results, or of its slice if each keeps its own; else null.
    char* out = nullptr;
    int64_t message_bytes = 0;
    // Values of 16 bits: for each element, all of them; null: not wanted. Receives what rounding takes from each sum of
    // this rank's slice: it is added (TreeReducer::Reduce).
    float* lost = nullptr;
  };
  // `operation` is borrowed, with its header complete.
  ReduceRun(Operation* operation, Options options);

  absl::Status Run();
  // Returns bits of the segments of which any rank has had an addend; nothing was written to others. Requires: Run has
  // returned OK.
  uint64_t present() const { return present_; }
  int64_t samples() const { return samples_; }

 private:
  // A message's part of this rank's slice: where the addends of others arrive.
  struct Arriving {
    MessageMemory::Block bytes;
    std::vector<Operation::Message> messages;
  };

  absl::Status TakeHeaders(const std::vector<v1::CollectiveHeader>& headers);
  using Part = SliceParts::Part;
  // Numbers of the messages with a run of an addend, and with a run of results.
  int64_t AddendNumber(int64_t m, int addend, size_t run) const {
    return (m * kMostAddends + addend) * parts_.most_runs() + static_cast<int64_t>(run);
  }
  int64_t ResultNumber(int64_t m, size_t run) const { return m * parts_.most_runs() + static_cast<int64_t>(run); }
  size_t Bytes(int64_t elements) const { return parts_.Bytes(elements); }
  bool Reads(int rank) const { return options_.reader == kAll || options_.reader == rank; }

  // Tells the others what is reduced, with the first addends, and waits until all have begun.
  absl::Status Begin();
  // Sends this rank's addends and reduces its slice; results of other slices come meanwhile.
  absl::Status ReduceOwnSlice();
  void SendAddends(int64_t m);
  void ReceiveAddends(int64_t m);
  // Reduces message m of this rank's slice and sends the result on.
  absl::Status ReduceMessage(int64_t m);
  void ReceiveResults(int64_t m);

  Operation& operation_;
  const Options options_;
  const SliceParts parts_;
  bool in_place_ = false;          // the results of others go to memory from which addends are sent
  std::vector<int> kinds_;         // SliceParts::KindsOf
  std::vector<AddendNode> nodes_;  // all ranks' addends, by lane
  uint64_t present_ = 0;           // segments of any of them
  int64_t samples_ = 0;
  TreeReducer reducer_;
  std::deque<Arriving> arriving_;  // of messages that are received and not yet reduced
  std::vector<char> results_;      // of messages whose results are not written to `out`
  // Sends by message, from the oldest that may be under way.
  std::deque<std::vector<Operation::Message>> addend_sends_, result_sends_;
  std::vector<Operation::Message> results_of_others_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_REDUCE_RUN_H_
