#include "ops/fit.h"

#include <utility>

#include "framework/base/status_macros.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status CheckType(std::string_view slot, const Tensor& tensor, DType dtype) {
  if (!tensor.initialized()) return absl::InvalidArgumentError(absl::StrCat(Av(slot), " has no value"));
  if (tensor.dtype() == dtype) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " is ", v1::DType_Name(tensor.dtype()), ", expected ", v1::DType_Name(dtype)));
}

}  // namespace

absl::Status ExpectAlike(const InferContext& ctx, const std::vector<std::string>& slots) {
  Shape dims;
  bool first = true;
  for (const std::string& slot : slots) {
    if (ctx.InputCount(slot) == 0 && !first) continue;
    if (first) {
      RETURN_IF_ERROR(ExpectDense(ctx, slot));
      dims = ctx.InputShape(slot);
    }
    RETURN_IF_ERROR(ExpectDims(ctx, slot, dims));
    first = false;
  }
  return absl::OkStatus();
}

absl::Status ExpectDims(const InferContext& ctx, std::string_view slot, absl::Span<const int64_t> want) {
  RETURN_IF_ERROR(ExpectDense(ctx, slot));
  const Shape got = ctx.InputShape(slot);
  if (absl::MakeConstSpan(got) == want) return absl::OkStatus();
  return ctx.Error(absl::StrCat(Av(slot), " must be ", ShapeString(want), ", got ", ShapeString(got), " (variable ",
                                ctx.Input(slot).name(), ")"));
}

ShapeRule AlikeRule(std::vector<std::string> inputs, std::string output) {
  return [inputs = std::move(inputs), output = std::move(output)](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(ExpectAlike(ctx, inputs));
    SetLike(ctx, output, inputs[0]);
    return absl::OkStatus();
  };
}

absl::Status CheckTensor(std::string_view slot, const Tensor& tensor, absl::Span<const int64_t> want, DType dtype) {
  if (tensor.initialized() && tensor.dtype() == dtype && tensor.dims() == want) return absl::OkStatus();
  RETURN_IF_ERROR(CheckType(slot, tensor, dtype));
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " must be ", ShapeString(want), ", got ", ShapeString(tensor.dims())));
}

absl::Status CheckRank(std::string_view slot, const Tensor& tensor, int rank, DType dtype) {
  if (tensor.initialized() && tensor.dtype() == dtype && tensor.rank() == rank) return absl::OkStatus();
  RETURN_IF_ERROR(CheckType(slot, tensor, dtype));
  return absl::InvalidArgumentError(
      absl::StrCat(Av(slot), " must have ", rank, " dims, got ", ShapeString(tensor.dims())));
}

}  // namespace weir
