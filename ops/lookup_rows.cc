// lookup_rows: lookup_table (ops/lookup.h) on the rows that prefetch brought for the step
//
//   Ids    [B, S] ids of the lane
//   Index  [N] i32: place of each id value in Rows; -1 for one that is not read
//   Rows   selected rows [*, W], of all lanes; of a matrix with a height its ids are in [0, height)
//   Out    [B, S, W], or [B, W], or of a sequence [B, T, W]
//
// Gradient of Rows: merged rows of the lane in order of first appearance, with step_rows; ids that are not read have
// none.
#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/kernel.h"
#include "ops/lookup.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status CheckInputs(InferContext& ctx) {
  if (ctx.Input("Rows").dims_size() != 2) {
    return ctx.Error(absl::StrCat("Rows must be [-1, width], got ", ShapeString(ctx.InputShape("Rows"))));
  }
  if (ctx.Input("Index").dtype() != v1::INT32) return ctx.Error("Index must be INT32");
  return absl::OkStatus();
}

class LookupRowsKernel : public OpKernel {
  enum Input { kIds, kIndex, kRows };
  enum Output { kOut };

 public:
  LookupRowsKernel(LookupAttrs attrs, int64_t width) : attrs_(attrs), width_(width) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds));
    const Tensor& index = ctx.input(kIndex);
    const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(kRows));
    RETURN_IF_ERROR(CheckStepRows(attrs_, ids, index, rows, width_));
    const bool none = ids.values.empty();
    PoolRows(attrs_, ids, none ? nullptr : index.data<int32_t>(), none ? nullptr : rows.values.data<float>(), width_,
             ctx.output(kOut));
    return absl::OkStatus();
  }

 private:
  const LookupAttrs attrs_;
  const int64_t width_;
};

class LookupRowsGradKernel : public OpKernel {
  enum Input { kIds, kIndex, kRows, kOutGrad };
  enum Output { kRowsGrad };

 public:
  LookupRowsGradKernel(LookupAttrs attrs, int64_t width) : attrs_(attrs), width_(width) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds));
    const Tensor& index = ctx.input(kIndex);
    const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(kRows));
    const Tensor& out_grad = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckStepRows(attrs_, ids, index, rows, width_));
    RETURN_IF_ERROR(CheckOutGrad(attrs_, ids, width_, out_grad));
    StepRowsGradient(attrs_, ids, index, rows, width_, out_grad.data<float>(), OutWidth(attrs_, ids.slots, width_),
                     ctx.OutputAs<SelectedRows>(kRowsGrad));
    return absl::OkStatus();
  }

 private:
  const LookupAttrs attrs_;
  const int64_t width_;
};

template <typename Kernel>
absl::StatusOr<std::unique_ptr<OpKernel>> Make(const KernelInit& init) {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, ReadLookupAttrs(init.attrs));
  const v1::VarDesc* rows = nullptr;
  for (const v1::OpSlot& slot : init.op.inputs()) {
    if (slot.name() == "Rows") rows = init.vars(slot.vars(0));
  }
  if (rows == nullptr || rows->dims_size() != 2)
    return absl::InvalidArgumentError("Rows is not described as [-1, width]");
  return std::unique_ptr<OpKernel>(new Kernel(attrs, rows->dims(1)));
}

const std::vector<SlotDef>& Inputs() {
  static const auto* const inputs = new std::vector<SlotDef>{
      {.name = "Ids", .kinds = {v1::IDS}}, {.name = "Index"}, {.name = "Rows", .kinds = {v1::SELECTED_ROWS}}};
  return *inputs;
}

REGISTER_OP(lookup_rows)
({.type = "lookup_rows",
  .summary = "prefetched rows by id, pooled",
  .inputs = Inputs(),
  .outputs = {{.name = "Out"}},
  .attrs = LookupAttrDefs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(CheckInputs(ctx));
    return InferLookup(ctx, ctx.Input("Rows").dims(1));
  },
  .gradient = GradOpRule({"Ids", "Index", "Rows"}, {}, {"Out"}, {"Rows"}),
  .cost = [](InferContext& ctx) { return LookupCost(ctx, ctx.Input("Rows").dims(1)); }});

std::vector<SlotDef> GradInputs() {
  std::vector<SlotDef> inputs = Inputs();
  inputs.push_back({.name = "Out@GRAD"});
  return inputs;
}

REGISTER_OP(lookup_rows_grad)
({.type = "lookup_rows_grad",
  .summary = "gradient of lookup_rows by Rows, merged",
  .inputs = GradInputs(),
  .outputs = {{.name = "Rows@GRAD", .kinds = {v1::SELECTED_ROWS}}},
  .attrs = LookupAttrDefs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(CheckInputs(ctx));
    RETURN_IF_ERROR(ExpectDense(ctx, "Out@GRAD"));
    ctx.SetOutput("Rows@GRAD", ctx.InputShape("Rows"));
    ctx.Output("Rows@GRAD")->set_kind(v1::SELECTED_ROWS);
    return absl::OkStatus();
  },
  .cost = [](InferContext& ctx) { return LookupCost(ctx, ctx.Input("Rows").dims(1)); }});

REGISTER_KERNEL(lookup_rows, Make<LookupRowsKernel>);
REGISTER_KERNEL(lookup_rows_grad, Make<LookupRowsGradKernel>);

}  // namespace
}  // namespace weir
