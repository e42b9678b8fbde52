// Gradients of the lanes of a step, summed in plain code for the unsplit run.
#ifndef WEIR_TRAINER_VERIFY_LANE_GRADIENTS_H_
#define WEIR_TRAINER_VERIFY_LANE_GRADIENTS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "framework/tensor/tensor.h"

namespace weir {

// Gradient of one parameter, by lane, over the batches of a step. Not thread-safe.
class LaneGradients {
 public:
  // Adds factor * `gradient` (float32) of one batch to a lane; a gradient that is absent adds nothing. All gradients
  // are dense, or all are rows.
  void Add(int lane, const Variable& gradient, float factor);

  // Returns true if there are gradients, and they are dense.
  bool has_dense() const { return !dense_.empty(); }
  bool has_rows() const { return !rows_.empty(); }
  // Returns true if the sum of every lane is finite.
  bool IsFinite() const;

  // Add the lanes in the lane tree with `lanes` leaves, and consume the sums of the lanes. SumDense and Adasum, which
  // combines them otherwise (framework/collective/adasum.h), need has_dense(); the others give rows in order of the
  // ids.
  Tensor SumDense(int lanes) &&;
  Tensor Adasum(int lanes) &&;
  SelectedRows SumRows(int lanes) &&;
  std::map<int64_t, std::vector<float>> SumRowsById(int lanes) &&;

 private:
  using ByLane = std::map<int, std::vector<float>>;
  static std::vector<float> TreeSum(ByLane&& by_lane, int lanes);

  ByLane dense_;
  std::map<int64_t, ByLane> rows_;   // by id
  Shape dims_;                       // of the dense gradient
  int64_t height_ = -1, width_ = 1;  // of rows
};

}  // namespace weir

#endif  // WEIR_TRAINER_VERIFY_LANE_GRADIENTS_H_
