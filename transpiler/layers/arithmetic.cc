// add, sub, mul, div: two or more inputs from left to right, trailing dims broadcast.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildFold(const std::string& op, const v1::Inputs& m, ModelContext& ctx) {
  if (m.input_size() < 2) return ctx.Error("input", absl::StrCat("needs at least two names, got ", m.input_size()));
  std::string left;
  for (int i = 0; i < m.input_size(); ++i) {
    RETURN_IF_ERROR(ctx.DenseInput(ElementOf("input", i), m.input(i)).status());
    if (i == 0) {
      left = m.input(0);
      continue;
    }
    const std::string out = i + 1 == m.input_size() ? ctx.name() : absl::StrCat(ctx.name(), ".", i);
    RETURN_IF_ERROR(ctx.Append(MakeOp(op, {{"X", {left}}, {"Y", {m.input(i)}}}, {{"Out", {out}}})));
    left = out;
  }
  return absl::OkStatus();
}

absl::Status BuildAdd(const v1::Inputs& m, ModelContext& ctx) { return BuildFold("elementwise_add", m, ctx); }
absl::Status BuildSub(const v1::Inputs& m, ModelContext& ctx) { return BuildFold("elementwise_sub", m, ctx); }
absl::Status BuildMul(const v1::Inputs& m, ModelContext& ctx) { return BuildFold("elementwise_mul", m, ctx); }
absl::Status BuildDiv(const v1::Inputs& m, ModelContext& ctx) { return BuildFold("elementwise_div", m, ctx); }
REGISTER_LAYER(add, v1::Inputs, BuildAdd);
REGISTER_LAYER(sub, v1::Inputs, BuildSub);
REGISTER_LAYER(mul, v1::Inputs, BuildMul);
REGISTER_LAYER(div, v1::Inputs, BuildDiv);

}  // namespace
}  // namespace weir
