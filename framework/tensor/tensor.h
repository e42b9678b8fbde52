// Tensors, and the three kinds of value of a variable. Not thread-safe: one writer at a time.
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

// Returns the product of dims; 1 for a scalar. Dims must not be negative.
int64_t ElementCount(absl::Span<const int64_t> dims);
// Returns "[32, 26, 8]".
std::string ShapeString(absl::Span<const int64_t> dims);

// Memory of the CPU, aligned to 64 bytes; framework/tensor/device_memory.h has that of a device. Shared by a tensor and
// its views.
class Buffer {
 public:
  explicit Buffer(size_t bytes);
  // Wraps pinned memory of the CPU at owner.get(), which a device can copy from directly. `bytes` must be a multiple of
  // 64.
  Buffer(std::shared_ptr<void> owner, size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  size_t size() const { return size_; }
  bool pinned() const { return owner_ != nullptr; }

 private:
  const std::shared_ptr<void> owner_;  // null: the memory is this buffer's
  void* data_ = nullptr;
  size_t size_ = 0;
};

// Source of pinned memory. Thread-safe.
class PinnedMemory {
 public:
  virtual ~PinnedMemory() = default;
  // Returns a buffer of at least `bytes`; null if none is available.
  virtual std::shared_ptr<Buffer> NewBuffer(size_t bytes) = 0;
};

// Dense row-major array. Copying a Tensor shares its memory; use CopyFrom for the elements.
class Tensor {
 public:
  Tensor() = default;
  Tensor(DType dtype, absl::Span<const int64_t> dims) { Resize(dtype, dims); }
  template <typename T>
  static Tensor Of(absl::Span<const int64_t> dims, absl::Span<const T> values);

  // Sets type and dims; contents are undefined. Keeps the memory if it is large enough and not shared with a view or
  // copy, so a step that repeats shapes allocates nothing.
  void Resize(DType dtype, absl::Span<const int64_t> dims);
  // Sets type and dims of a value that a device will read; contents are undefined. Takes new pinned memory if `memory`
  // has some; else takes ordinary memory, or keeps its own as Resize does. Leaves pinned memory that it had unchanged:
  // a device may still be reading it.
  void Renew(DType dtype, absl::Span<const int64_t> dims, PinnedMemory* memory);
  // Changes the dims of the same elements; the count must not change.
  void Reshape(absl::Span<const int64_t> dims);
  // Returns a tensor of dims `dims` over the elements from `begin` on, which must exist, sharing memory.
  Tensor View(int64_t begin, absl::Span<const int64_t> dims) const;
  // Copies the elements of `other`.
  void CopyFrom(const Tensor& other);

  DType dtype() const { return dtype_; }
  absl::Span<const int64_t> dims() const { return dims_; }
  int64_t dim(int i) const { return dims_[i]; }
  int rank() const { return static_cast<int>(dims_.size()); }
  int64_t size() const { return size_; }
  size_t bytes() const { return static_cast<size_t>(size_) * DTypeSize(dtype_); }
  // False until the first Resize and after Clear: a gradient that was never written is absent, not zero.
  bool initialized() const { return buffer_ != nullptr; }
  // Returns a reference that keeps the memory alive; null unless the memory is pinned.
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

// Rows of a matrix by id. `values` is [ids.size(), width] float32.
struct SelectedRows {
  int64_t height = -1;  // rows of the whole matrix; -1 without bound
  std::vector<int64_t> ids;
  Tensor values;
  // Index of each id in the rows that prefetch pulled for the step; empty if not made from them. Lets lanes merge
  // without hashing.
  std::vector<int32_t> step_rows;
  // True if every id occurs at most once.
  bool merged = false;
  // True if the value is set, like Tensor::initialized.
  bool present = false;

  // Copies everything of `other` but the values.
  void CopyRowsOf(const SelectedRows& other) {
    if (this == &other) return;
    height = other.height;
    ids = other.ids;
    step_rows = other.step_rows;
    merged = other.merged;
    present = other.present;
  }
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
