// cross: a cross network (DCN-v2), x[l+1] = x[0] * (x[l] W + b) + x[l], `layers` times: [B, K] -> [B, K]. Step l is the
// operator fc and the operator cross. Parameters "<name>.<l>.w" [K, K] and "<name>.<l>.b"; with a rank "<name>.<l>.u"
// [K, rank] and
// "<name>.<l>.v" [rank, K] in place of w.
#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"

namespace weir {
namespace {

// product = x W + b.
absl::Status AppendStep(const v1::Cross& m, ModelContext& ctx, int64_t width, const std::string& part,
                        const std::string& x, const std::string& product) {
  const v1::Initializer& initializer = m.has_weight_initializer() ? m.weight_initializer() : DefaultWeight();
  const auto weight = [&](const char* suffix, int64_t rows, int64_t columns) {
    return ctx.Parameter(absl::StrCat(part, ".", suffix), {rows, columns}, initializer);
  };
  std::string from = x, w;
  if (m.rank() > 0) {
    ASSIGN_OR_RETURN(const std::string u, weight("u", width, m.rank()));
    ASSIGN_OR_RETURN(w, weight("v", m.rank(), width));
    from = product + ".low";
    RETURN_IF_ERROR(ctx.Append(MakeOp("mul", {{"X", {x}}, {"Y", {u}}}, {{"Out", {from}}})));
  } else {
    ASSIGN_OR_RETURN(w, weight("w", width, width));
  }
  ASSIGN_OR_RETURN(const std::string bias, ctx.Parameter(part + ".b", {width}, DefaultBias()));
  return ctx.Append(MakeOp("fc", {{"X", {from}}, {"W", {w}}, {"Bias", {bias}}}, {{"Out", {product}}}));
}

absl::Status BuildCross(const v1::Cross& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(v1::VarDesc x0, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t width, ctx.FlatWidth("input", x0));
  if (m.layers() < 1) return ctx.Error("layers", absl::StrCat("must be at least 1, got ", m.layers()));
  if (m.rank() < 0 || m.rank() > width) {
    return ctx.Error("rank", absl::StrCat("must be 0 (none) or in [1, ", width, "], the values of an example of '",
                                          m.input(), "', got ", m.rank()));
  }
  ASSIGN_OR_RETURN(x0, Flatten(ctx, "input", x0, ctx.name() + ".flat"));
  std::string x = x0.name();
  for (int l = 0; l < m.layers(); ++l) {
    const std::string part = absl::StrCat(l), product = absl::StrCat(ctx.name(), ".product", l);
    const std::string out = l + 1 == m.layers() ? ctx.name() : absl::StrCat(ctx.name(), ".", l);
    RETURN_IF_ERROR(AppendStep(m, ctx, width, part, x, product));
    RETURN_IF_ERROR(ctx.Append(MakeOp("cross", {{"X0", {x0.name()}}, {"Y", {product}}, {"X", {x}}}, {{"Out", {out}}})));
    x = out;
  }
  return absl::OkStatus();
}
REGISTER_LAYER(cross, v1::Cross, BuildCross);

}  // namespace
}  // namespace weir
