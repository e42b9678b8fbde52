// fc: out [B, size] = activation(input * w + b). One input is the fused operator `fc`; several are products added from
// left to right. With per_element it is that of each element of a sequence, [B, T, K] -> [B, T, size].
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"

namespace weir {
namespace {

const char* FusedActivation(v1::Activation activation) {
  switch (activation) {
    case v1::RELU:
      return "relu";
    case v1::SIGMOID:
      return "sigmoid";
    case v1::TANH:
      return "tanh";
    default:
      return "identity";
  }
}

// x * w + b with the activation in one operator.
absl::Status AppendFused(ModelContext& ctx, const FcParts& p, const std::string& weight, const std::string& bias) {
  const bool separate = p.activation == v1::SOFTMAX;
  const std::string out = separate ? p.output + ".linear" : p.output;
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"X", {p.inputs[0]}}, {"W", {weight}}};
  if (p.bias) inputs.push_back({"Bias", {bias}});
  std::vector<v1::OpAttr> attrs = {AttrS("activation", FusedActivation(p.activation))};
  if (p.row_dims != 1) attrs.push_back(AttrI("row_dims", p.row_dims));
  RETURN_IF_ERROR(ctx.Append(MakeOp("fc", inputs, {{"Out", {out}}}, attrs)));
  return separate ? AppendActivation(ctx, p.activation, out, p.output) : absl::OkStatus();
}

// The last of a chain of operators writes the layer's output, the others variables of their own.
absl::Status AppendProducts(ModelContext& ctx, const FcParts& p, const std::vector<std::string>& weights,
                            const std::string& bias) {
  const bool active = p.activation != v1::IDENTITY;
  std::string sum;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const std::string product = absl::StrCat(p.output, ".product", i);
    RETURN_IF_ERROR(ctx.Append(MakeOp("mul", {{"X", {p.inputs[i]}}, {"Y", {weights[i]}}}, {{"Out", {product}}})));
    if (i == 0) {
      sum = product;
      continue;
    }
    const bool last = i + 1 == p.inputs.size() && !p.bias && !active;
    const std::string next = last ? p.output : absl::StrCat(p.output, ".sum", i);
    RETURN_IF_ERROR(ctx.Append(MakeOp("elementwise_add", {{"X", {sum}}, {"Y", {product}}}, {{"Out", {next}}})));
    sum = next;
  }
  if (p.bias) {
    const std::string next = active ? p.output + ".linear" : p.output;
    RETURN_IF_ERROR(ctx.Append(MakeOp("elementwise_add", {{"X", {sum}}, {"Y", {bias}}}, {{"Out", {next}}})));
    sum = next;
  }
  return active ? AppendActivation(ctx, p.activation, sum, p.output) : absl::OkStatus();
}

absl::Status CheckPerElement(const v1::Fc& m, ModelContext& ctx) {
  if (m.input_size() != 1) {
    return ctx.Error("per_element", absl::StrCat("is for one input, got ", m.input_size(), "; concat joins several"));
  }
  if (m.activation() == v1::SOFTMAX) return ctx.Error("activation", "SOFTMAX is not there with per_element");
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input(0)));
  if (x.dims_size() == 3) return absl::OkStatus();
  return ctx.Error("input", absl::StrCat("'", m.input(0), "' has dims ",
                                         ShapeString(absl::MakeConstSpan(x.dims().data(), x.dims_size())),
                                         "; per_element needs elements [batch, elements, width]"));
}

absl::Status BuildFc(const v1::Fc& m, ModelContext& ctx) {
  if (m.per_element()) RETURN_IF_ERROR(CheckPerElement(m, ctx));
  return AppendFc(ctx, {.inputs = {m.input().begin(), m.input().end()},
                        .size = m.size(),
                        .activation = m.activation(),
                        .bias = m.bias(),
                        .weight = m.has_weight_initializer() ? &m.weight_initializer() : nullptr,
                        .bias_value = m.has_bias_initializer() ? &m.bias_initializer() : nullptr,
                        .output = ctx.name(),
                        .row_dims = m.per_element() ? 2 : 1});
}
REGISTER_LAYER(fc, v1::Fc, BuildFc);

}  // namespace

const v1::Initializer& DefaultWeight() {
  static const v1::Initializer* const value = [] {
    auto* init = new v1::Initializer;
    init->mutable_xavier();
    return init;
  }();
  return *value;
}

const v1::Initializer& DefaultBias() {
  static const v1::Initializer* const value = [] {
    auto* init = new v1::Initializer;
    init->mutable_constant()->set_value(0);
    return init;
  }();
  return *value;
}

absl::Status AppendFc(ModelContext& ctx, const FcParts& p) {
  CHECK(p.row_dims == 1 || p.inputs.size() == 1) << "products of several inputs have one dim of rows";
  if (p.inputs.empty()) return ctx.Error(p.field, "is required");
  if (p.size < 1) return ctx.Error("size", absl::StrCat("must be at least 1, got ", p.size));
  std::vector<std::string> weights;
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    const std::string field = ElementOf(p.field, i);
    ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput(field, p.inputs[i]));
    ASSIGN_OR_RETURN(int64_t width, ctx.FlatWidth(field, x));
    for (int d = 1; d < p.row_dims; ++d) width /= x.dims(d);
    const std::string suffix = absl::StrCat(p.part, p.part.empty() ? "" : ".", "w", i == 0 ? "" : absl::StrCat(i));
    ASSIGN_OR_RETURN(std::string weight,
                     ctx.Parameter(suffix, {width, p.size}, p.weight == nullptr ? DefaultWeight() : *p.weight));
    weights.push_back(std::move(weight));
  }
  std::string bias;
  if (p.bias) {
    const std::string suffix = absl::StrCat(p.part, p.part.empty() ? "" : ".", "b");
    ASSIGN_OR_RETURN(bias, ctx.Parameter(suffix, {p.size}, p.bias_value == nullptr ? DefaultBias() : *p.bias_value));
  }
  return p.inputs.size() == 1 ? AppendFused(ctx, p, weights[0], bias) : AppendProducts(ctx, p, weights, bias);
}

}  // namespace weir
