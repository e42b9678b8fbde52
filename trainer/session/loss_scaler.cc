#include "trainer/session/loss_scaler.h"

#include <algorithm>
#include <cmath>

namespace weir {

LossScaler::LossScaler(const v1::Train& train)
    : on_(train.has_loss_scaling()), settings_(train.loss_scaling()), scale_(on_ ? settings_.initial() : 1) {}

void LossScaler::StepDone(bool skipped) {
  if (!on_) return;
  if (skipped) {
    scale_ = std::max(1.0, scale_ * settings_.backoff());
    good_steps_ = 0;
    return;
  }
  if (++good_steps_ < settings_.growth_every()) return;
  scale_ = std::min(settings_.most(), scale_ * settings_.growth());
  good_steps_ = 0;
}

void LossScaler::Save(v1::TrainerState* state) const {
  if (!on_) return;
  state->mutable_loss_scale()->set_scale(scale_);
  state->mutable_loss_scale()->set_good_steps(good_steps_);
}

void LossScaler::Restore(const v1::TrainerState& state) {
  if (!on_ || !state.has_loss_scale()) return;
  const v1::LossScale& own = state.loss_scale();
  // Round down to a power of two, whatever number the checkpoint holds.
  int exponent = 1;
  if (own.scale() >= 1) std::frexp(std::min(own.scale(), settings_.most()), &exponent);
  scale_ = std::ldexp(1.0, exponent - 1);
  good_steps_ = std::max<int64_t>(0, own.good_steps());
}

}  // namespace weir
