// mlp: fc layers "<name>.0", "<name>.1", ..., each with its activation and dropout. The last one's output is "<name>".
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"

namespace weir {
namespace {

absl::Status BuildMlp(const v1::Mlp& m, ModelContext& ctx) {
  if (m.sizes_size() == 0) return ctx.Error("sizes", "needs at least one size");
  if (!(m.dropout() >= 0 && m.dropout() < 1)) {
    return ctx.Error("dropout", absl::StrCat("must be at least 0 and below 1, got ", m.dropout()));
  }
  std::string x = m.input();
  for (int i = 0; i < m.sizes_size(); ++i) {
    if (m.sizes(i) < 1) return ctx.Error(ElementOf("sizes", i), absl::StrCat("must be at least 1, got ", m.sizes(i)));
    const std::string output = i + 1 == m.sizes_size() ? ctx.name() : absl::StrCat(ctx.name(), ".", i);
    const std::string dense = m.dropout() > 0 ? output + ".dense" : output;
    RETURN_IF_ERROR(AppendFc(ctx, {.inputs = {x},
                                   .size = m.sizes(i),
                                   .activation = m.activation(),
                                   .weight = m.has_weight_initializer() ? &m.weight_initializer() : nullptr,
                                   .part = absl::StrCat(i),
                                   .output = dense}));
    if (m.dropout() > 0) {
      RETURN_IF_ERROR(
          ctx.Append(MakeOp("dropout", {{"X", {dense}}}, {{"Out", {output}}, {"Mask", {output + ".mask"}}},
                            {AttrF("rate", m.dropout()), AttrS("layer", absl::StrCat(ctx.name(), ".", i))})));
    }
    x = output;
  }
  return absl::OkStatus();
}
REGISTER_LAYER(mlp, v1::Mlp, BuildMlp);

}  // namespace
}  // namespace weir
