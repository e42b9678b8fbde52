// reshape: other dims behind the batch, same number of elements; one -1 is inferred.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"

namespace weir {
namespace {

absl::Status BuildReshape(const v1::Reshape& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput("input", m.input()));
  ASSIGN_OR_RETURN(const int64_t elements, ctx.FlatWidth("input", x));
  if (m.dims_size() == 0) return ctx.Error("dims", "is required");
  std::vector<int64_t> shape = {-1};
  int inferred = 0;
  int64_t known = 1;
  for (int i = 0; i < m.dims_size(); ++i) {
    const int64_t d = m.dims(i);
    if (d != -1 && (d < 1 || d > elements)) {
      return ctx.Error(ElementOf("dims", i), absl::StrCat("must be -1 or in [1, ", elements, "], got ", d));
    }
    shape.push_back(d);
    inferred += d == -1;
    // Each factor is at most `elements`; stop before the product can overflow.
    known = d == -1 ? known : known > elements ? known : known * d;
  }
  const std::string given = absl::StrCat("[", absl::StrJoin(m.dims(), ", "), "]");
  if (inferred > 1) return ctx.Error("dims", absl::StrCat("has more than one -1: ", given));
  if (inferred == 1 ? elements % known != 0 : known != elements) {
    return ctx.Error("dims", absl::StrCat(given, " does not hold the ", elements, " elements of '", m.input(), "' ",
                                          ShapeString(absl::MakeConstSpan(x.dims().data(), x.dims_size()))));
  }
  for (int64_t& d : absl::MakeSpan(shape).subspan(1)) d = d == -1 ? elements / known : d;
  return ctx.Append(MakeOp("reshape", {{"X", {m.input()}}}, {{"Out", {ctx.name()}}}, {AttrInts("shape", shape)}));
}
REGISTER_LAYER(reshape, v1::Reshape, BuildReshape);

}  // namespace
}  // namespace weir
