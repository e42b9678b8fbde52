// fill_constant: every element is `value`
//
//   Out  `shape`  `dtype`; integers must hold the value exactly
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/random_init.h"

namespace weir {
namespace {

// Calls fn with a value of the C++ type of `dtype`; false for a type that tensors do not compute with.
template <typename Fn>
bool WithType(DType dtype, Fn fn) {
  switch (dtype) {
    // NOLINTNEXTLINE(bugprone-branch-clone): the types differ
    case v1::FLOAT32:
      fn(float());
      return true;
    case v1::FLOAT64:
      fn(double());
      return true;
    case v1::INT32:
      fn(int32_t());
      return true;
    case v1::INT64:
      fn(int64_t());
      return true;
    case v1::BOOL:
      fn(bool());
      return true;
    case v1::UINT8:
      fn(uint8_t());
      return true;
    default:
      return false;
  }
}

// Returns true if the type holds the value exactly; floats take any value.
bool Holds(DType dtype, double value) {
  if (dtype == v1::FLOAT32 || dtype == v1::FLOAT64) return true;
  if (value != std::floor(value)) return false;
  switch (dtype) {
    case v1::INT32:
      return value >= -0x1p31 && value < 0x1p31;
    case v1::INT64:
      return value >= -0x1p63 && value < 0x1p63;
    case v1::UINT8:
      return value >= 0 && value < 256;
    default:
      return value == 0 || value == 1;
  }
}

class FillConstantKernel : public OpKernel {
 public:
  explicit FillConstantKernel(const KernelInit& init)
      : variable_(init.op.outputs(0).vars(0)),
        shape_(init.attrs.Ints("shape")),
        dtype_(init.attrs.Type("dtype")),
        value_(init.attrs.Float("value")) {}

  absl::Status Run(KernelContext& ctx) override {
    Tensor* out = ctx.output(0);
    RETURN_IF_ERROR(MakeRoom(variable_, dtype_, shape_, out));
    WithType(dtype_, [&](auto zero) {
      using T = decltype(zero);
      std::fill_n(static_cast<T*>(out->raw()), out->size(), static_cast<T>(value_));
    });
    return absl::OkStatus();
  }

 private:
  const std::string variable_;
  const std::vector<int64_t> shape_;
  const DType dtype_;
  const double value_;
};

REGISTER_OP(fill_constant)
({.type = "fill_constant",
  .summary = "every element is value",
  .outputs = {{"Out"}},
  .attrs = {Required(IntsAttr("shape")), DTypeAttr("dtype", v1::FLOAT32), FloatAttr("value", 0)},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const DType dtype = ctx.attrs().Type("dtype");
    if (!WithType(dtype, [](auto) {})) return ctx.Error("dtype " + v1::DType_Name(dtype) + " cannot be filled");
    const double value = ctx.attrs().Float("value");
    if (!Holds(dtype, value)) {
      return ctx.Error(std::string(absl::StrCat(v1::DType_Name(dtype), " cannot hold the value ", value)));
    }
    return InferFromShapeAttr(ctx, dtype);
  },
  .cost =
      [](InferContext& ctx) {
        return Cost{.bytes = static_cast<double>(ElementCount(ctx.attrs().Ints("shape"))) *
                             static_cast<double>(DTypeSize(ctx.attrs().Type("dtype")))};
      }});
REGISTER_KERNEL(fill_constant, MakeKernel<FillConstantKernel>);

}  // namespace
}  // namespace weir
