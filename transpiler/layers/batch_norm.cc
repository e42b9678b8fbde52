// batch_norm: [B, C, ..] -> the same, by channel with mean 0 and variance 1, scaled and shifted. Parameters
// "<layer>.scale" and
// "<layer>.shift" [C]; "<layer>.mean" and "<layer>.variance" [C] are running averages, which no optimizer moves.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/picture.h"

namespace weir {
namespace {

absl::Status BuildBatchNorm(const v1::BatchNorm& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t width, ctx.FlatWidth("input", x));
  if (x.dims_size() < 2)
    return ctx.Error("input", absl::StrCat("'", m.input(), "' has no channels: they are the second dimension"));
  // A picture has many values in a channel.
  if (width == x.dims(1)) {
    RETURN_IF_ERROR(ctx.NeedSeveralExamples(
        "input",
        "mean and variance are those of a lane's own examples, so that the output of a single one is the shift, "
        "whatever the input"));
  }
  if (!(static_cast<float>(m.epsilon()) > 0 && m.epsilon() < 1)) {
    return ctx.Error("epsilon", absl::StrCat("must be above 0 and below 1, got ", m.epsilon()));
  }
  if (!(m.momentum() >= 0 && m.momentum() < 1)) {
    return ctx.Error("momentum", absl::StrCat("must be at least 0 and below 1, got ", m.momentum()));
  }
  ASSIGN_OR_RETURN(const std::string activation, ActivationOfElements(ctx, m.activation()));
  const auto channels = [&](const char* suffix, double value) {
    v1::Initializer constant;
    constant.mutable_constant()->set_value(value);
    return ctx.Parameter(suffix, {x.dims(1)}, constant);
  };
  ASSIGN_OR_RETURN(const std::string scale, channels("scale", 1));
  ASSIGN_OR_RETURN(const std::string shift, channels("shift", 0));
  ASSIGN_OR_RETURN(const std::string mean, channels("mean", 0));
  ASSIGN_OR_RETURN(const std::string variance, channels("variance", 1));
  return ctx.Append(
      MakeOp("batch_norm",
             {{"X", {m.input()}}, {"Scale", {scale}}, {"Shift", {shift}}, {"Mean", {mean}}, {"Variance", {variance}}},
             {{"Out", {ctx.name()}},
              {"BatchMean", {ctx.name() + ".batch_mean"}},
              {"BatchVariance", {ctx.name() + ".batch_variance"}}},
             {AttrF("epsilon", m.epsilon()), AttrF("momentum", m.momentum()), AttrS("activation", activation)}));
}
REGISTER_LAYER(batch_norm, v1::BatchNorm, BuildBatchNorm);

}  // namespace
}  // namespace weir
