// Weights of an op in bfloat16, packed once in a run of the executor for all its lanes.
#ifndef WEIR_OPS_PACKED_WEIGHTS_H_
#define WEIR_OPS_PACKED_WEIGHTS_H_

#include <atomic>
#include <cstdint>
#include <string_view>

#include "framework/base/mutex.h"
#include "framework/runtime/kernel.h"
#include "ops/bf16_factor.h"

namespace weir {

// Belongs to the kernel of one op. Thread-safe.
//
// A persistable variable is one for all lanes, with one value for all of them in a run (StepContext.executor_run):
// an op that writes it runs while no lane does. So the first lane packs it and the others read what it has packed,
// until the next run begins, when all of them are done. Weights that each lane has by itself are packed for each.
class PackedWeights {
 public:
  // `slot`: the input with the weights. The factor is their transpose if `transpose` is set.
  PackedWeights(const KernelInit& init, std::string_view slot, bool transpose);
  PackedWeights(const PackedWeights&) = delete;
  PackedWeights& operator=(const PackedWeights&) = delete;

  // Returns the right factor made of `weights` [rows, columns], the value of the variable in this lane. It is valid
  // until the lane's next product in bfloat16. Does not wait: a lane that comes while another one packs packs, too.
  const Bf16Factor& Of(const StepContext& step, int64_t rows, int64_t columns, const float* weights);

 private:
  void Pack(int64_t rows, int64_t columns, const float* weights, Bf16Factor* factor) const;

  const bool transpose_;
  bool shared_ = false;  // constant after construction
  // Serializes packing.
  Mutex mu_;
  // Run of which factor_ is. Atomic: lanes read it without the lock, and factor_ once it is theirs.
  std::atomic<int64_t> run_ = 0;
  Bf16Factor factor_;  // written under mu_, before run_
};

}  // namespace weir

#endif  // WEIR_OPS_PACKED_WEIGHTS_H_
