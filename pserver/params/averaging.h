// Averages the gradients that trainers pushed in a step into the gradient that updates a parameter. Two policies: the
// sum over all trainers divided by the samples of all, or (average BY_TRAINERS) the mean over trainers of each one's
// mean.
//
// With the first, dividing a dense gradient is the task of the optimize block (its op `merge`).
#ifndef WEIR_PSERVER_PARAMS_AVERAGING_H_
#define WEIR_PSERVER_PARAMS_AVERAGING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "framework/runtime/scope.h"
#include "proto/program.pb.h"
#include "pserver/params/dense_sum.h"
#include "pserver/params/gradient.h"
#include "pserver/protocol/merge_gradients.h"

namespace weir {

// Dense block, as far as the sum of its gradients needs it.
struct BlockInfo {
  int index = 0;  // Gradient::target
  std::string name;
  int64_t count = 0;  // elements
  std::vector<int64_t> dims;
  // Width of gradient rows, whose ids are in [0, rows); 0 = dense gradient.
  int sparse_width = 0;
  int64_t rows = 0;
};

// Rows of a table whose gradients are merged: those with MixIds in [first, last], the interval of one stripe.
struct TableSlice {
  int index = 0;  // Gradient::target
  int width = 0;
  uint64_t first = 0;
  uint64_t last = 0;
};

// Rows of a table's gradient, each id once; the gradient of a row is its sum in rows.grads / divisor. The next SumRows
// reuses the memory.
struct RowSums {
  MergedRows rows;
  float divisor = 1;
  std::vector<std::vector<float>> means;  // memory that rows.grads may point into
};

// Returns the parts that trainers have of one table's rows of gradients, or of another array that is laid out alike
// (&Gradient::counts).
std::vector<RowRun> RunsOfTable(absl::Span<const TrainerGradients> trainers, int table, const float* Gradient::*array);

// Immutable, thread-safe.
class Averaging {
 public:
  // `lanes`, `trainers`: of the job. `dense_sum` is borrowed.
  static std::unique_ptr<const Averaging> Create(bool by_trainers, int lanes, int trainers, const DenseSum* dense_sum);
  virtual ~Averaging() = default;

  virtual bool by_trainers() const = 0;
  int lanes() const { return lanes_; }
  int trainers() const { return trainers_; }

  // Returns the variables that receive a block's sums, in the optimize block whose gradient is `gradient`.
  virtual std::vector<std::string> SumVariables(const std::string& gradient) const = 0;
  // Sets these variables. By samples: returns false if no trainer has a gradient of the block, so that there is no
  // update; with sparse_width a variable then holds no rows. By trainers: a trainer without a gradient counts as zero,
  // and the result is true.
  virtual absl::StatusOr<bool> SumBlock(const BlockInfo& block, absl::Span<const TrainerGradients> trainers,
                                        absl::Span<Variable* const> variables) const = 0;
  // Merges the rows of a table's gradient. `samples`: of all trainers.
  virtual absl::Status SumRows(const TableSlice& slice, absl::Span<const TrainerGradients> trainers, int64_t samples,
                               RowSums* sums) const = 0;
  // Returns the ops of a table's optimize block without those that average, which SumRows replaces.
  std::vector<const v1::OpDesc*> RowOps(const v1::BlockDesc& optimize) const;

 protected:
  Averaging(int lanes, int trainers, const DenseSum* dense_sum)
      : lanes_(lanes), trainers_(trainers), dense_sum_(*dense_sum) {}

  // Returns true if an op is part of the average.
  virtual bool Averages(const v1::OpDesc& op) const = 0;
  // Sets `to` to the sum over these trainers. Returns false if none has a gradient of the block; a dense `to` is then
  // unchanged.
  absl::StatusOr<bool> SumInto(const BlockInfo& block, absl::Span<const TrainerGradients> from, Variable* to) const;

 private:
  absl::StatusOr<bool> SumRowsInto(const BlockInfo& block, absl::Span<const TrainerGradients> from, Variable* to) const;

  const int lanes_;
  const int trainers_;
  const DenseSum& dense_sum_;
};

}  // namespace weir

#endif  // WEIR_PSERVER_PARAMS_AVERAGING_H_
