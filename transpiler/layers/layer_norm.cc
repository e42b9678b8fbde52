// layer_norm: [B, .., W] -> the same, by row of the last dimension with mean 0 and variance 1, scaled and shifted.
// Parameters "<layer>.scale" and "<layer>.shift" [W].
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/column_parts.h"

namespace weir {
namespace {

absl::Status BuildLayerNorm(const v1::LayerNorm& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const int64_t width, LastWidth(ctx, m.input()));
  RETURN_IF_ERROR(CheckEpsilon(ctx, m.epsilon()));
  ASSIGN_OR_RETURN(const std::string scale, ConstantParameter(ctx, "scale", width, 1));
  ASSIGN_OR_RETURN(const std::string shift, ConstantParameter(ctx, "shift", width, 0));
  return ctx.Append(
      MakeOp("layer_norm", {{"X", {m.input()}}, {"Scale", {scale}}, {"Shift", {shift}}},
             {{"Out", {ctx.name()}}, {"Mean", {ctx.name() + ".mean"}}, {"Inverse", {ctx.name() + ".inverse"}}},
             {AttrF("epsilon", m.epsilon())}));
}
REGISTER_LAYER(layer_norm, v1::LayerNorm, BuildLayerNorm);

}  // namespace

absl::StatusOr<int64_t> LastWidth(ModelContext& ctx, const std::string& input) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", input));
  RETURN_IF_ERROR(ctx.FlatWidth("input", x).status());
  if (x.dims_size() < 2) return ctx.Error("input", absl::StrCat("'", input, "' has no dimension but that of examples"));
  return x.dims(x.dims_size() - 1);
}

absl::Status CheckEpsilon(const ModelContext& ctx, double epsilon) {
  if (static_cast<float>(epsilon) > 0 && epsilon < 1) return absl::OkStatus();
  return ctx.Error("epsilon", absl::StrCat("must be above 0 and below 1, got ", epsilon));
}

absl::StatusOr<std::string> ConstantParameter(ModelContext& ctx, std::string_view suffix, int64_t size, double value) {
  v1::Initializer constant;
  constant.mutable_constant()->set_value(value);
  return ctx.Parameter(suffix, {size}, constant);
}

}  // namespace weir
