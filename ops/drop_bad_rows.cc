// drop_bad_rows: rows of a table's gradient that hold NaN or infinity are left out, and their rows of the table as they
// are
//
//   Grad  selected rows
//   Out   the same variable
//
// In front of everything that changes the gradient. Row form only.
#include <memory>

#include "framework/runtime/row_gradient.h"
#include "ops/finite.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

class DropBadRows : public RowFilterRule {
 public:
  bool Keep(int width, const float* grad) const override { return AllFinite(grad, width); }
};

REGISTER_OP(drop_bad_rows)
({.type = "drop_bad_rows",
  .summary = "leaves out gradient rows that are not finite",
  .inputs = {{.name = "Grad", .kinds = {v1::SELECTED_ROWS}}},
  .outputs = {{.name = "Out", .kinds = {v1::SELECTED_ROWS}}},
  .scope = OpScope::kStep,
  .shape = [](InferContext& ctx) -> absl::Status {
    if (ctx.Input("Grad").dtype() != v1::FLOAT32) return ctx.Error("Grad must be FLOAT32");
    SetLike(ctx, "Out", "Grad");
    return absl::OkStatus();
  },
  .cost =
      [](InferContext& ctx) {
        double elements = 1;
        for (const int64_t d : ctx.InputShape("Grad")) elements *= static_cast<double>(std::max<int64_t>(d, 1));
        return Cost{.flops = elements, .bytes = 4 * elements};
      },
  .in_place = {{"Grad", "Out"}}});
REGISTER_ROW_FILTER(drop_bad_rows, [](const AttrReader&) -> absl::StatusOr<std::unique_ptr<RowFilterRule>> {
  return std::unique_ptr<RowFilterRule>(new DropBadRows());
});

}  // namespace
}  // namespace weir
