#include "ops/windows.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// Largest size, so that no number of windows overflows; pictures are far smaller.
constexpr int64_t kMost = int64_t{1} << 24;
// Most floats of working memory for one row of windows; practical pictures and kernels need a thousandth of it.
constexpr int64_t kMostScratch = int64_t{1} << 28;

}  // namespace

absl::StatusOr<WindowAxis> MakeWindowAxis(std::string_view axis, int64_t size, int64_t kernel, int64_t stride,
                                          int64_t padding) {
  const auto error = [&](const auto&... text) {
    return absl::InvalidArgumentError(absl::StrCat(Av(axis), ": ", text...));
  };
  if (size < 1 || size > kMost) return error("a picture has 1 to ", kMost, " elements, got ", size);
  if (kernel < 1 || kernel > kMost) return error("kernel must be 1 to ", kMost, ", got ", kernel);
  if (stride < 1 || stride > kMost) return error("stride must be 1 to ", kMost, ", got ", stride);
  if (padding < 0 || padding >= kernel)
    return error("padding must be at least 0 and below the kernel, ", kernel, ", got ", padding);
  if (kernel > size + 2 * padding) {
    return error("a kernel of ", kernel, " does not fit into ", size, " elements and a padding of ", padding);
  }
  return WindowAxis{.size = size,
                    .kernel = kernel,
                    .stride = stride,
                    .padding = padding,
                    .count = (size + 2 * padding - kernel) / stride + 1};
}

absl::StatusOr<WindowAxes> MakeWindowAxes(int64_t height, int64_t width, int64_t kernel_height, int64_t kernel_width,
                                          const WindowSettings& settings) {
  for (const auto& [name, values] : {std::pair("stride", &settings.stride), std::pair("padding", &settings.padding)}) {
    if (values->size() == 2) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be two numbers, of height and width, got [", absl::StrJoin(*values, ", "), "]"));
  }
  WindowAxes axes;
  ASSIGN_OR_RETURN(axes.height,
                   MakeWindowAxis("height", height, kernel_height, settings.stride[0], settings.padding[0]));
  ASSIGN_OR_RETURN(axes.width, MakeWindowAxis("width", width, kernel_width, settings.stride[1], settings.padding[1]));
  return axes;
}

WindowSettings ReadWindowSettings(const AttrReader& attrs) {
  return {.stride = attrs.Ints("stride"), .padding = attrs.Ints("padding")};
}

absl::StatusOr<ConvSizes> MakeConvSizes(absl::Span<const int64_t> x, absl::Span<const int64_t> w,
                                        const WindowSettings& settings) {
  if (x[1] != w[1]) {
    return absl::InvalidArgumentError(
        absl::StrCat("X ", ShapeString(x), " has ", x[1], " channels, W ", ShapeString(w), " is for ", w[1]));
  }
  ConvSizes c = {.batch = x[0], .channels = x[1], .filters = w[0]};
  ASSIGN_OR_RETURN(const WindowAxes axes, MakeWindowAxes(x[2], x[3], w[2], w[3], settings));
  c.height = axes.height;
  c.width = axes.width;
  c.taps = c.channels * w[2] * w[3];
  const auto too_much = [&](int64_t floats) { return floats < 0 || floats > kMostScratch; };
  const int64_t padded_width = (c.width.count - 1) * c.width.stride + c.width.kernel;
  if (too_much(KnownCount({c.channels, w[2], w[3], c.width.count})) ||
      too_much(KnownCount({c.channels, w[2], padded_width})) ||
      KnownCount({c.filters, c.height.count, c.width.count}) < 0) {
    return absl::InvalidArgumentError(absl::StrCat("X ", ShapeString(x), " and W ", ShapeString(w),
                                                   " are too large: one row of windows may cover ", kMostScratch,
                                                   " elements"));
  }
  return c;
}

absl::StatusOr<PoolSettings> ReadPoolSettings(const AttrReader& attrs) {
  const std::string& type = attrs.String("type");
  if (type != "max" && type != "average")
    return absl::InvalidArgumentError(absl::StrCat("type must be max or average, got '", type, "'"));
  PoolSettings settings = {
      .average = type == "average", .kernel = attrs.Ints("kernel"), .windows = ReadWindowSettings(attrs)};
  if (settings.kernel.size() != 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("kernel must be two numbers, of height and width, got ", settings.kernel.size()));
  }
  return settings;
}

absl::StatusOr<WindowAxes> MakePoolAxes(absl::Span<const int64_t> x, const PoolSettings& settings) {
  return MakeWindowAxes(x[2], x[3], settings.kernel[0], settings.kernel[1], settings.windows);
}

}  // namespace weir
