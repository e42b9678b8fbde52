// conv2d: [B, C, H, W] -> [B, filters, H', W'], convolution, bias and activation in one operator. Parameters
// "<layer>.w" [filters, C, height, width of the kernel] and "<layer>.b" [filters].
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/picture.h"

namespace weir {
namespace {

// A filter is a row of a matrix: fans that the job leaves open, and the default, are by what it reads and what reads
// it. The default keeps the variance of what relu passes on (He et al., Delving Deep into Rectifiers).
v1::Initializer WeightInitializer(const v1::Conv2d& m, int64_t fan_in, int64_t fan_out) {
  v1::Initializer init = m.weight_initializer();
  if (!m.has_weight_initializer()) init.mutable_gaussian()->set_stddev(std::sqrt(2.0 / static_cast<double>(fan_in)));
  if (init.has_xavier()) {
    if (init.xavier().fan_in() == 0) init.mutable_xavier()->set_fan_in(fan_in);
    if (init.xavier().fan_out() == 0) init.mutable_xavier()->set_fan_out(fan_out);
  }
  return init;
}

absl::Status BuildConv2d(const v1::Conv2d& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, PictureInput(ctx, m.input()));
  if (m.filters() < 1) return ctx.Error("filters", absl::StrCat("must be at least 1, got ", m.filters()));
  if (m.kernel_size() == 0) return ctx.Error("kernel", "is required");
  ASSIGN_OR_RETURN(const std::vector<int64_t> kernel, HeightAndWidth(ctx, "kernel", m.kernel(), {}, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> stride, HeightAndWidth(ctx, "stride", m.stride(), {1, 1}, 1));
  ASSIGN_OR_RETURN(const std::vector<int64_t> padding, HeightAndWidth(ctx, "padding", m.padding(), {0, 0}, 0));
  RETURN_IF_ERROR(CheckWindows(ctx, x, kernel, padding));
  ASSIGN_OR_RETURN(const std::string activation, ActivationOfElements(ctx, m.activation()));
  const int64_t channels = x.dims(1);
  // Kernels fit into pictures, whose sizes do not overflow.
  const v1::Initializer init =
      WeightInitializer(m, channels * kernel[0] * kernel[1], m.filters() * kernel[0] * kernel[1]);
  ASSIGN_OR_RETURN(const std::string weight, ctx.Parameter("w", {m.filters(), channels, kernel[0], kernel[1]}, init));
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"X", {m.input()}}, {"W", {weight}}};
  if (m.bias()) {
    v1::Initializer zero;
    zero.mutable_constant()->set_value(0);
    ASSIGN_OR_RETURN(const std::string bias,
                     ctx.Parameter("b", {m.filters()}, m.has_bias_initializer() ? m.bias_initializer() : zero));
    inputs.push_back({"Bias", {bias}});
  }
  return ctx.Append(
      MakeOp("conv2d", inputs, {{"Out", {ctx.name()}}},
             {AttrInts("stride", stride), AttrInts("padding", padding), AttrS("activation", activation)}));
}
REGISTER_LAYER(conv2d, v1::Conv2d, BuildConv2d);

}  // namespace
}  // namespace weir
