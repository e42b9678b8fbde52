#include "ops/windows.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// So that no number of windows overflows: pictures are far smaller.
constexpr int64_t kMost = int64_t{1} << 24;

}  // namespace

absl::StatusOr<WindowAxis> MakeWindowAxis(std::string_view axis, int64_t size, int64_t kernel, int64_t stride, int64_t padding) {
  const auto error = [&](const auto&... text) { return absl::InvalidArgumentError(absl::StrCat(Av(axis), ": ", text...)); };
  if (size < 1 || size > kMost) return error("a picture has 1 to ", kMost, " elements, got ", size);
  if (kernel < 1 || kernel > kMost) return error("kernel must be 1 to ", kMost, ", got ", kernel);
  if (stride < 1 || stride > kMost) return error("stride must be 1 to ", kMost, ", got ", stride);
  if (padding < 0 || padding >= kernel)
    return error("padding must be at least 0 and below the kernel, ", kernel, ", got ", padding);
  if (kernel > size + 2 * padding) {
    return error("a kernel of ", kernel, " does not fit into ", size, " elements and a padding of ", padding);
  }
  return WindowAxis{
      .size = size, .kernel = kernel, .stride = stride, .padding = padding, .count = (size + 2 * padding - kernel) / stride + 1};
}

absl::StatusOr<WindowAxes> MakeWindowAxes(int64_t height, int64_t width, int64_t kernel_height, int64_t kernel_width,
                                          const WindowSettings& settings) {
  for (const auto& [name, values] : {std::pair("stride", &settings.stride), std::pair("padding", &settings.padding)}) {
    if (values->size() == 2) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be two numbers, of height and width, got [", absl::StrJoin(*values, ", "), "]"));
  }
  WindowAxes axes;
  ASSIGN_OR_RETURN(axes.height, MakeWindowAxis("height", height, kernel_height, settings.stride[0], settings.padding[0]));
  ASSIGN_OR_RETURN(axes.width, MakeWindowAxis("width", width, kernel_width, settings.stride[1], settings.padding[1]));
  return axes;
}

}  // namespace weir
