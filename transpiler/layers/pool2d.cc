// pool2d: [B, C, H, W] -> [B, C, H', W'], the greatest element or the mean of each window; without a kernel of the
// whole picture.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/picture.h"

namespace weir {
namespace {

absl::Status BuildPool2d(const v1::Pool2d& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, PictureInput(ctx, m.input()));
  if (m.kernel_size() == 0 && m.stride_size() > 0)
    return ctx.Error("stride", "needs a kernel: without one there is one window, all of the picture");
  if (m.kernel_size() == 0 && m.padding_size() > 0)
    return ctx.Error("padding", "needs a kernel: without one there is one window, all of the picture");
  ASSIGN_OR_RETURN(const std::vector<int64_t> kernel,
                   HeightAndWidth(ctx, "kernel", m.kernel(), {x.dims(2), x.dims(3)}, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> stride, HeightAndWidth(ctx, "stride", m.stride(), kernel, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> padding, HeightAndWidth(ctx, "padding", m.padding(), {0, 0}, 0));
  RETURN_IF_ERROR(CheckWindows(ctx, x, kernel, padding));
  return ctx.Append(MakeOp("pool2d", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}},
                           {AttrS("type", m.type() == v1::Pool2d::AVERAGE ? "average" : "max"),
                            AttrInts("kernel", kernel), AttrInts("stride", stride), AttrInts("padding", padding)}));
}
REGISTER_LAYER(pool2d, v1::Pool2d, BuildPool2d);

}  // namespace
}  // namespace weir
