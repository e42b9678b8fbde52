// All-reduce in the order that suits the backend: its own all-reduce where it has one, else a ring over messages. All
// ranks get the same bits, but the bits depend on the number of ranks.
//
// A rank adds its own addends first, in the lane tree. A segment that some rank lacks counts as zeros there, and one
// that no rank has is not touched. Each rank sends 2 (p - 1)/p V of V bytes, whatever its number of addends is.
#ifndef WEIR_FRAMEWORK_COLLECTIVE_ANY_ORDER_RUN_H_
#define WEIR_FRAMEWORK_COLLECTIVE_ANY_ORDER_RUN_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/status.h"
#include "framework/collective/operation.h"
#include "framework/collective/reduction.h"
#include "framework/tensor/dtype.h"

namespace weir {

// Returns whether AnyOrderRun can reduce the values: sums and averages of types with at least 32 bits. Values of 16
// bits would be rounded on each rank, and the order changes no minimum or maximum.
bool CanReduceInAnyOrder(Reduction reduction, DType dtype);

// A reduction on one rank.
class AnyOrderRun {
 public:
  struct Options {
    DType dtype = v1::FLOAT32;
    Reduction reduction = Reduction::kSum;
    int lanes = 1;
    std::vector<LaneAddend> addends;  // of this rank
    std::vector<int64_t> segments;    // their numbers of elements; at least one
    char* out = nullptr;              // all elements
    int64_t message_bytes = 0;
  };
  // `operation` is borrowed, with its header complete.
  AnyOrderRun(Operation* operation, Options options);

  // Runs the operation. After an error `out` may have any values.
  absl::Status Run();
  // Returns bits of the segments of which any rank has had an addend. Requires: Run has returned OK.
  uint64_t present() const { return present_; }
  int64_t samples() const { return samples_; }

 private:
  // Elements of segments that follow each other.
  struct Part {
    int64_t begin = 0, count = 0;
  };
  char* At(int64_t element) const { return options_.out + element * static_cast<int64_t>(element_bytes_); }
  // Sets the segments that this rank has to the sum of its addends. Returns their bits.
  uint64_t AddOwn();
  // Returns the longest runs of elements whose segments are present.
  std::vector<Part> PresentParts() const;
  absl::Status ByMesh(const Part& part);
  absl::Status ByRing(const Part& part);

  Operation& operation_;
  const Options options_;
  const size_t element_bytes_;
  uint64_t present_ = 0;
  int64_t samples_ = 0;
  int64_t next_number_ = 0;  // of a message of the ring
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_COLLECTIVE_ANY_ORDER_RUN_H_
