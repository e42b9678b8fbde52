#include "pserver/channels/accumulate.h"

#include "framework/base/status_macros.h"

namespace weir {

absl::Status AccumulatingChannel::BeginStep(int64_t step, bool read_only) {
  read_only_ = read_only;
  if (read_only) return inner_->BeginStep(step, /*read_only=*/true);
  if (step == step_ && !last()) {
    ++batch_;
    return absl::OkStatus();
  }
  step_ = step;
  batch_ = 0;
  samples_ = 0;
  verdict_ = v1::APPLY;
  sums_.Clear();
  return inner_->BeginStep(step, /*read_only=*/false);
}

void AccumulatingChannel::SetStepSamples(int64_t samples) {
  if (last()) inner_->SetStepSamples(samples_ + samples);
}

absl::Status AccumulatingChannel::SendDense(const BlockRef& block, absl::Span<const LaneTensor> lanes) {
  // Without a sum to add to, the gradient is sent as it is.
  if (last() && !sums_.Has(block)) return inner_->SendDense(block, lanes);
  RETURN_IF_ERROR(sums_.AddDense(block, lanes));
  return last() ? sums_.Send(block, inner_) : absl::OkStatus();
}

absl::Status AccumulatingChannel::SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) {
  if (last() && !sums_.Has(block)) return inner_->SendRows(block, width, lanes);
  RETURN_IF_ERROR(sums_.AddRows(block, width, lanes));
  return last() ? sums_.Send(block, inner_) : absl::OkStatus();
}

absl::Status AccumulatingChannel::FinishSends(int64_t samples, v1::Verdict verdict) {
  samples_ += samples;
  if (verdict == v1::SKIP) verdict_ = v1::SKIP;
  if (!last()) return absl::OkStatus();
  // Sends sums for which the last batch had no gradient.
  RETURN_IF_ERROR(sums_.SendRest(inner_));
  return inner_->FinishSends(samples_, verdict_);
}

absl::Status AccumulatingChannel::Receive(const BlockRef& block, Tensor* out) {
  return last() || read_only_ ? inner_->Receive(block, out) : absl::OkStatus();
}

absl::Status AccumulatingChannel::FinishReceives(StepOutcome* outcome) {
  if (last() || read_only_) return inner_->FinishReceives(outcome);
  if (outcome != nullptr) *outcome = {.version = step_, .samples = samples_};
  return absl::OkStatus();
}

}  // namespace weir
