// adagrad_per_row: a += mean of g^2 over the row;  w -= lr / (sqrt(a) + epsilon) g
//
//   Param, Grad  a table and rows of it (with `columns` a row is those)
//   Moment       a, one float in each row, initially initial_accumulator
//
// Row form only. The mean adds in the order of ops/fixed_sum.h. Arithmetic in ops/adagrad_per_row_math.h.
#include "ops/adagrad_per_row_math.h"
#include "ops/update_op.h"

namespace weir {
namespace {

OpDef Def() {
  OpDef def = MakeUpdateOp("adagrad_per_row", "a += mean of g^2 over the row; w -= lr / (sqrt(a) + epsilon) g",
                           {FloatAttr("epsilon", 1e-6), FloatAttr("initial_accumulator", 0)},
                           {{.slot = "Moment", .like = StateDef::kCount, .initial_attr = "initial_accumulator"}}, 6);
  for (SlotDef& slot : def.inputs) {
    if (slot.name == "Param") slot.kinds = {v1::TABLE};
  }
  for (SlotDef& slot : def.outputs) {
    if (slot.name == "ParamOut") slot.kinds = {v1::TABLE};
  }
  return def;
}

REGISTER_OP(adagrad_per_row)(Def());
REGISTER_ROW_RULE(adagrad_per_row, [](const AttrReader& attrs) {
  return MakeRowRule("adagrad_per_row", AdagradPerRowMath{.epsilon = static_cast<float>(attrs.Float("epsilon"))},
                     attrs);
});

}  // namespace
}  // namespace weir
