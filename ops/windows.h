// Windows of conv2d and pool2d over pictures: along an axis of `size` elements with `padding` more at either end,
// window i begins at element i * stride - padding and has `kernel` elements.
#ifndef WEIR_OPS_WINDOWS_H_
#define WEIR_OPS_WINDOWS_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weir {

class AttrReader;

// One axis of a picture, with checked sizes.
struct WindowAxis {
  int64_t size = 1;
  int64_t kernel = 1;
  int64_t stride = 1;
  int64_t padding = 0;
  // Number of windows: (size + 2 padding - kernel) / stride + 1.
  int64_t count = 1;

  // Elements [Begin, End) of window i that are not padding: at least one.
  int64_t Begin(int64_t i) const {
    const int64_t begin = i * stride - padding;
    return begin < 0 ? 0 : begin;
  }
  int64_t End(int64_t i) const {
    const int64_t end = i * stride - padding + kernel;
    return end > size ? size : end;
  }
  // Windows [First, Last) whose element k is not padding.
  int64_t First(int64_t k) const { return k >= padding ? 0 : (padding - k + stride - 1) / stride; }
  int64_t Last(int64_t k) const {
    const int64_t last = size - 1 + padding - k;
    if (last < 0) return 0;
    return last / stride + 1 < count ? last / stride + 1 : count;
  }
};

// `axis`: "height" or "width". InvalidArgument unless sizes, kernel and stride are at least 1 (and at most 2^24), the
// padding is smaller than the kernel, and at least one window fits.
absl::StatusOr<WindowAxis> MakeWindowAxis(std::string_view axis, int64_t size, int64_t kernel, int64_t stride,
                                          int64_t padding);

// Reads height and width from attributes of two numbers each.
struct WindowSettings {
  std::vector<int64_t> stride;
  std::vector<int64_t> padding;
};
struct WindowAxes {
  WindowAxis height;
  WindowAxis width;
};
absl::StatusOr<WindowAxes> MakeWindowAxes(int64_t height, int64_t width, int64_t kernel_height, int64_t kernel_width,
                                          const WindowSettings& settings);

// The attributes `stride` and `padding`.
WindowSettings ReadWindowSettings(const AttrReader& attrs);

// conv2d of X [batch, channels, H, W] with W [filters, channels, KH, KW].
struct ConvSizes {
  int64_t batch = 0, channels = 0, filters = 0;
  WindowAxis height, width;
  int64_t taps = 0;  // channels * KH * KW

  int64_t windows() const { return height.count * width.count; }
};
// Returns the sizes from dims, four each; the batch may be -1. InvalidArgument if they do not fit each other, or if the
// filters and windows of one example, or the elements under one row of windows, exceed the limit.
absl::StatusOr<ConvSizes> MakeConvSizes(absl::Span<const int64_t> x, absl::Span<const int64_t> w,
                                        const WindowSettings& settings);

// pool2d of X [B, C, H, W].
struct PoolSettings {
  bool average = false;
  std::vector<int64_t> kernel;
  WindowSettings windows;
};
// The attributes `type`, `kernel`, `stride` and `padding`.
absl::StatusOr<PoolSettings> ReadPoolSettings(const AttrReader& attrs);
absl::StatusOr<WindowAxes> MakePoolAxes(absl::Span<const int64_t> x, const PoolSettings& settings);

}  // namespace weir

#endif  // WEIR_OPS_WINDOWS_H_
