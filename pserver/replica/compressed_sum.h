// Dense gradients of a bucket in 16 bits on their way between trainers, with error feedback
// (AllReduceMode.compression).
//
// A trainer rounds the sum of its lanes and its residual, and keeps the rest. The owner of a slice adds what has come
// in float32, rounds the result once, and keeps the rest of that too; it uses the rounded result itself, so that all
// trainers have the same bits. The rests become residuals only if the step takes effect.
#ifndef WEIR_PSERVER_REPLICA_COMPRESSED_SUM_H_
#define WEIR_PSERVER_REPLICA_COMPRESSED_SUM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "framework/tensor/dtype.h"

namespace weir {

// Returns the memory of a parameter's residual, `count` floats, zeros at first. It must stay valid as long as the
// CompressedSum.
using ResidualMemory = std::function<absl::Span<float>(const std::string& parameter, int64_t count)>;

// Not thread-safe.
class CompressedSum {
 public:
  struct Segment {
    std::string parameter;
    int64_t count = 0;  // elements
  };
  // format: FLOAT16 or BFLOAT16. `residuals` may be null: they are in memory of this object, and no checkpoint has
  // them.
  CompressedSum(DType format, const std::vector<Segment>& segments, const ResidualMemory& residuals);

  // Rounds the sum of each segment and its residual; null: this trainer has no gradient of it, and its residual stays.
  // Returns the memory of the values, all segments one behind the other, whose place the result takes. A value that
  // does not fit becomes infinite. Requires: one element of `sums` for each segment.
  void* Pack(absl::Span<const float* const> sums);
  // Memory to which the collective adds what rounding takes from results (Collective::Values.lost). Requires: Pack.
  float* lost() { return left_.data(); }
  // Sets the segments of `out` that are present to the result. Returns false if it is not finite everywhere. Requires:
  // the operation on the memory of Pack has ended.
  bool Unpack(const std::function<bool(size_t segment)>& present, float* out) const;
  // Makes the rests since Pack the residuals. Requires: the operation has ended; called at most once per Pack, only if
  // the step takes effect.
  void Keep();

 private:
  const DType format_;
  std::vector<absl::Span<float>> residuals_;  // by segment
  std::vector<float> own_;                    // memory of residuals that nobody else has
  std::vector<uint16_t> values_;
  std::vector<float> left_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_REPLICA_COMPRESSED_SUM_H_
