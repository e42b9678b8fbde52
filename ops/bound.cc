// bound: values of the updated rows of a table into [min, max]
//
//   Param  a table; behind its update
//   ParamOut  the same table
//   min, max  float, of a table with 16-bit values such values; by default without end. NaN stays NaN
//
// Row form only. Arithmetic in ops/gradient_math.h.
#include <limits>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/runtime/row_gradient.h"
#include "framework/tensor/float16.h"
#include "ops/gradient_math.h"
#include "ops/shape_rules.h"
#include "ops/vectorized.h"

namespace weir {
namespace {

WEIR_VECTORIZED void BoundLoop(float min, float max, int64_t n, float* w) {
  WEIR_INDEPENDENT
  for (int64_t i = 0; i < n; ++i) w[i] = ClipToRange(w[i], min, max);
}

class BoundRows : public RowValueRule {
 public:
  BoundRows(float min, float max) : min_(min), max_(max) {}
  void Apply(int width, int64_t n, float* const* rows) const override {
    for (int64_t i = 0; i < n; ++i) BoundLoop(min_, max_, width, rows[i]);
  }

 private:
  const float min_, max_;
};

REGISTER_OP(bound)
({.type = "bound",
  .summary = "values of updated rows into [min, max]",
  .inputs = {{.name = "Param", .kinds = {v1::TABLE}}},
  .outputs = {{.name = "ParamOut", .kinds = {v1::TABLE}}},
  .attrs = {FloatAttr("min", -std::numeric_limits<float>::infinity()),
            FloatAttr("max", std::numeric_limits<float>::infinity())},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    const double min = ctx.attrs().Float("min"), max = ctx.attrs().Float("max");
    if (!(min <= max)) return ctx.Error(absl::StrCat("min must not be above max, got ", min, " and ", max));
    // Bounds must be values of the type, or rounding to the type would exceed them.
    const DType dtype = ctx.Input("Param").dtype();
    if (dtype != v1::FLOAT32 && dtype != v1::FLOAT16 && dtype != v1::BFLOAT16) {
      return ctx.Error(
          absl::StrCat("Param must have FLOAT32, FLOAT16 or BFLOAT16 values, got ", v1::DType_Name(dtype)));
    }
    for (const auto& [name, bound] : {std::pair("min", min), std::pair("max", max)}) {
      if (dtype == v1::FLOAT32 || NotBelow(dtype, bound) == bound) continue;
      return ctx.Error(absl::StrCat(name, " must be a value of ", v1::DType_Name(dtype), ", which Param has; ", bound,
                                    " lies between ", NotAbove(dtype, bound), " and ", NotBelow(dtype, bound)));
    }
    const std::string name = ctx.Output("ParamOut")->name();
    v1::VarDesc out = ctx.Input("Param");
    out.set_name(name);
    *ctx.Output("ParamOut") = out;
    return absl::OkStatus();
  },
  // Cost of one row: a table does not know its number of rows.
  .cost =
      [](InferContext& ctx) {
        const Shape dims = ctx.InputShape("Param");
        const double width = dims.empty() ? 1 : static_cast<double>(dims.back());
        return Cost{.flops = 2 * width, .bytes = 8 * width};
      },
  .in_place = {{"Param", "ParamOut"}}});
REGISTER_ROW_VALUES(bound, [](const AttrReader& attrs) -> absl::StatusOr<std::unique_ptr<RowValueRule>> {
  return std::unique_ptr<RowValueRule>(
      new BoundRows(static_cast<float>(attrs.Float("min")), static_cast<float>(attrs.Float("max"))));
});

}  // namespace
}  // namespace weir
