// A dense variable in device memory: one value that all lanes share, or that of every lane of a process in one piece of
// memory.
//
// Lane l is [rows(l), row dims..] from element begin(l) on. Packed, lanes lie one after the other without gaps: what
// works row by row sees the rows of all lanes as one matrix of rows() rows, whatever the lanes' sizes. A gradient of a
// parameter [K, N] has K rows in each lane: [lanes, K, N]. A scalar is one row of one element in each lane.
//
// Not thread-safe. Copying shares the memory.
#ifndef WEIR_FRAMEWORK_TENSOR_DEVICE_TENSOR_H_
#define WEIR_FRAMEWORK_TENSOR_DEVICE_TENSOR_H_

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "framework/tensor/device_memory.h"
#include "framework/tensor/dtype.h"
#include "framework/tensor/tensor.h"

namespace weir {

class DeviceTensor {
 public:
  // Keeps the memory when it is large enough and not a view's. rank 0: one row in each lane, no row dims. `owner`: for
  // DeviceMemory.
  absl::Status Resize(DeviceMemory* memory, std::string_view owner, DType dtype, int rank,
                      absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims);
  // The value is what lies in the block from its beginning on. It may be another's, too.
  void Take(std::shared_ptr<DeviceBlock> block, DType dtype, int rank, absl::Span<const int64_t> rows,
            absl::Span<const int64_t> row_dims);
  // Same elements under other dims: each lane's count must not change.
  void Reshape(int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims);
  // `count` elements of each lane from its element `first` on, [rows, row_dims..] each, sharing memory. Not packed.
  DeviceTensor View(int64_t first, int rank, int64_t rows, absl::Span<const int64_t> row_dims) const;
  void Clear();

  // False: absent, as Tensor::initialized.
  bool initialized() const { return block_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int lanes() const { return static_cast<int>(rows_.size()); }
  int64_t rows(int lane) const { return rows_[lane]; }
  const std::vector<int64_t>& lane_rows() const { return rows_; }
  // Of all lanes.
  int64_t rows() const { return total_rows_; }
  absl::Span<const int64_t> row_dims() const { return row_dims_; }
  // Elements of a row.
  int64_t width() const { return width_; }
  int64_t begin(int lane) const { return begin_[lane]; }
  int64_t size(int lane) const { return rows_[lane] * width_; }
  int64_t size() const { return total_rows_ * width_; }
  bool packed() const { return packed_; }
  // Dims of a lane's value.
  Shape dims(int lane = 0) const;
  size_t bytes() const { return block_ == nullptr ? 0 : block_->size(); }

  void* raw(int lane = 0) const {
    return block_ == nullptr
               ? nullptr
               : static_cast<char*>(block_->data()) + static_cast<size_t>(begin_[lane]) * DTypeSize(dtype_);
  }
  template <typename T>
  T* data(int lane = 0) const {
    CHECK(DTypeOf<T>::value == dtype_) << "tensor holds " << v1::DType_Name(dtype_);
    return static_cast<T*>(raw(lane));
  }
  bool SharesMemoryWith(const DeviceTensor& other) const { return block_ != nullptr && block_ == other.block_; }

 private:
  void Lay(int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims);

  std::shared_ptr<DeviceBlock> block_;
  DType dtype_ = v1::FLOAT32;
  int rank_ = 0;
  std::vector<int64_t> rows_;
  std::vector<int64_t> begin_;  // elements
  Shape row_dims_;
  int64_t width_ = 1;
  int64_t total_rows_ = 0;
  bool packed_ = true;
  bool view_ = false;
};

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_DEVICE_TENSOR_H_
