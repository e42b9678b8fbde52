// Dense variable in device memory: one value shared by all lanes, or the values of all lanes of a process in one block
// of memory.
//
// Lane l is [rows(l), row dims..] from element begin(l) on. If packed, lanes follow each other without gaps: row-wise
// operators see the rows of all lanes as one matrix of rows() rows, whatever the lanes' sizes. A gradient of a
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
  // Sets type, dims and the rows of each lane; contents are undefined. Keeps the memory if it is large enough, not a
  // view's and not shared with a copy. rank 0: one row in each lane, no row dims. `owner` is the owner in DeviceMemory.
  // ResourceExhausted as DeviceMemory::Allocate; the value is then absent.
  absl::Status Resize(DeviceMemory* memory, std::string_view owner, DType dtype, int rank,
                      absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims);
  // Uses the content of the block, from its beginning, as the value. The block may be shared.
  void Take(std::shared_ptr<DeviceBlock> block, DType dtype, int rank, absl::Span<const int64_t> rows,
            absl::Span<const int64_t> row_dims);
  // Changes the dims of the same elements. Must be packed; each lane's count must not change.
  void Reshape(int rank, absl::Span<const int64_t> rows, absl::Span<const int64_t> row_dims);
  // Returns a view of each lane's elements from `first` on, with dims [rows, row_dims..] per lane. The view shares
  // memory; it is packed only if there is one lane.
  DeviceTensor View(int64_t first, int rank, int64_t rows, absl::Span<const int64_t> row_dims) const;
  void Clear();

  // False if the value is absent, as in Tensor::initialized.
  bool initialized() const { return block_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  int lanes() const { return static_cast<int>(rows_.size()); }
  int64_t rows(int lane) const { return rows_[lane]; }
  const std::vector<int64_t>& lane_rows() const { return rows_; }
  // Rows of all lanes.
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
  // Size of the block of memory, of which the value may use a part.
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
