// Bytes on their way between processes: a list of pieces, each keeping its memory alive. No gRPC here.
#ifndef WEIR_FRAMEWORK_WIRE_SLICES_H_
#define WEIR_FRAMEWORK_WIRE_SLICES_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/inlined_vector.h"

namespace weir {

struct Slice {
  const char* data = nullptr;
  size_t size = 0;
  // Keeps `data` alive; null when the caller guarantees that until the call is over.
  std::shared_ptr<const void> owner;

  static Slice Own(std::string bytes) {
    auto kept = std::make_shared<const std::string>(std::move(bytes));
    return {kept->data(), kept->size(), kept};
  }
  static Slice Borrow(const void* data, size_t size) { return {static_cast<const char*>(data), size, nullptr}; }
};

using Slices = absl::InlinedVector<Slice, 4>;

// Largest message either side accepts or makes; larger transfers are several calls.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
// Payloads and the tensors in them start at multiples of this.
inline constexpr size_t kAlignment = 64;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_SLICES_H_
