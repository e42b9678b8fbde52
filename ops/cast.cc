// cast: the same numbers as another type.
//
//   X      any shape  float32, float64, int32, int64, bool or uint8
//   Out    like X     `dtype`, one of the same
//   dtype  type
//
// Fractions are cut off towards 0; what the new type cannot hold becomes its nearest value, NaN becomes 0. bool is x !=
// 0. Gradient, between float32 and float64 only: dX = cast of dOut to X's type.
#include <memory>

#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/cast_math.h"
#include "ops/cast_types.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

bool CanCast(DType dtype) {
  return WithCastType(dtype, [](auto) {});
}

absl::Status CastShape(InferContext& ctx) {
  const v1::VarDesc& x = ctx.Input("X");
  if (x.kind() != v1::DENSE || !CanCast(x.dtype())) {
    return ctx.Error(absl::StrCat("X (", x.name(), ") must be a dense tensor of numbers or bools, got ",
                                  v1::VarKind_Name(x.kind()), " ", v1::DType_Name(x.dtype())));
  }
  const DType to = ctx.attrs().Type("dtype");
  if (!CanCast(to)) {
    return ctx.Error(
        absl::StrCat("dtype must be FLOAT32, FLOAT64, INT32, INT64, BOOL or UINT8, got ", v1::DType_Name(to)));
  }
  ctx.SetOutput("Out", ctx.InputShape("X"), to);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<v1::OpDesc>> CastGradient(GradContext& ctx) {
  const std::string& x = ctx.op().inputs(0).vars(0);
  const DType from = ctx.Var(x).dtype(), to = ctx.attrs().Type("dtype");
  const auto is_float = [](DType t) { return t == v1::FLOAT32 || t == v1::FLOAT64; };
  if (!is_float(from) || !is_float(to)) return std::vector<v1::OpDesc>();
  const std::string dx = ctx.InputGrad("X");
  if (dx.empty()) return std::vector<v1::OpDesc>();
  return std::vector<v1::OpDesc>{
      MakeOp("cast", {{"X", {ctx.OutputGrad("Out")}}}, {{"Out", {dx}}}, {AttrType("dtype", from)})};
}

class CastKernel : public OpKernel {
 public:
  explicit CastKernel(const KernelInit& init) : dtype_(init.attrs.Type("dtype")) {}
  absl::Status Run(KernelContext& ctx) override {
    const Tensor& x = ctx.input(0);
    Tensor* out = ctx.output(0);
    out->Resize(dtype_, x.dims());
    WithCastType(x.dtype(), [&](auto from) {
      WithCastType(dtype_, [&](auto to) {
        const auto* source = x.data<decltype(from)>();
        auto* target = out->data<decltype(to)>();
        for (int64_t i = 0; i < x.size(); ++i) target[i] = Cast<decltype(to)>(source[i]);
      });
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
};

REGISTER_OP(cast)
({.type = "cast",
  .summary = "the same numbers as another type",
  .inputs = {{"X"}},
  .outputs = {{"Out"}},
  .attrs = {Required(DTypeAttr("dtype", v1::FLOAT32))},
  .shape = CastShape,
  .gradient = CastGradient,
  .cost = ElementwiseCost(1),
  .elements = SameElements(),
  .effect = ElementEffect::kApart,
  .zero_of_zero = true});

REGISTER_KERNEL(cast, MakeKernel<CastKernel>);

}  // namespace
}  // namespace weir
