// sequence_pool: a sequence [B, T, W] with its length becomes one vector [B, W].
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "transpiler/layers/layer.h"
#include "transpiler/layers/parts/sequence_parts.h"

namespace weir {
namespace {

const char* TypeName(v1::SequencePool::Type type) {
  switch (type) {
    case v1::SequencePool::SUM:
      return "sum";
    case v1::SequencePool::MEAN:
      return "mean";
    case v1::SequencePool::SQRT_N:
      return "sqrt_n";
    case v1::SequencePool::MAX:
      return "max";
    case v1::SequencePool::FIRST:
      return "first";
    case v1::SequencePool::LAST:
      break;
  }
  return "last";
}

absl::Status BuildSequencePool(const v1::SequencePool& m, ModelContext& ctx) {
  ASSIGN_OR_RETURN(const std::string length, SequenceLength(ctx, "input", m.input(), m.length()));
  return ctx.Append(MakeOp("sequence_pool", {{"X", {m.input()}}, {"Length", {length}}}, {{"Out", {ctx.name()}}},
                           {AttrS("type", TypeName(m.type()))}));
}
REGISTER_LAYER(sequence_pool, v1::SequencePool, BuildSequencePool);

}  // namespace

absl::StatusOr<std::string> SequenceLength(ModelContext& ctx, std::string_view field, const std::string& sequence,
                                           const std::string& given) {
  ASSIGN_OR_RETURN(const v1::VarDesc x, ctx.DenseInput(field, sequence));
  if (x.dims_size() != 3) {
    return ctx.Error(
        field,
        absl::StrCat("'", sequence, "' has dims ", ShapeString(absl::MakeConstSpan(x.dims().data(), x.dims_size())),
                     "; a sequence is [batch, elements, width], as an embedding with `sequence` gives it"));
  }
  if (!given.empty()) {
    RETURN_IF_ERROR(ctx.DenseInput("length", given).status());
    return given;
  }
  const std::string length = sequence + ".length";
  if (!ctx.DenseInput("length", length).ok()) {
    return ctx.Error("length", absl::StrCat("is required: '", sequence, "' comes without a '", length,
                                            "', which an embedding with `sequence` gives"));
  }
  return length;
}

}  // namespace weir
