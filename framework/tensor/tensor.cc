#include "framework/tensor/tensor.h"

#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weir {

int64_t ElementCount(absl::Span<const int64_t> dims) {
  int64_t n = 1;
  for (int64_t d : dims) {
    CHECK_GE(d, 0) << ShapeString(dims);
    CHECK(!__builtin_mul_overflow(n, d, &n)) << ShapeString(dims);
  }
  return n;
}

std::string ShapeString(absl::Span<const int64_t> dims) { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); }

Buffer::Buffer(size_t bytes) : size_(bytes) {
  // Round up to whole cache lines: vector loads may read past the last element, but never past the last line.
  const size_t rounded = (bytes + 63) / 64 * 64;
  data_ = std::aligned_alloc(64, rounded == 0 ? 64 : rounded);
  CHECK(data_ != nullptr) << "out of memory: " << bytes << " bytes for one tensor";
}

Buffer::Buffer(std::shared_ptr<void> owner, size_t bytes)
    : owner_(std::move(owner)), data_(owner_.get()), size_(bytes) {
  CHECK(data_ != nullptr && reinterpret_cast<uintptr_t>(data_) % 64 == 0 && bytes % 64 == 0) << bytes;
}

Buffer::~Buffer() {
  if (owner_ == nullptr) std::free(data_);
}

void Tensor::Resize(DType dtype, absl::Span<const int64_t> dims) {
  const int64_t size = ElementCount(dims);
  const size_t bytes = static_cast<size_t>(size) * DTypeSize(dtype);
  const bool keep = buffer_ != nullptr && buffer_.use_count() == 1 && offset_ == 0 && buffer_->size() >= bytes;
  if (!keep) {
    buffer_ = std::make_shared<Buffer>(bytes);
    offset_ = 0;
  }
  // An in-place op may pass the tensor's own dims.
  if (dims.data() != dims_.data() || dims.size() != dims_.size()) dims_.assign(dims.begin(), dims.end());
  size_ = size;
  dtype_ = dtype;
}

void Tensor::Renew(DType dtype, absl::Span<const int64_t> dims, PinnedMemory* memory) {
  const size_t bytes = static_cast<size_t>(ElementCount(dims)) * DTypeSize(dtype);
  std::shared_ptr<Buffer> fresh = memory->NewBuffer(bytes);
  if (fresh != nullptr || pinned() != nullptr) {
    buffer_ = std::move(fresh);
    offset_ = 0;
  }
  // Resize keeps the buffer set above; without one it uses ordinary memory.
  Resize(dtype, dims);
}

void Tensor::Reshape(absl::Span<const int64_t> dims) {
  CHECK_EQ(ElementCount(dims), size_);
  dims_.assign(dims.begin(), dims.end());
}

Tensor Tensor::View(int64_t begin, absl::Span<const int64_t> dims) const {
  Tensor view = *this;
  view.size_ = ElementCount(dims);
  CHECK(begin >= 0 && begin + view.size_ <= size_) << begin << " + " << view.size_ << " of " << size_;
  view.offset_ += static_cast<size_t>(begin) * DTypeSize(dtype_);
  view.dims_.assign(dims.begin(), dims.end());
  return view;
}

void Tensor::CopyFrom(const Tensor& other) {
  if (!other.initialized()) {
    Clear();
    return;
  }
  Resize(other.dtype(), other.dims());
  std::memcpy(raw(), other.raw(), bytes());
}

}  // namespace weir
