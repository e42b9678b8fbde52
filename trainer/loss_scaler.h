// Dynamic loss scaling (train.loss_scaling): what backward is seeded with, step after step.
//
// The scale is a function of the job and of which steps were skipped alone. In sync a step is skipped by all trainers
// or by none, so all of them have the same scale without a word about it. Without train.loss_scaling it is 1 and stays.
#ifndef WEIR_TRAINER_LOSS_SCALER_H_
#define WEIR_TRAINER_LOSS_SCALER_H_

#include <cstdint>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace weir {

class LossScaler {
 public:
  explicit LossScaler(const v1::Train& train);

  bool on() const { return on_; }
  // Of the next step. A power of two.
  float scale() const { return static_cast<float>(scale_); }

  // A step has ended.
  void StepDone(bool skipped);

  v1::LossScale State() const;
  // Of a checkpoint, whose job may have had other settings.
  void Restore(const v1::LossScale& state);

 private:
  const bool on_;
  const v1::LossScaling settings_;
  double scale_ = 1;
  // In a row, at this scale.
  int64_t good_steps_ = 0;
};

}  // namespace weir

#endif  // WEIR_TRAINER_LOSS_SCALER_H_
