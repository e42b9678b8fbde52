// Gradients of all lanes on their way out of a trainer: what send and all_reduce have in common.
//
// Lanes without examples and lanes whose gradient is absent contribute nothing; when no lane has one, the channel is
// not called: absent is not zero.
//
// Numbers that are not finite are reported to StepContext.health, which send_barrier judges; with the attribute
// `bad_rows` they are not, because those who update leave out the rows that hold them. In the same pass gradients are
// divided by StepContext.loss_scale; with `measured` they are not, because they are then measurements for running
// averages, not gradients. Means of lanes are also divided by the examples of their lane in the step; where a step is
// several runs of the program, by those of this run times the number of runs.
#ifndef WEIR_OPS_OUTGOING_GRADIENTS_H_
#define WEIR_OPS_OUTGOING_GRADIENTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"

namespace weir {

// Not thread-safe.
class OutgoingGradients {
 public:
  // `blocks`: one for each variable of slot X. Reads the attributes width, bad_rows and measured, and the slot Counts.
  // mean: sends means of lanes.
  OutgoingGradients(const KernelInit& init, std::vector<BlockRef> blocks, bool mean = false);

  // Hands the gradients of all lanes to the step's channel. It reads them until the step's pushes end.
  absl::Status Send(KernelContext& ctx);

 private:
  bool Divides(const KernelContext& ctx) const { return mean_ || (ctx.step->loss_scale != 1 && !measured_); }
  // Returns the number by which the gradient of a lane is multiplied.
  float FactorOf(const KernelContext& ctx, int lane) const;
  // Gradient of a lane, and where to put factor * value; null: nowhere.
  struct OfLane {
    const Tensor* value;
    float factor;
    Tensor* divided;
  };
  // Reports values that are not finite, and divides. Looks at all lanes on all threads, if they are large.
  void Inspect(const KernelContext& ctx, size_t i, const OfLane& gradient) const;
  void InspectAll(const KernelContext& ctx, size_t i, const std::vector<OfLane>& gradients) const;
  absl::Status SendDense(KernelContext& ctx, size_t i, StepChannel* channel);
  absl::Status SendRows(KernelContext& ctx, size_t i, StepChannel* channel);
  template <typename T>
  T* DividedAs(size_t i, int lane) {
    Variable& var = divided_[i][static_cast<size_t>(lane)];
    if (!std::holds_alternative<T>(var)) var = T();
    return &std::get<T>(var);
  }

  const std::vector<std::string> vars_;
  const std::vector<BlockRef> blocks_;
  const int64_t width_;
  const bool bad_rows_;
  const bool measured_;
  const bool mean_;
  const bool counts_;
  // Gradient of each X and lane, divided.
  std::vector<std::vector<Variable>> divided_;
};

// Check the types and shapes of slot X against the attribute width, and sum up their bytes.
absl::Status CheckOutgoing(InferContext& ctx);
Cost OutgoingCost(InferContext& ctx);

}  // namespace weir

#endif  // WEIR_OPS_OUTGOING_GRADIENTS_H_
