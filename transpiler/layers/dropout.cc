// dropout: zero with probability rate, else input / (1 - rate). Identity in evaluation.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildDropout(const v1::Dropout& m, ModelContext& ctx) {
  RETURN_IF_ERROR(ctx.DenseInput("input", m.input()).status());
  if (!(m.rate() >= 0 && m.rate() < 1)) {
    return ctx.Error("rate", absl::StrCat("must be at least 0 and below 1, got ", m.rate()));
  }
  return ctx.Append(MakeOp("dropout", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}, {"Mask", {ctx.name() + ".mask"}}},
                           {AttrF("rate", m.rate()), AttrS("layer", ctx.name())}));
}
REGISTER_LAYER(dropout, v1::Dropout, BuildDropout);

}  // namespace
}  // namespace weir
