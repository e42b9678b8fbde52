// cin: a compressed interaction network (xDeepFM), [B, F, W] -> [B, sum of the vectors that go to the output]. Layer l
// is the operator cin with the parameter "<name>.<l>.w" and, with an activation, that of its vectors; its part of the
// output is "<name>.<l>.sum". Where vectors go to the output alone and have no activation, the operator makes only the
// sum of their values.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"
#include "transpiler/layers/parts/vector_parts.h"

namespace weir {
namespace {

constexpr int64_t kMostTerms = int64_t{1} << 31;  // products of vectors of a layer

// Appends layer l, which reads x of `vectors` vectors: its sums go to `sums`, and its vectors to x.
absl::Status AppendCinLayer(const v1::Cin& m, ModelContext& ctx, const v1::VarDesc& x0, int l, std::string* x,
                            int64_t* vectors, std::vector<std::string>* sums) {
  const std::string part = absl::StrCat(l), at = absl::StrCat(ctx.name(), ".", l);
  const int64_t size = m.sizes(l);
  const bool last = l + 1 == m.sizes_size();
  if (*vectors > kMostTerms / x0.dims(1)) {
    return ctx.Error(ElementOf("sizes", l), absl::StrCat("layer ", l, " would have ", *vectors, " times ", x0.dims(1),
                                                         " products; at most ", kMostTerms, " are possible"));
  }
  ASSIGN_OR_RETURN(const std::string weight,
                   ctx.Parameter(part + ".w", {*vectors * x0.dims(1), size},
                                 m.has_weight_initializer() ? m.weight_initializer() : DefaultWeight()));
  // Vectors whose values are only added.
  const bool active = m.activation() != v1::IDENTITY;
  const int64_t summed = active ? 0 : last ? size : m.split_half() ? size / 2 : 0;
  std::vector<std::pair<std::string, std::vector<std::string>>> outputs;
  const std::string sum = at + ".sum", all = active ? at + ".linear" : at;
  if (summed > 0) outputs.push_back({"Sum", {sum}});
  if (summed < size) outputs.push_back({"Out", {all}});
  RETURN_IF_ERROR(ctx.Append(
      MakeOp("cin", {{"X", {*x}}, {"X0", {x0.name()}}, {"W", {weight}}}, outputs, {AttrI("summed", summed)})));
  sums->push_back(sum);
  *x = at;
  *vectors = size - summed;
  if (summed > 0) return absl::OkStatus();
  if (active) RETURN_IF_ERROR(AppendActivation(ctx, m.activation(), all, at));
  std::string added = at;
  if (m.split_half() && !last) {
    const std::string first = at + ".first", second = at + ".second";
    RETURN_IF_ERROR(ctx.Append(MakeOp("split", {{"X", {at}}}, {{"Out", {first, second}}}, {AttrI("axis", 1)})));
    added = first;
    *x = second;
    *vectors = size / 2;
  }
  return ctx.Append(MakeOp("reduce_sum", {{"X", {added}}}, {{"Out", {sum}}}, {AttrInts("dims", {2})}));
}

absl::Status BuildCin(const v1::Cin& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x0, JoinVectors(ctx, m.input()));
  if (m.sizes_size() == 0) return ctx.Error("sizes", "needs at least one size");
  if (m.split_half() && m.sizes_size() == 1) {
    return ctx.Error("split_half",
                     "halves the vectors of every layer but the last, and there is one layer: leave it out");
  }
  for (int l = 0; l < m.sizes_size(); ++l) {
    if (m.sizes(l) < 1) return ctx.Error(ElementOf("sizes", l), absl::StrCat("must be at least 1, got ", m.sizes(l)));
    if (m.split_half() && l + 1 < m.sizes_size() && m.sizes(l) % 2 != 0) {
      return ctx.Error(ElementOf("sizes", l),
                       absl::StrCat("must be even with split_half, but for the last, got ", m.sizes(l)));
    }
  }
  if (m.activation() == v1::SOFTMAX) return ctx.Error("activation", "SOFTMAX is none of the values of vectors");
  std::string x = x0.name();
  int64_t vectors = x0.dims(1);
  std::vector<std::string> sums;
  for (int l = 0; l < m.sizes_size(); ++l) RETURN_IF_ERROR(AppendCinLayer(m, ctx, x0, l, &x, &vectors, &sums));
  return ctx.Append(MakeOp("concat", {{"X", sums}}, {{"Out", {ctx.name()}}}, {AttrI("axis", 1)}));
}
REGISTER_LAYER(cin, v1::Cin, BuildCin);

}  // namespace
}  // namespace weir
