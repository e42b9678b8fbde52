// split: outputs "<name>.0", "<name>.1", ... of the given sizes along an axis.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildSplit(const v1::Split& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  if (m.sizes_size() == 0) return ctx.Error("sizes", "is required");
  std::vector<std::string> outputs;
  for (int i = 0; i < m.sizes_size(); ++i) {
    if (m.sizes(i) < 1) return ctx.Error(ElementOf("sizes", i), absl::StrCat("must be at least 1, got ", m.sizes(i)));
    outputs.push_back(absl::StrCat(ctx.name(), ".", i));
  }
  if (m.axis() < 1) return ctx.Error("axis", absl::StrCat("must be at least 1: axis 0 is the batch, got ", m.axis()));
  return ctx.Append(MakeOp(
      "split", {{"X", {m.input()}}}, {{"Out", outputs}},
      {AttrI("axis", m.axis()), AttrInts("sections", std::vector<int64_t>(m.sizes().begin(), m.sizes().end()))}));
}
REGISTER_LAYER(split, v1::Split, BuildSplit);

}  // namespace
}  // namespace weir
