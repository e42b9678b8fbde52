// lookup_rows: lookup_table (ops/lookup.h) on the rows that prefetch brought for the step
//
//   Ids    [B, S] ids of the lane
//   Index  [N] i32: place of each id value in Rows; -1 for one that is not read
//   Rows   selected rows [*, W], of all lanes; of a matrix with a height its ids are in [0, height)
//   Out    [B, S, W], or [B, W], or of a sequence [B, T, W]
//
// Gradient of Rows: merged rows of the lane in order of first appearance, with step_rows; ids that are not read have none.
#include <algorithm>

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

// Ids, Index and Rows of a run belong together, and where padding stands.
absl::Status CheckRun(const LookupAttrs& attrs, const IdBatch& ids, const Tensor& index, const SelectedRows& rows,
                      int64_t width) {
  RETURN_IF_ERROR(CheckIds(ids, attrs));
  if (rows.height >= 0) RETURN_IF_ERROR(CheckRange(ids, attrs, rows.height));
  const int64_t n = static_cast<int64_t>(ids.values.size());
  if (index.size() != n || (n > 0 && (!index.initialized() || index.dtype() != v1::INT32))) {
    return absl::InvalidArgumentError(absl::StrCat("Index has ", index.size(), " entries for ", n, " ids"));
  }
  const int64_t count = static_cast<int64_t>(rows.ids.size());
  if (n > 0 && (!rows.values.initialized() || rows.values.rank() != 2 || rows.values.dim(0) != count ||
                rows.values.dim(1) != width)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Rows has values ", ShapeString(rows.values.dims()), " for ", count, " ids of width ", width));
  }
  uint64_t used = 0;
  if (n == 0) return absl::OkStatus();
  const int32_t* place = index.data<int32_t>();
  ForSelectedIds(ids, attrs.selection(), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) used = std::max(used, uint64_t{static_cast<uint32_t>(place[i])} + 1);
  });
  if (used <= static_cast<uint64_t>(count)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("Index has ", static_cast<int32_t>(static_cast<uint32_t>(used - 1)), "; Rows has ", count, " rows"));
}

class LookupRowsKernel : public OpKernel {
 public:
  LookupRowsKernel(LookupAttrs attrs, int64_t width) : attrs_(attrs), width_(width) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(0));
    const Tensor& index = ctx.input(1);
    const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(2));
    RETURN_IF_ERROR(CheckRun(attrs_, ids, index, rows, width_));
    const bool none = ids.values.empty();
    PoolRows(attrs_, ids, none ? nullptr : index.data<int32_t>(), none ? nullptr : rows.values.data<float>(), width_,
             ctx.output(0));
    return absl::OkStatus();
  }

 private:
  const LookupAttrs attrs_;
  const int64_t width_;
};

// Place of each row of the step in this lane's gradient. A stamp tells what is of this run, so nothing is cleared.
class RowPlaces {
 public:
  void Start(size_t rows) {
    if (stamps_.size() < rows) stamps_.resize(rows, 0);
    if (++stamp_ == 0) {  // every 2^32 runs old stamps would come to life
      std::fill(stamps_.begin(), stamps_.end(), 0);
      stamp_ = 1;
    }
  }
  // The place of `row`; `next` when it is new.
  int32_t Place(int32_t row, int32_t next) {
    uint64_t& entry = stamps_[static_cast<size_t>(row)];
    // Without a branch: nobody can foresee which row is new.
    const uint64_t fresh = static_cast<uint64_t>(stamp_) << 32 | static_cast<uint32_t>(next);
    const uint64_t place = (entry >> 32) != stamp_ ? fresh : entry;
    entry = place;
    return static_cast<int32_t>(static_cast<uint32_t>(place));
  }

 private:
  std::vector<uint64_t> stamps_;  // stamp, place
  uint32_t stamp_ = 0;
};

class LookupRowsGradKernel : public OpKernel {
 public:
  LookupRowsGradKernel(LookupAttrs attrs, int64_t width) : attrs_(attrs), width_(width) {}

  absl::Status Run(KernelContext& ctx) override {
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(0));
    const Tensor& index = ctx.input(1);
    const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(2));
    const Tensor& out_grad = ctx.input(3);
    RETURN_IF_ERROR(CheckRun(attrs_, ids, index, rows, width_));
    RETURN_IF_ERROR(CheckOutGrad(attrs_, ids, width_, out_grad));
    SelectedRows* grad = ctx.OutputAs<SelectedRows>(0);
    // Memory kept from step to step; lanes run on several threads.
    thread_local std::vector<int32_t> place;
    MergePlaces(ids, index, rows, &place, grad);
    grad->height = rows.height;
    grad->merged = true;
    grad->present = true;
    grad->values.Resize(v1::FLOAT32, {static_cast<int64_t>(grad->ids.size()), width_});
    ScatterGradient(attrs_, ids, place.data(), /*fresh=*/true, out_grad, width_, grad->values.data<float>());
    return absl::OkStatus();
  }

 private:
  // place[i]: where the gradient of value i goes, -1 when it is not read. Fills ids and step_rows of grad.
  void MergePlaces(const IdBatch& ids, const Tensor& index, const SelectedRows& rows, std::vector<int32_t>* place,
                   SelectedRows* grad) {
    thread_local RowPlaces places;
    const size_t n = ids.values.size();
    place->resize(n);
    thread_local std::vector<int32_t> fresh;  // rows in order of their first appearance
    if (fresh.size() < n) fresh.resize(n);
    int32_t next = 0;
    if (n > 0) {
      places.Start(rows.ids.size());
      const int32_t* row = index.data<int32_t>();
      if (!attrs_.selection().all()) std::fill(place->begin(), place->end(), -1);
      ForSelectedIds(ids, attrs_.selection(), [&](int64_t begin, int64_t end) {
        for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
          const int32_t p = places.Place(row[i], next);
          (*place)[i] = p;
          fresh[static_cast<size_t>(next)] = row[i];
          next += p == next;
        }
      });
    }
    grad->step_rows.assign(fresh.begin(), fresh.begin() + next);
    grad->ids.resize(static_cast<size_t>(next));
    for (size_t i = 0; i < grad->ids.size(); ++i) grad->ids[i] = rows.ids[static_cast<size_t>(fresh[i])];
  }

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
  if (rows == nullptr || rows->dims_size() != 2) return absl::InvalidArgumentError("Rows is not described as [-1, width]");
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

REGISTER_KERNEL(lookup_rows, kCpu, Make<LookupRowsKernel>);
REGISTER_KERNEL(lookup_rows_grad, kCpu, Make<LookupRowsGradKernel>);

}  // namespace
}  // namespace weir
