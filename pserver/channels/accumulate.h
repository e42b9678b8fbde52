// Gradient accumulation: a step is a cycle of batches whose gradients are added up and leave in one push.
//
// The channel lies between a program and its servers. The program runs once per batch of the cycle, from BeginStep to
// FinishReceives. Parameters stay unchanged within the cycle, rows of tables are fetched for each batch, and the sums
// leave with the last batch, divided by the samples of all batches. A verdict SKIP of one batch is the verdict of the
// step.
#ifndef WEIR_PSERVER_CHANNELS_ACCUMULATE_H_
#define WEIR_PSERVER_CHANNELS_ACCUMULATE_H_

#include <cstdint>

#include "framework/runtime/param_channel.h"
#include "pserver/channels/gradient_sums.h"

namespace weir {

class AccumulatingChannel : public ParamChannel {
 public:
  // `inner` is borrowed. batches >= 1.
  AccumulatingChannel(ParamChannel* inner, int batches) : inner_(inner), batches_(batches) {}

  // Begins the step, or its next batch if called again with the same step. Requires: the batches of a step follow each
  // other, each after the FinishReceives of the one before.
  absl::Status BeginStep(int64_t step, bool read_only) override;
  void SetStepSamples(int64_t samples) override;
  absl::Status PullRows(absl::Span<const TableRows> tables) override { return inner_->PullRows(tables); }
  void UseRowsAhead() override { inner_->UseRowsAhead(); }
  absl::Status SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) override;
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override;
  absl::Status FinishSends(int64_t samples, v1::Verdict verdict) override;
  absl::Status Receive(const BlockRef& block, Tensor* out) override;
  absl::Status FinishReceives(StepOutcome* outcome) override;

 private:
  bool last() const { return batch_ + 1 == batches_; }

  ParamChannel* const inner_;
  const int batches_;
  bool read_only_ = false;
  int64_t step_ = -1;
  int batch_ = 0;  // of the cycle; constant while lanes run
  int64_t samples_ = 0;
  v1::Verdict verdict_ = v1::APPLY;
  GradientSums sums_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_CHANNELS_ACCUMULATE_H_
