// Bytes of messages between processes: a list of pieces, each keeping its memory alive. Has no gRPC types.
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
  // Keeps `data` alive; null if the caller does so until the call returns.
  std::shared_ptr<const void> owner;

  static Slice Own(std::string bytes) {
    auto kept = std::make_shared<const std::string>(std::move(bytes));
    return {kept->data(), kept->size(), kept};
  }
  static Slice Borrow(const void* data, size_t size) { return {static_cast<const char*>(data), size, nullptr}; }
};

using Slices = absl::InlinedVector<Slice, 4>;

// Largest message that either side accepts or sends; larger transfers take several calls.
inline constexpr size_t kMaxMessageBytes = size_t{64} << 20;
// Alignment in bytes of payloads in a frame and of tensors in a payload.
inline constexpr size_t kAlignment = 64;

}  // namespace weir

#endif  // WEIR_FRAMEWORK_WIRE_SLICES_H_
