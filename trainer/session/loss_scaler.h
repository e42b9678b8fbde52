// Dynamic loss scaling (train.loss_scaling): determines, step by step, the factor that backward starts with.
//
// The scale is a function only of the job and of the steps that were skipped. In sync a step is skipped by all trainers
// or by none, so all have the same scale without communication. Without train.loss_scaling the scale is 1 and stays.
// Not thread-safe.
#ifndef WEIR_TRAINER_SESSION_LOSS_SCALER_H_
#define WEIR_TRAINER_SESSION_LOSS_SCALER_H_

#include <cstdint>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace weir {

class LossScaler {
 public:
  explicit LossScaler(const v1::Train& train);

  bool on() const { return on_; }
  // Returns the scale of the next step, a power of two.
  float scale() const { return static_cast<float>(scale_); }

  // Ends a step. A skipped step multiplies the scale by `backoff`, but not below 1; `growth_every` consecutive steps
  // that took effect multiply it by `growth`, but not above `most`.
  void StepDone(bool skipped);

  // Sets state->loss_scale; does nothing without train.loss_scaling.
  void Save(v1::TrainerState* state) const;
  // Goes on from state.loss_scale of a checkpoint, which may come from a job with other settings: the scale is rounded
  // down to a power of two in [1, most]. Does nothing without it, or without train.loss_scaling.
  void Restore(const v1::TrainerState& state);

 private:
  const bool on_;
  const v1::LossScaling settings_;
  double scale_ = 1;
  // Consecutive steps that took effect at this scale.
  int64_t good_steps_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_SESSION_LOSS_SCALER_H_
