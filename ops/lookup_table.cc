// lookup_table: rows of a matrix by the ids of the batch, pooled (ops/lookup.h)
//
//   Ids  [B, S] ids
//   W    [rows, width] f32; ids are in [0, rows). Of a distributed table only the description exists: the transpiler
//        makes prefetch and lookup_rows of it
//   Out  [B, S, width], or [B, width], or of a sequence [B, T, width]
//
// Gradient of W: selected rows, merged in order of first appearance, when is_sparse; else dense.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/elements.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/id_deduper.h"
#include "ops/lookup.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

absl::Status CheckWeights(InferContext& ctx) {
  const v1::VarDesc& w = ctx.Input("W");
  // The type in which servers store a table does not matter here: rows arrive as float32.
  if (w.dims_size() != 2 || (w.dtype() != v1::FLOAT32 && w.kind() != v1::TABLE)) {
    return ctx.Error(absl::StrCat("W must be FLOAT32 [rows, width], got ", v1::DType_Name(w.dtype()), " ",
                                  ShapeString(ctx.InputShape("W"))));
  }
  const bool distributed = ctx.attrs().Bool("is_distributed");
  if (distributed && !ctx.attrs().Bool("is_sparse")) return ctx.Error("is_distributed needs is_sparse");
  if (distributed != (w.kind() == v1::TABLE)) {
    return ctx.Error(distributed ? "is_distributed needs a table for W" : "W is a table: is_distributed must be true");
  }
  return absl::OkStatus();
}

absl::Status Infer(InferContext& ctx) {
  RETURN_IF_ERROR(CheckWeights(ctx));
  return InferLookup(ctx, ctx.Input("W").dims(1));
}

// Returns the ids, with unread ones replaced: by row 0 for a look-up, where PoolRows leaves them out, by -1 for a
// scatter. Returns the ids themselves if all are read.
const int64_t* WithReplaced(const IdBatch& ids, const LookupAttrs& attrs, int64_t replacement,
                            std::vector<int64_t>* scratch) {
  if (attrs.selection().all()) return ids.values.data();
  scratch->assign(ids.values.size(), replacement);
  ForSelectedIds(ids, attrs.selection(), [&](int64_t begin, int64_t end) {
    std::copy(ids.values.begin() + begin, ids.values.begin() + end, scratch->begin() + begin);
  });
  return scratch->data();
}

class LookupTableKernel : public OpKernel {
 public:
  explicit LookupTableKernel(LookupAttrs attrs) : attrs_(attrs) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(0));
    const Tensor& w = ctx.input(1);
    RETURN_IF_ERROR(CheckIds(ids, attrs_));
    RETURN_IF_ERROR(CheckRank("W", w, 2));
    RETURN_IF_ERROR(CheckRange(ids, attrs_, w.dim(0)));
    // Kept from step to step, per thread because lanes run on several threads.
    thread_local std::vector<int64_t> scratch;
    PoolRows(attrs_, ids, WithReplaced(ids, attrs_, 0, &scratch), w.data<float>(), w.dim(1), ctx.output(0));
    return absl::OkStatus();
  }

 private:
  const LookupAttrs attrs_;
};

class LookupTableGradKernel : public OpKernel {
  enum Input { kIds, kW, kOutGrad };
  enum Output { kWGrad };

 public:
  LookupTableGradKernel(LookupAttrs attrs, bool is_sparse) : attrs_(attrs), is_sparse_(is_sparse) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds));
    const Tensor& w = ctx.input(kW);
    const Tensor& out_grad = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckIds(ids, attrs_));
    RETURN_IF_ERROR(CheckRank("W", w, 2));
    RETURN_IF_ERROR(CheckRange(ids, attrs_, w.dim(0)));
    RETURN_IF_ERROR(CheckOutGrad(attrs_, ids, w.dim(1), out_grad));
    if (is_sparse_) {
      Sparse(ids, w, out_grad, ctx.OutputAs<SelectedRows>(kWGrad));
    } else {
      Dense(ids, w, out_grad, ctx.output(kWGrad));
    }
    return absl::OkStatus();
  }

 private:
  void Dense(const IdBatch& ids, const Tensor& w, const Tensor& out_grad, Tensor* grad) {
    grad->Resize(v1::FLOAT32, w.dims());
    std::fill_n(grad->data<float>(), grad->size(), 0.0f);
    thread_local std::vector<int64_t> scratch;
    ScatterGradient(attrs_, ids, WithReplaced(ids, attrs_, -1, &scratch), /*fresh=*/false, out_grad, w.dim(1),
                    grad->data<float>());
  }

  void Sparse(const IdBatch& ids, const Tensor& w, const Tensor& out_grad, SelectedRows* grad) {
    // Kept from step to step, per thread because lanes run on several threads.
    thread_local IdDeduper deduper;
    thread_local std::vector<int32_t> place;
    const int64_t n = static_cast<int64_t>(ids.values.size());
    place.resize(ids.values.size());
    grad->ids.clear();
    deduper.Start(n);
    if (!attrs_.selection().all()) std::fill(place.begin(), place.end(), -1);
    ForSelectedIds(ids, attrs_.selection(), [&](int64_t begin, int64_t end) {
      deduper.Add(ids.values.data() + begin, end - begin, place.data() + begin, &grad->ids);
    });
    grad->height = w.dim(0);
    grad->step_rows.clear();
    grad->merged = true;
    grad->present = true;
    grad->values.Resize(v1::FLOAT32, {static_cast<int64_t>(grad->ids.size()), w.dim(1)});
    ScatterGradient(attrs_, ids, place.data(), /*fresh=*/true, out_grad, w.dim(1), grad->values.data<float>());
  }

  const LookupAttrs attrs_;
  const bool is_sparse_;
};

absl::StatusOr<LookupAttrs> AttrsOfLocalTable(const KernelInit& init) {
  if (init.attrs.Bool("is_distributed")) {
    return absl::InvalidArgumentError("W is distributed: its rows are on servers; transpile the program first");
  }
  return ReadLookupAttrs(init.attrs);
}

std::vector<AttrDef> Attrs() {
  std::vector<AttrDef> attrs = LookupAttrDefs();
  attrs.push_back(BoolAttr("is_sparse", false));
  attrs.push_back(BoolAttr("is_distributed", false));
  return attrs;
}

// A slot has its name in the data, and a column of a row that of the table: a look-up of several variables is one of
// each, whose number says nothing.
void LookupElements(ElementContext& ctx) {
  const v1::VarDesc &ids = ctx.Input("Ids"), &w = ctx.Input("W"), &out = ctx.Output("Out");
  const ElementAxis row = AxisOf(w.name(), out.dims(out.dims_size() - 1));
  if (w.kind() == v1::DENSE) ctx.NameParameter("W", {AxisOf("", w.dims(0)), row});
  if (out.dims_size() == 2) {
    // Slots that are pooled together.
    ctx.SetEffect(ctx.attrs().String("pooling") == "sum" ? ElementEffect::kAdded : ElementEffect::kMixed);
    return ctx.NameOutput("Out", {PrefixAxis(ids.name(), row)});
  }
  if (ctx.attrs().Int("sequence") > 0) {
    return ctx.NameOutput("Out", {AxisOf(absl::StrCat(ids.name(), "/position"), out.dims(1)), row});
  }
  ctx.NameOutput("Out", {ctx.Names("Ids").front(), row});
}

REGISTER_OP(lookup_table)
({.type = "lookup_table",
  .summary = "rows of a matrix by id, pooled",
  .inputs = {{.name = "Ids", .kinds = {v1::IDS}}, {.name = "W", .kinds = {v1::DENSE, v1::TABLE}}},
  .outputs = {{.name = "Out"}},
  .attrs = Attrs(),
  .shape = Infer,
  .gradient = GradOpRule({"Ids", "W"}, {}, {"Out"}, {"W"}),
  .cost = [](InferContext& ctx) { return LookupCost(ctx, ctx.Input("W").dims(1)); },
  .elements = LookupElements,
  .effect = ElementEffect::kApart});

REGISTER_OP(lookup_table_grad)
({.type = "lookup_table_grad",
  .summary = "gradient of lookup_table by W",
  .inputs = {{.name = "Ids", .kinds = {v1::IDS}}, {.name = "W", .kinds = {v1::DENSE, v1::TABLE}}, {.name = "Out@GRAD"}},
  .outputs = {{.name = "W@GRAD", .kinds = {v1::DENSE, v1::SELECTED_ROWS}}},
  .attrs = Attrs(),
  .shape = [](InferContext& ctx) -> absl::Status {
    RETURN_IF_ERROR(CheckWeights(ctx));
    RETURN_IF_ERROR(ExpectDense(ctx, "Out@GRAD"));
    ctx.SetOutput("W@GRAD", ctx.InputShape("W"));
    ctx.Output("W@GRAD")->set_kind(ctx.attrs().Bool("is_sparse") ? v1::SELECTED_ROWS : v1::DENSE);
    return absl::OkStatus();
  },
  .cost = [](InferContext& ctx) { return LookupCost(ctx, ctx.Input("W").dims(1)); }});

REGISTER_KERNEL(lookup_table, [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpKernel>> {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, AttrsOfLocalTable(init));
  return std::unique_ptr<OpKernel>(new LookupTableKernel(attrs));
});
REGISTER_KERNEL(lookup_table_grad, [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpKernel>> {
  ASSIGN_OR_RETURN(const LookupAttrs attrs, AttrsOfLocalTable(init));
  return std::unique_ptr<OpKernel>(new LookupTableGradKernel(attrs, init.attrs.Bool("is_sparse")));
});

}  // namespace
}  // namespace weir
