#include "framework/tensor/device_tensor.h"

#include <algorithm>
#include <utility>

#include "framework/base/status_macros.h"
#include "glog/logging.h"

namespace weir {

void DeviceTensor::Lay(int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims) {
  CHECK(rank > 0 ? static_cast<int>(row_dims.size()) == rank - 1 : row_dims.empty()) << rank << " " << row_dims.size();
  if (row_dims.data() != row_dims_.data() || row_dims.size() != row_dims_.size())
    row_dims_.assign(row_dims.begin(), row_dims.end());
  if (rows.data() != rows_.data() || rows.size() != rows_.size()) rows_.assign(rows.begin(), rows.end());
  rank_ = rank;
  width_ = ElementCount(row_dims_);
  begin_.resize(rows_.size());
  total_rows_ = 0;
  for (size_t l = 0; l < rows_.size(); ++l) {
    CHECK(rank > 0 || rows_[l] == 1);
    begin_[l] = total_rows_ * width_;
    total_rows_ += rows_[l];
  }
  packed_ = true;
}

absl::Status DeviceTensor::Resize(DeviceMemory* memory, std::string_view owner, DType dtype, int rank,
                                  absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims) {
  int64_t count = 0;
  for (int64_t r : rows) count += r;
  // Allocate at least something: a tensor without memory is absent, not empty.
  const size_t bytes = std::max<size_t>(static_cast<size_t>(count * ElementCount(row_dims)) * DTypeSize(dtype), 4);
  if (block_ == nullptr || view_ || block_.use_count() > 1 || block_->size() < bytes) {
    block_.reset();
    ASSIGN_OR_RETURN(block_, memory->Allocate(bytes, owner));
    view_ = false;
  }
  dtype_ = dtype;
  Lay(rank, rows, row_dims);
  return absl::OkStatus();
}

void DeviceTensor::Take(std::shared_ptr<DeviceBlock> block, DType dtype, int rank, absl::Span<const int64_t> rows,
                        absl::Span<const int64_t> row_dims) {
  block_ = std::move(block);
  view_ = false;
  dtype_ = dtype;
  Lay(rank, rows, row_dims);
  CHECK_LE(static_cast<size_t>(size()) * DTypeSize(dtype_), block_->size());
}

void DeviceTensor::Reshape(int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims) {
  CHECK(packed_);
  const int64_t before = size();
  Lay(rank, rows, row_dims);
  CHECK_EQ(size(), before);
}

void DeviceTensor::Clear() {
  block_.reset();
  rows_.clear();
  begin_.clear();
  row_dims_.clear();
  width_ = 1;
  total_rows_ = 0;
  rank_ = 0;
  packed_ = true;
  view_ = false;
}

DeviceTensor DeviceTensor::View(int64_t first, int rank, int64_t rows, absl::Span<const int64_t> row_dims) const {
  DeviceTensor view = *this;
  const std::vector<int64_t> each(rows_.size(), rows);
  view.Lay(rank, each, row_dims);
  for (size_t l = 0; l < rows_.size(); ++l) {
    view.begin_[l] = begin_[l] + first;
    CHECK_LE(first + view.size(static_cast<int>(l)), size(static_cast<int>(l)));
  }
  view.packed_ = rows_.size() == 1;
  view.view_ = true;
  return view;
}

Shape DeviceTensor::dims(int lane) const {
  Shape dims;
  if (rank_ == 0) return dims;
  dims.push_back(rows_[static_cast<size_t>(lane)]);
  dims.insert(dims.end(), row_dims_.begin(), row_dims_.end());
  return dims;
}

}  // namespace weir
