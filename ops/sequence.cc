#include "ops/sequence.h"

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"

namespace weir {

absl::Status ExpectSequence(const InferContext& ctx, std::string_view slot) {
  RETURN_IF_ERROR(ExpectDense(ctx, slot));
  RETURN_IF_ERROR(ExpectRank(ctx, slot, 3));
  const Shape x = ctx.InputShape(slot);
  if (x[1] < 1 || x[2] < 1) {
    return ctx.Error(
        absl::StrCat(Av(slot), " has dims ", ShapeString(x), "; a sequence needs elements of a known, positive width"));
  }
  return ExpectDims(ctx, "Length", {x[0], 1});
}

absl::Status CheckSequence(std::string_view slot, const Tensor& x, const Tensor& length) {
  RETURN_IF_ERROR(CheckRank(slot, x, 3));
  return CheckLengths(slot, x.dims(), length);
}

absl::Status CheckLengths(std::string_view slot, absl::Span<const int64_t> x, const Tensor& length) {
  RETURN_IF_ERROR(CheckTensor("Length", length, {x[0], 1}));
  const float* const lengths = length.data<float>();
  const float most = static_cast<float>(x[1]);
  for (int64_t b = 0; b < x[0]; ++b) {
    // Also false for NaN.
    const bool in_range = lengths[b] >= 0 && lengths[b] <= most;
    const int64_t n = in_range ? static_cast<int64_t>(lengths[b]) : -1;
    if (n < 0 || n > x[1] || static_cast<float>(n) != lengths[b]) {
      return absl::InvalidArgumentError(absl::StrCat("Length of example ", b, " is ", lengths[b], "; ", Av(slot), " ",
                                                     ShapeString(x), " has sequences of 0 to ", x[1], " elements"));
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
