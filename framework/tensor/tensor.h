// Tensors, and the three kinds of value that a variable can hold. Not thread-safe: one writer at a time.
#ifndef WEIR_FRAMEWORK_TENSOR_TENSOR_H_
#define WEIR_FRAMEWORK_TENSOR_TENSOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "framework/tensor/dtype.h"
#include "glog/logging.h"

namespace weir {

// Dimensions; empty is a scalar. -1 (batch, unknown) occurs in descriptions only, never in a Tensor.
using Shape = absl::InlinedVector<int64_t, 4>;

// Product of dims; 1 for a scalar. Dims must not be negative.
int64_t ElementCount(absl::Span<const int64_t> dims);
// "[32, 26, 8]"
std::string ShapeString(absl::Span<const int64_t> dims);

// Where bytes are. CUDA memory is reached through framework/tensor/device.h only.
enum class Device { kCpu, kCuda };

// Memory aligned to 64 bytes. Shared by a tensor and the views of it.
class Buffer {
 public:
  Buffer(size_t bytes, Device device);
  // On the CPU, at owner.get(): pinned memory, which a device copies from as it is. The bytes end with a whole line.
  Buffer(std::shared_ptr<void> owner, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }
  Device device() const { return device_; }
  bool pinned() const { return owner_ != nullptr; }

 private:
  const std::shared_ptr<void> owner_;  // null: the memory is this buffer's
  void* data_ = nullptr;
  size_t size_ = 0;
  Device device_;
};

// Where pinned memory comes from. Thread-safe.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  // At least `bytes`; null when there is none to be had.
  virtual std::shared_ptr<Buffer> NewBuffer(size_t bytes) = 0;
};

// A dense row-major array. Copying a Tensor shares its memory; use CopyFrom for the elements.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, absl::Span<const int64_t> dims, Device device = Device::kCpu) { Resize(dtype, dims, device); }
  template <typename T>
  static Tensor Of(absl::Span<const int64_t> dims, absl::Span<const T> values);

  // Keeps the memory when it is large enough and not a view's; contents are then undefined. So a step that repeats
  // shapes allocates nothing.
  void Resize(DType dtype, absl::Span<const int64_t> dims, Device device = Device::kCpu);
  // Takes other memory, pinned when `memory` has some, and leaves the last as it is: a device may still be reading
  // that. Contents are undefined.
  void Renew(DType dtype, absl::Span<const int64_t> dims, PinnedMemory* memory);
  // Same elements, other dims; the count must not change.
  void Reshape(absl::Span<const int64_t> dims);
  // `count` elements from `begin` on, sharing memory.
  Tensor View(int64_t begin, absl::Span<const int64_t> dims) const;
  // Becomes a deep copy on the CPU (source and this on the CPU).
  void CopyFrom(const Tensor& other);

  DType dtype() const { return dtype_; }
  absl::Span<const int64_t> dims() const { return dims_; }
  int64_t dim(int i) const { return dims_[i]; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * DTypeSize(dtype_); }
  Device device() const { return buffer_ == nullptr ? Device::kCpu : buffer_->device(); }
  // False until the first Resize: a gradient that was never written is absent, not zero.
  bool initialized() const { return buffer_ != nullptr; }
  // Holds the memory as long as it is kept; null unless it is pinned.
  std::shared_ptr<const Buffer> pinned() const { return buffer_ != nullptr && buffer_->pinned() ? buffer_ : nullptr; }
  void Clear() { *this = Tensor(); }

  void* raw() { return buffer_ == nullptr ? nullptr : static_cast<char*>(buffer_->data()) + offset_; }
  const void* raw() const { return buffer_ == nullptr ? nullptr : static_cast<const char*>(buffer_->data()) + offset_; }
  template <typename T>
  T* data() {
    CHECK(DTypeOf<T>::value == dtype_) << "tensor holds " << v1::DType_Name(dtype_);
    return static_cast<T*>(raw());
  }
  template <typename T>
  const T* data() const {
    CHECK(DTypeOf<T>::value == dtype_) << "tensor holds " << v1::DType_Name(dtype_);
    return static_cast<const T*>(raw());
  }
  template <typename T>
  absl::Span<T> span() {
    return absl::MakeSpan(data<T>(), size_);
  }
  template <typename T>
  absl::Span<const T> span() const {
    return absl::MakeConstSpan(data<T>(), size_);
  }

 private:
  std::shared_ptr<Buffer> buffer_;
  size_t offset_ = 0;  // bytes
  Shape dims_;
  int64_t size_ = 0;
  DType dtype_ = v1::FLOAT32;
};

template <typename T>
Tensor Tensor::Of(absl::Span<const int64_t> dims, absl::Span<const T> values) {
  Tensor t(DTypeOf<T>::value, dims);
  CHECK_EQ(t.size(), static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), t.data<T>());
  return t;
}

// Rows of a matrix by id. values is [ids.size(), width] float32.
struct SelectedRows {
  int64_t height = -1;  // rows of the whole matrix; -1 without bound
  std::vector<int64_t> ids;
  Tensor values;
  // Where each id stands in the rows that prefetch brought for the step; empty when not made from them. Lets lanes
  // merge without hashing.
  std::vector<int32_t> step_rows;
  // Every id at most once.
  bool merged = false;
  // Like Tensor::initialized.
  bool present = false;
};

// Feature ids of the examples of one lane: example b, slot s has values [offsets[b * slots + s], offsets[b * slots + s
// + 1]).
struct IdBatch {
  int64_t slots = 1;
  std::vector<int64_t> values;
  std::vector<int64_t> offsets;  // batch * slots + 1 entries, or empty for no examples
  std::vector<float> weights;    // empty, or one per value
  int64_t batch() const { return offsets.empty() ? 0 : (static_cast<int64_t>(offsets.size()) - 1) / slots; }
};

using Variable = std::variant<Tensor, SelectedRows, IdBatch>;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_TENSOR_TENSOR_H_
