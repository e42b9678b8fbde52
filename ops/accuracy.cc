// accuracy: how many examples have their largest score at their label; of equal scores the first counts.
//
//   Out      [B, C]  f32, scores or probabilities
//   Label    [B, 1]  f32 or int64: a class in [0, C)
//   Correct  [1]     int64
//   Total    [1]     int64: examples
//
// No gradient.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status AccuracyShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "Out"));
  RETURN_IF_ERROR(ExpectRank(ctx, "Out", 2));
  const v1::VarDesc& label = ctx.Input("Label");
  if (label.kind() != v1::DENSE || (label.dtype() != v1::FLOAT32 && label.dtype() != v1::INT64)) {
    return ctx.Error(absl::StrCat("Label (", label.name(), ") must be dense FLOAT32 or INT64, got ",
                                  v1::VarKind_Name(label.kind()), " ", v1::DType_Name(label.dtype())));
  }
  const Shape column = {ctx.InputShape("Out")[0], 1};
  if (ctx.InputShape("Label") != column) {
    return ctx.Error(absl::StrCat("Label must be ", ShapeString(column), ", one class per example, got ",
                                  ShapeString(ctx.InputShape("Label"))));
  }
  ctx.SetOutput("Correct", {1}, v1::INT64);
  ctx.SetOutput("Total", {1}, v1::INT64);
  return absl::OkStatus();
}

class AccuracyKernel : public OpKernel {
 public:
  explicit AccuracyKernel(const KernelInit&) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& scores = ctx.input(0);
    const Tensor& label = ctx.input(1);
    RETURN_IF_ERROR(CheckRank("Out", scores, 2));
    RETURN_IF_ERROR(
        CheckTensor("Label", label, {scores.dim(0), 1}, label.dtype() == v1::INT64 ? v1::INT64 : v1::FLOAT32));
    const int64_t rows = scores.dim(0), classes = scores.dim(1);
    int64_t correct = 0;
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = scores.data<float>() + r * classes;
      int64_t best = 0;
      for (int64_t c = 1; c < classes; ++c) {
        if (row[c] > row[best]) best = c;
      }
      correct += label.dtype() == v1::INT64 ? label.data<int64_t>()[r] == best
                                            : label.data<float>()[r] == static_cast<float>(best);
    }
    const int64_t counts[2] = {correct, rows};
    for (int i = 0; i < 2; ++i) {
      Tensor* out = ctx.output(i);
      out->Resize(v1::INT64, {1});
      out->data<int64_t>()[0] = counts[i];
    }
    return absl::OkStatus();
  }
};

REGISTER_OP(accuracy)
({.type = "accuracy",
  .summary = "examples whose largest score is at their label",
  .inputs = {{"Out"}, {"Label"}},
  .outputs = {{"Correct"}, {"Total"}},
  .shape = AccuracyShape,
  .cost = [](InferContext& ctx) {
    return Cost{.flops = Elements(ctx.Input("Out")), .bytes = 4 * Elements(ctx.Input("Out"))};
  }});

REGISTER_KERNEL(accuracy, MakeKernel<AccuracyKernel>);
// It counts in integers.
REGISTER_HOST_OP(accuracy);

}  // namespace
}  // namespace weir
