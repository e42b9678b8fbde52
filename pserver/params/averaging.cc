#include "pserver/params/averaging.h"

#include <cstddef>
#include <cstring>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/tensor/tensor.h"

namespace weir {

namespace {

// Returns the variable as a T; a variable of another kind becomes an empty T.
template <typename T>
T& As(Variable* variable) {
  if (!std::holds_alternative<T>(*variable)) *variable = T();
  return std::get<T>(*variable);
}

RowRun RunOf(const Gradient& g, const float* values) {
  return {g.node, absl::MakeConstSpan(g.ids, static_cast<size_t>(g.count)), values,
          g.order.empty() ? nullptr : g.order.data()};
}

// The sum over all trainers.
class BySamples : public Averaging {
 public:
  BySamples(int lanes, int trainers, const DenseSum* dense_sum) : Averaging(lanes, trainers, dense_sum) {}

  bool by_trainers() const override { return false; }
  std::vector<std::string> SumVariables(const std::string& gradient) const override { return {gradient}; }
  absl::StatusOr<bool> SumBlock(const BlockInfo& block, absl::Span<const TrainerGradients> trainers,
                                absl::Span<Variable* const> variables) const override {
    return SumInto(block, trainers, variables[0]);
  }
  absl::Status SumRows(const TableSlice& slice, absl::Span<const TrainerGradients> trainers, int64_t samples,
                       RowSums* sums) const override {
    sums->divisor = static_cast<float>(samples);
    return MergeRows(RunsOfTable(trainers, slice.index, &Gradient::values), slice.width, slice.first, slice.last,
                     &sums->rows);
  }

 protected:
  bool Averages(const v1::OpDesc& op) const override { return op.type() == "merge"; }
};

// The mean over trainers of each one's mean: a trainer that brings nothing counts as zero.
class ByTrainers : public Averaging {
 public:
  ByTrainers(int lanes, int trainers, const DenseSum* dense_sum) : Averaging(lanes, trainers, dense_sum) {}

  bool by_trainers() const override { return true; }
  std::vector<std::string> SumVariables(const std::string& gradient) const override {
    std::vector<std::string> names;
    names.reserve(static_cast<size_t>(trainers()));
    for (int t = 0; t < trainers(); ++t) names.push_back(absl::StrCat(gradient, ".trainer_", t));
    return names;
  }
  absl::StatusOr<bool> SumBlock(const BlockInfo& block, absl::Span<const TrainerGradients> trainers,
                                absl::Span<Variable* const> variables) const override;
  absl::Status SumRows(const TableSlice& slice, absl::Span<const TrainerGradients> trainers, int64_t samples,
                       RowSums* sums) const override;

 protected:
  bool Averages(const v1::OpDesc& op) const override {
    return op.type() == "merge" || op.type() == "sum" || op.type() == "scale";
  }
};

absl::StatusOr<bool> ByTrainers::SumBlock(const BlockInfo& block, absl::Span<const TrainerGradients> trainers,
                                          absl::Span<Variable* const> variables) const {
  for (int t = 0; t < this->trainers(); ++t) {
    Variable* const to = variables[static_cast<size_t>(t)];
    absl::Span<const TrainerGradients> own;
    for (const TrainerGradients& trainer : trainers) {
      if (trainer.trainer == t) own = absl::MakeConstSpan(&trainer, trainer.samples > 0 ? 1 : 0);
    }
    ASSIGN_OR_RETURN(const bool present, SumInto(block, own, to));
    if (!present && block.sparse_width == 0) {
      Tensor& tensor = As<Tensor>(to);
      tensor.Resize(v1::FLOAT32, block.dims);
      for (float& v : tensor.span<float>()) v = 0;
    }
    if (!present) continue;
    const absl::Span<float> sum =
        block.sparse_width > 0 ? std::get<SelectedRows>(*to).values.span<float>() : std::get<Tensor>(*to).span<float>();
    for (float& v : sum) v /= static_cast<float>(own[0].samples);
  }
  return true;
}

absl::Status ByTrainers::SumRows(const TableSlice& slice, absl::Span<const TrainerGradients> trainers,
                                 int64_t /*samples*/, RowSums* sums) const {
  // Each trainer's mean first; then their sum in a tree with one leaf per trainer.
  sums->divisor = static_cast<float>(this->trainers());
  sums->means.resize(trainers.size());
  std::vector<MergedRows> own(trainers.size());
  std::vector<RowRun> runs;
  for (size_t t = 0; t < trainers.size(); ++t) {
    if (trainers[t].samples == 0) continue;
    RETURN_IF_ERROR(MergeRows(RunsOfTable(trainers.subspan(t, 1), slice.index, &Gradient::values), slice.width,
                              slice.first, slice.last, &own[t]));
    std::vector<float>& means = sums->means[t];
    means.clear();
    means.reserve(own[t].ids.size() * static_cast<size_t>(slice.width));
    for (const float* grad : own[t].grads) {
      for (int j = 0; j < slice.width; ++j) means.push_back(grad[j] / static_cast<float>(trainers[t].samples));
    }
    runs.push_back({{trainers[t].trainer, 1}, own[t].ids, means.data(), nullptr});
  }
  return MergeRows(runs, slice.width, slice.first, slice.last, &sums->rows);
}

}  // namespace

std::unique_ptr<const Averaging> Averaging::Create(bool by_trainers, int lanes, int trainers,
                                                   const DenseSum* dense_sum) {
  if (by_trainers) return std::make_unique<ByTrainers>(lanes, trainers, dense_sum);
  return std::make_unique<BySamples>(lanes, trainers, dense_sum);
}

std::vector<RowRun> RunsOfTable(absl::Span<const TrainerGradients> trainers, int table, const float* Gradient::*array) {
  std::vector<RowRun> runs;
  for (const TrainerGradients& trainer : trainers) {
    for (const Gradient& g : trainer.gradients) {
      if (g.of_table && g.target == table) runs.push_back(RunOf(g, g.*array));
    }
  }
  return runs;
}

std::vector<const v1::OpDesc*> Averaging::RowOps(const v1::BlockDesc& optimize) const {
  std::vector<const v1::OpDesc*> ops;
  // Leaves out the first average only, `merge` or `sum` and `scale`: later ops of these types belong to the update.
  bool averaged = false;
  for (const v1::OpDesc& op : optimize.ops()) {
    if (Averages(op) && !averaged) {
      averaged = op.type() != "sum";
      continue;
    }
    ops.push_back(&op);
  }
  return ops;
}

absl::StatusOr<bool> Averaging::SumInto(const BlockInfo& block, absl::Span<const TrainerGradients> from,
                                        Variable* to) const {
  if (block.sparse_width > 0) return SumRowsInto(block, from, to);
  std::vector<const Gradient*> parts;
  for (const TrainerGradients& trainer : from) {
    for (const Gradient& g : trainer.gradients) {
      if (!g.of_table && g.target == block.index) parts.push_back(&g);
    }
  }
  if (parts.empty()) return false;
  Tensor& tensor = As<Tensor>(to);
  tensor.Resize(v1::FLOAT32, block.dims);
  RETURN_IF_ERROR(dense_sum_.Sum(parts, lanes_, tensor.span<float>()));
  return true;
}

absl::StatusOr<bool> Averaging::SumRowsInto(const BlockInfo& block, absl::Span<const TrainerGradients> from,
                                            Variable* to) const {
  std::vector<RowRun> runs;
  for (const TrainerGradients& trainer : from) {
    for (const Gradient& g : trainer.gradients) {
      if (!g.of_table && g.target == block.index) runs.push_back(RunOf(g, g.values));
    }
  }
  MergedRows merged;
  RETURN_IF_ERROR(MergeRows(runs, block.sparse_width, 0, UINT64_MAX, &merged));
  SelectedRows& rows = As<SelectedRows>(to);
  rows.height = block.rows;
  rows.merged = true;
  rows.present = true;
  rows.step_rows.clear();
  rows.ids = merged.ids;
  rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(merged.ids.size()), block.sparse_width});
  float* out = rows.values.data<float>();
  for (const float* grad : merged.grads) {
    std::memcpy(out, grad, static_cast<size_t>(block.sparse_width) * sizeof(float));
    out += block.sparse_width;
  }
  return !runs.empty();
}

}  // namespace weir
