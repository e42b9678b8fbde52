// bilinear: products of all pairs of vectors, the first multiplied by a matrix (FiBiNET): [B, F (F - 1) / 2, W].
// Parameter "<name>.w".
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/fc_parts.h"
#include "transpiler/layers/parts/vector_parts.h"

namespace weir {
namespace {

constexpr int64_t kMostVectors = 1 << 12;  // eight million pairs

absl::Status BuildBilinear(const v1::Bilinear& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, JoinVectors(ctx, m.input()));
  const int64_t vectors = x.dims(1), width = x.dims(2);
  if (vectors < 2 || vectors > kMostVectors) {
    return ctx.Error("input", absl::StrCat("must give from 2 to ", kMostVectors,
                                           " vectors, of which pairs are made, got ", vectors));
  }
  std::vector<int64_t> dims = {width, width};
  if (m.type() == v1::Bilinear::EACH) dims.insert(dims.begin(), vectors - 1);
  if (m.type() == v1::Bilinear::INTERACTION) dims.insert(dims.begin(), vectors * (vectors - 1) / 2);
  v1::Initializer initializer = m.has_weight_initializer() ? m.weight_initializer() : DefaultWeight();
  if (initializer.has_xavier()) {
    // Fans of one matrix.
    if (initializer.xavier().fan_in() == 0) initializer.mutable_xavier()->set_fan_in(width);
    if (initializer.xavier().fan_out() == 0) initializer.mutable_xavier()->set_fan_out(width);
  }
  ASSIGN_OR_RETURN(const std::string weight, ctx.Parameter("w", dims, initializer));
  return ctx.Append(MakeOp("bilinear", {{"X", {x.name()}}, {"W", {weight}}}, {{"Out", {ctx.name()}}}));
}
REGISTER_LAYER(bilinear, v1::Bilinear, BuildBilinear);

}  // namespace

absl::StatusOr<v1::VarDesc> JoinVectors(ModelContext& ctx,
                                        const google::protobuf::RepeatedPtrField<std::string>& inputs) {
  if (inputs.empty()) return ctx.Error("input", "is required");
  std::vector<v1::VarDesc> vars;
  int64_t vectors = 0;
  for (int i = 0; i < inputs.size(); ++i) {
    const std::string& name = inputs[i];
    const std::string field = ElementOf("input", i);
    ASSIGN_OR_RETURN(v1::VarDesc var, ctx.DenseInput(field, name));
    RETURN_IF_ERROR(ctx.FlatWidth(field, var).status());
    const int dims = var.dims_size();
    const int64_t width = var.dims(dims - 1);
    if ((dims != 2 && dims != 3) || (!vars.empty() && width != vars[0].dims(vars[0].dims_size() - 1))) {
      return ctx.Error(field,
                       absl::StrCat("'", name, "' has dims ", ShapeString(absl::MakeConstSpan(var.dims().data(), dims)),
                                    "; inputs are [B, S, W] or [B, W] of one width",
                                    vars.empty() ? "" : absl::StrCat(", that of '", inputs[0], "'")));
    }
    vectors += dims == 3 ? var.dims(1) : 1;
    vars.push_back(std::move(var));
  }
  if (vars.size() == 1 && vars[0].dims_size() == 3) return vars[0];
  const int64_t width = vars[0].dims(vars[0].dims_size() - 1);
  std::vector<std::string> flat;
  for (size_t i = 0; i < vars.size(); ++i) {
    ASSIGN_OR_RETURN(const v1::VarDesc each, Flatten(ctx, "input", vars[i], absl::StrCat(ctx.name(), ".flat", i)));
    flat.push_back(each.name());
  }
  std::string joined = flat[0];
  if (flat.size() > 1) {
    joined = ctx.name() + ".joined";
    RETURN_IF_ERROR(ctx.Append(MakeOp("concat", {{"X", flat}}, {{"Out", {joined}}}, {AttrI("axis", 1)})));
  }
  return ctx.AppendFor(MakeOp("reshape", {{"X", {joined}}}, {{"Out", {ctx.name() + ".vectors"}}},
                              {AttrInts("shape", {-1, vectors, width})}));
}

}  // namespace weir
