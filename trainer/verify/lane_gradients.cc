#include "trainer/verify/lane_gradients.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "framework/collective/adasum.h"
#include "framework/runtime/lane_tree.h"

namespace weir {
namespace {

void AddTo(const float* values, int64_t n, float factor, std::vector<float>* sum) {
  const bool first = sum->empty();
  if (first) sum->resize(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    const float value = values[i] * factor;
    (*sum)[static_cast<size_t>(i)] = first ? value : (*sum)[static_cast<size_t>(i)] + value;
  }
}

}  // namespace

void LaneGradients::Add(int lane, const Variable& gradient, float factor) {
  if (const Tensor* tensor = std::get_if<Tensor>(&gradient)) {
    if (!tensor->initialized()) return;
    dims_.assign(tensor->dims().begin(), tensor->dims().end());
    AddTo(tensor->data<float>(), tensor->size(), factor, &dense_[lane]);
  } else if (const SelectedRows* rows = std::get_if<SelectedRows>(&gradient)) {
    if (!rows->present) return;
    height_ = std::max(height_, rows->height);
    if (rows->values.rank() == 2) width_ = rows->values.dim(1);
    for (size_t r = 0; r < rows->ids.size(); ++r) {
      AddTo(rows->values.data<float>() + r * static_cast<size_t>(width_), width_, factor, &rows_[rows->ids[r]][lane]);
    }
  }
}

bool LaneGradients::IsFinite() const {
  const auto finite = [](const ByLane& by_lane) {
    return std::all_of(by_lane.begin(), by_lane.end(), [](const auto& lane) {
      return std::all_of(lane.second.begin(), lane.second.end(), [](float value) { return std::isfinite(value); });
    });
  };
  return finite(dense_) && std::all_of(rows_.begin(), rows_.end(), [&](const auto& row) { return finite(row.second); });
}

std::vector<float> LaneGradients::TreeSum(ByLane&& by_lane, int lanes) {
  std::vector<std::vector<float>> values;
  std::vector<LaneRange> present;
  for (auto& [lane, of_lane] : by_lane) {
    present.push_back({lane, 1});
    values.push_back(std::move(of_lane));
  }
  for (const LaneAdd& add : TreeAdds(present, lanes)) {
    std::vector<float>& left = values[static_cast<size_t>(add.left)];
    const std::vector<float>& right = values[static_cast<size_t>(add.right)];
    for (size_t i = 0; i < left.size(); ++i) left[i] += right[i];
  }
  return std::move(values[0]);
}

Tensor LaneGradients::SumDense(int lanes) && { return Tensor::Of<float>(dims_, TreeSum(std::move(dense_), lanes)); }

Tensor LaneGradients::Adasum(int lanes) && {
  std::vector<LaneAddend> addends;
  for (const auto& [lane, values] : dense_) addends.push_back({.lanes = {lane, 1}, .values = values.data()});
  Tensor result(v1::FLOAT32, dims_);
  weir::Adasum(v1::FLOAT32, addends, lanes, result.size(), result.data<float>());
  return result;
}

std::map<int64_t, std::vector<float>> LaneGradients::SumRowsById(int lanes) && {
  std::map<int64_t, std::vector<float>> sums;
  for (auto& [id, by_lane] : rows_) sums[id] = TreeSum(std::move(by_lane), lanes);
  return sums;
}

SelectedRows LaneGradients::SumRows(int lanes) && {
  SelectedRows merged{.height = height_, .merged = true, .present = true};
  std::vector<float> values;
  for (const auto& [id, sum] : std::move(*this).SumRowsById(lanes)) {
    merged.ids.push_back(id);
    values.insert(values.end(), sum.begin(), sum.end());
  }
  merged.values = Tensor::Of<float>({static_cast<int64_t>(merged.ids.size()), width_}, values);
  return merged;
}

}  // namespace weir
