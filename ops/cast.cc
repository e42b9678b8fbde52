// cast: the same numbers as another type.
//
//   X      any shape  float32, float64, int32, int64, bool or uint8
//   Out    like X     `dtype`, one of the same
//   dtype  type
//
// Fractions are cut off towards 0; what the new type cannot hold becomes its nearest value, NaN becomes 0. bool is x != 0.
// Gradient, between float32 and float64 only: dX = cast of dOut to X's type.
#include <limits>
#include <memory>
#include <type_traits>

#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/runtime/kernel.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// Calls f with a zero of the C++ type of dtype; false when there is none.
template <typename F>
bool WithType(DType dtype, F f) {
  switch (dtype) {
    case v1::FLOAT32:
      f(float());
      return true;
    case v1::FLOAT64:
      f(double());
      return true;
    case v1::INT32:
      f(int32_t());
      return true;
    case v1::INT64:
      f(int64_t());
      return true;
    case v1::BOOL:
      f(bool());
      return true;
    case v1::UINT8:
      f(uint8_t());
      return true;
    default:
      return false;
  }
}

template <typename To, typename From>
To Cast(From x) {
  if constexpr (std::is_same_v<To, bool>) {
    return x != From(0);
  } else if constexpr (std::is_floating_point_v<To>) {
    return static_cast<To>(x);
  } else if constexpr (std::is_floating_point_v<From>) {
    if (x != x) return 0;
    // Exact as a double; the maximum of int64 rounds up to 2^63, hence >=.
    const double v = static_cast<double>(x);
    if (v >= static_cast<double>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (v <= static_cast<double>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(v);
  } else {
    const int64_t v = static_cast<int64_t>(x);
    if (v > static_cast<int64_t>(std::numeric_limits<To>::max())) return std::numeric_limits<To>::max();
    if (v < static_cast<int64_t>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
    return static_cast<To>(v);
  }
}

bool CanCast(DType dtype) {
  return WithType(dtype, [](auto) {});
}

absl::Status CastShape(InferContext& ctx) {
  const v1::VarDesc& x = ctx.Input("X");
  if (x.kind() != v1::DENSE || !CanCast(x.dtype())) {
    return ctx.Error(absl::StrCat("X (", x.name(), ") must be a dense tensor of numbers or bools, got ",
                                  v1::VarKind_Name(x.kind()), " ", v1::DType_Name(x.dtype())));
  }
  const DType to = ctx.attrs().Type("dtype");
  if (!CanCast(to)) {
    return ctx.Error(absl::StrCat("dtype must be FLOAT32, FLOAT64, INT32, INT64, BOOL or UINT8, got ", v1::DType_Name(to)));
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
    WithType(x.dtype(), [&](auto from) {
      WithType(dtype_, [&](auto to) {
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
  .cost = ElementwiseCost(1)});

REGISTER_KERNEL(cast, kCpu, MakeKernel<CastKernel>);

}  // namespace
}  // namespace weir
