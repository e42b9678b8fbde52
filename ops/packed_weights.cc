#include "ops/packed_weights.h"

namespace weir {

PackedWeights::PackedWeights(const KernelInit& init, std::string_view slot, bool transpose) : transpose_(transpose) {
  for (const v1::OpSlot& input : init.op.inputs()) {
    if (input.name() != slot || input.vars().empty()) continue;
    const v1::VarDesc* const var = init.vars(input.vars(0));
    shared_ = var != nullptr && var->persistable();
  }
}

const Bf16Factor& PackedWeights::Of(const StepContext& step, int64_t rows, int64_t columns, const float* weights) {
  const int64_t run = step.executor_run;
  if (shared_ && run != 0) {
    if (run_.load(std::memory_order_acquire) == run) return factor_;
    if (mu_.TryLock()) {
      // Another lane may have packed since.
      if (run_.load(std::memory_order_relaxed) != run) {
        Pack(rows, columns, weights, &factor_);
        run_.store(run, std::memory_order_release);
      }
      mu_.Unlock();
      return factor_;
    }
  }
  Bf16Factor& factor = Bf16Scratch::OfThread().right;
  Pack(rows, columns, weights, &factor);
  return factor;
}

void PackedWeights::Pack(int64_t rows, int64_t columns, const float* weights, Bf16Factor* factor) const {
  factor->PackRight(transpose_ ? columns : rows, transpose_ ? rows : columns, weights, columns, transpose_);
}

}  // namespace weir
