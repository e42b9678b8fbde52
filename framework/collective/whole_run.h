// All-reduce of few values, in one exchange: every rank sends all of its addends to every other one, behind its header,
// and each rank adds the addends of all in the lane tree. The bits are those of ReduceRun, which sends less and takes
// two exchanges, one after the other.
//
// The two halves are functions of their own, so that the thread that begins the operation sends, and the one that waits
// for it adds: no other thread has to wake up. Segments may be absent in single addends, and are not sent there.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_WHOLE_RUN_H_
#define WEIR_FRAMEWORK_COLLECTIVE_WHOLE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "framework/collective/addend_nodes.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduction.h"
#include "framework/tensor/dtype.h"

namespace weir {

// A reduction on one rank. Its functions are called one after the other, by any threads.
class WholeRun {
 public:
  struct Options {
    DType dtype = v1::FLOAT32;
    Reduction reduction = Reduction::kSum;
    int lanes = 1;
    std::vector<LaneAddend> addends;  // of this rank, at most kMostAddends
    std::vector<int64_t> segments;    // their numbers of elements, at least one
    char* out = nullptr;              // all elements
  };
  // `operation` is borrowed, with its header complete. Requires: operation->attaches().
  WholeRun(Operation* operation, Options options);

  // Sends the addends, which may change then. Does not wait.
  absl::Status Send();
  // Waits for the addends of all, and adds them. Headers that were sent may still be under way. Requires: Send has
  // returned OK.
  absl::Status Finish();
  // Returns bits of the segments of which any rank has had an addend; nothing was written to others. Requires: Finish
  // has returned OK.
  uint64_t present() const { return all_.present; }
  int64_t samples() const { return all_.samples; }

 private:
  size_t Bytes(int64_t elements) const { return static_cast<size_t>(elements) * element_bytes_; }
  // Returns where each segment of each addend of the nodes lies, by node and segment; null: it is absent. DataLoss: a
  // rank has sent other bytes than its header says.
  absl::StatusOr<std::vector<std::vector<const char*>>> Arrived() const;
  absl::Status Add();

  Operation& operation_;
  const Options options_;
  const size_t element_bytes_;
  AddendNodes all_;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_WHOLE_RUN_H_
