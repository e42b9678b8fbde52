// lookup_concat: several look-ups in the rows that prefetch brought (ops/lookup.h), pooled, and dense inputs, joined in
// one matrix
//
//   Ids*        [B, S] ids of the lane              }
//   Index*      [N] i32: places of the ids in Rows  } one each for a look-up, as lookup_rows has them
//   Rows*       selected rows [*, W], of all lanes  }
//   X*          [B, K] f32
//   Out         [B, total] f32: of a look-up W columns, or with pooling none or per_slot S W, slot by slot; of X its K
//   poolings    strings, one for a look-up; empty: none
//   per_slot    ints, 0 or 1 for a look-up; empty: 0
//   padded      ints, 0 or 1 for a look-up: padding_ids count as absent; empty: 0
//   padding_ids ints; empty: 0
//   dense_at    ints, rising: which pieces of Out from the left are the X; empty: the last ones
//
// It has the bits of lookup_rows, reshape and concat one after the other, and each number is written once, at its
// place. A sequence is no row of a matrix: it is looked up alone.
//
// Gradient (lookup_concat_grad): reads Out@GRAD where it lies. Rows@GRAD as lookup_rows_grad makes it, X@GRAD the
// columns of X. It has the look-ups and dense inputs that want one: lookup_begins, dense_begins and dense_sizes say
// which columns are theirs.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/runtime/kernel.h"
#include "ops/fit.h"
#include "ops/lookup.h"
#include "ops/pieces.h"
#include "ops/shape_rules.h"

namespace weir {
namespace {

// Returns the pooling of each of n look-ups.
absl::StatusOr<std::vector<LookupAttrs>> ReadPoolings(const AttrReader& reader, size_t n) {
  const std::vector<std::string> poolings = reader.Strings("poolings");
  const std::vector<int64_t> per_slot = reader.Ints("per_slot"), padded = reader.Ints("padded"),
                             padding_ids = reader.Ints("padding_ids");
  const auto fits = [n](size_t given) { return given == 0 || given == n; };
  if (!fits(poolings.size()) || !fits(per_slot.size()) || !fits(padded.size()) || !fits(padding_ids.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        n, " look-ups have ", poolings.size(), " poolings, ", per_slot.size(), " per_slot, ", padded.size(),
        " padded and ", padding_ids.size(), " padding_ids; each must be one for a look-up, or empty"));
  }
  std::vector<LookupAttrs> lookups(n);
  for (size_t k = 0; k < n; ++k) {
    if (!poolings.empty()) {
      ASSIGN_OR_RETURN(lookups[k].pooling, PoolingOf(poolings[k]));
    }
    lookups[k].per_slot = !per_slot.empty() && per_slot[k] != 0;
    lookups[k].has_padding = !padded.empty() && padded[k] != 0;
    if (!padding_ids.empty()) lookups[k].padding_id = padding_ids[k];
  }
  return lookups;
}

absl::StatusOr<std::vector<int>> ReadOrder(const AttrReader& reader, int lookups, int dense) {
  const std::vector<int64_t> dense_at = reader.Ints("dense_at");
  const int64_t pieces = lookups + dense;
  bool fits = dense_at.empty() || static_cast<int>(dense_at.size()) == dense;
  for (size_t j = 0; j < dense_at.size(); ++j) {
    fits = fits && dense_at[j] < pieces && dense_at[j] > (j == 0 ? -1 : dense_at[j - 1]);
  }
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dense_at ", ShapeString(dense_at), " does not name rising places of ", dense, " X among ", pieces, " pieces"));
  }
  std::vector<int> order;
  int lookup = 0, x = 0;
  for (int64_t p = 0; p < pieces; ++p) {
    const bool is_x = dense_at.empty() ? p >= lookups : x < dense && dense_at[static_cast<size_t>(x)] == p;
    order.push_back(is_x ? -1 - x++ : lookup++);
  }
  return order;
}

// Returns the look-ups of an op from the descriptions of its variables: equally many Ids, Index and Rows, of one batch.
// Sets the fields of the pieces that are known.
absl::StatusOr<std::vector<LookupPiece>> InferLookups(const InferContext& ctx, int64_t batch) {
  const int n = ctx.InputCount("Ids");
  if (ctx.InputCount("Index") != n || ctx.InputCount("Rows") != n) {
    return ctx.Error(absl::StrCat(n, " Ids need as many Index and Rows, got ", ctx.InputCount("Index"), " and ",
                                  ctx.InputCount("Rows")));
  }
  const absl::StatusOr<std::vector<LookupAttrs>> attrs = ReadPoolings(ctx.attrs(), static_cast<size_t>(n));
  if (!attrs.ok()) return ctx.Error(ToStd(attrs.status().message()));
  std::vector<LookupPiece> lookups;
  for (int k = 0; k < n; ++k) {
    const Shape ids = ctx.InputShape("Ids", k), rows = ctx.InputShape("Rows", k);
    if (ids.size() != 2 || ids[1] < 1 || ids[0] != batch) {
      return ctx.Error(absl::StrCat("Ids[", k, "] must be [", batch, ", slots], got ", ShapeString(ids)));
    }
    if (ctx.Input("Index", k).dtype() != v1::INT32) return ctx.Error(absl::StrCat("Index[", k, "] must be INT32"));
    if (rows.size() != 2 || rows[1] < 1) {
      return ctx.Error(absl::StrCat("Rows[", k, "] must be [-1, width], got ", ShapeString(rows)));
    }
    if (KnownCount({ids[1], rows[1]}) < 0) {
      return ctx.Error(absl::StrCat(ids[1], " slots of width ", rows[1], " are more than any Out has"));
    }
    lookups.push_back({.attrs = (*attrs)[static_cast<size_t>(k)], .width = rows[1], .slots = ids[1]});
  }
  return lookups;
}

int64_t Columns(const LookupPiece& piece) { return OutWidth(piece.attrs, piece.slots, piece.width); }

absl::Status LookupConcatShape(InferContext& ctx) {
  const Shape first = ctx.InputShape("Ids");
  if (first.empty()) return ctx.Error("Ids[0] must be [batch, slots], got []");
  ASSIGN_OR_RETURN(const std::vector<LookupPiece> lookups, InferLookups(ctx, first[0]));
  if (ctx.InputCount("X") > 0) RETURN_IF_ERROR(ExpectAllDense(ctx, "X"));
  int64_t total = 0;
  bool fits = true;
  for (const LookupPiece& piece : lookups) fits = fits && !__builtin_add_overflow(total, Columns(piece), &total);
  for (int j = 0; j < ctx.InputCount("X"); ++j) {
    const Shape x = ctx.InputShape("X", j);
    if (x.size() != 2 || x[0] != first[0] || x[1] < 0) {
      return ctx.Error(absl::StrCat("X[", j, "] (", ctx.Input("X", j).name(), ") must be [", first[0],
                                    ", columns], got ", ShapeString(x)));
    }
    fits = fits && !__builtin_add_overflow(total, x[1], &total);
  }
  if (!fits) return ctx.Error("its pieces add up to more columns than any Out has");
  const absl::Status order = ReadOrder(ctx.attrs(), ctx.InputCount("Ids"), ctx.InputCount("X")).status();
  if (!order.ok()) return ctx.Error(ToStd(order.message()));
  ctx.SetOutput("Out", {first[0], total});
  return absl::OkStatus();
}

// Returns the elements of `all` at the indices `wanted`: the variables and poolings that a gradient op takes over from
// the forward op.
std::vector<std::string> Chosen(const std::vector<std::string>& all, const std::vector<size_t>& wanted) {
  std::vector<std::string> some;
  some.reserve(wanted.size());
  for (const size_t k : wanted) some.push_back(all[k]);
  return some;
}

absl::StatusOr<std::vector<v1::OpDesc>> LookupConcatGradient(GradContext& ctx) {
  std::vector<std::string> ids, index, rows, x;
  for (const v1::OpSlot& slot : ctx.op().inputs()) {
    std::vector<std::string>& vars = slot.name() == "Ids"     ? ids
                                     : slot.name() == "Index" ? index
                                     : slot.name() == "Rows"  ? rows
                                                              : x;
    vars.assign(slot.vars().begin(), slot.vars().end());
  }
  ASSIGN_OR_RETURN(const std::vector<LookupAttrs> attrs, ReadPoolings(ctx.attrs(), ids.size()));
  ASSIGN_OR_RETURN(const std::vector<int> order,
                   ReadOrder(ctx.attrs(), static_cast<int>(ids.size()), static_cast<int>(x.size())));
  std::vector<size_t> wanted;
  std::vector<std::string> rows_grads, x_grads, poolings;
  std::vector<int64_t> lookup_begins, dense_begins, dense_sizes, per_slot, padded, padding_ids;
  int64_t begin = 0;
  for (const int piece : order) {
    if (piece < 0) {
      const int j = -1 - piece;
      const int64_t size = ctx.Var(x[static_cast<size_t>(j)]).dims(1);
      if (const std::string grad = ctx.InputGrad("X", j); !grad.empty()) {
        x_grads.push_back(grad);
        dense_begins.push_back(begin);
        dense_sizes.push_back(size);
      }
      begin += size;
      continue;
    }
    const size_t k = static_cast<size_t>(piece);
    if (const std::string grad = ctx.InputGrad("Rows", piece); !grad.empty()) {
      wanted.push_back(k);
      rows_grads.push_back(grad);
      lookup_begins.push_back(begin);
      poolings.emplace_back(PoolingName(attrs[k].pooling));
      per_slot.push_back(attrs[k].per_slot);
      padded.push_back(attrs[k].has_padding);
      padding_ids.push_back(attrs[k].padding_id);
    }
    begin += OutWidth(attrs[k], ctx.Var(ids[k]).dims(1), ctx.Var(rows[k]).dims(1));
  }
  if (wanted.empty() && x_grads.empty()) return std::vector<v1::OpDesc>();
  std::vector<std::pair<std::string, std::vector<std::string>>> inputs, outputs;
  if (!wanted.empty()) {
    inputs = {{"Ids", Chosen(ids, wanted)}, {"Index", Chosen(index, wanted)}, {"Rows", Chosen(rows, wanted)}};
    outputs.push_back({"Rows@GRAD", rows_grads});
  }
  inputs.push_back({"Out@GRAD", {ctx.OutputGrad("Out")}});
  if (!x_grads.empty()) outputs.push_back({"X@GRAD", x_grads});
  return std::vector<v1::OpDesc>{
      MakeOp("lookup_concat_grad", inputs, outputs,
             {AttrStrings("poolings", poolings), AttrInts("per_slot", per_slot), AttrInts("padded", padded),
              AttrInts("padding_ids", padding_ids), AttrInts("lookup_begins", lookup_begins),
              AttrInts("dense_begins", dense_begins), AttrInts("dense_sizes", dense_sizes)})};
}

// Returns true if a matrix of `columns` columns has the columns [begin, begin + size).
bool Within(int64_t begin, int64_t size, int64_t columns) {
  return begin >= 0 && size >= 0 && begin <= columns && size <= columns - begin;
}

absl::Status LookupConcatGradShape(InferContext& ctx) {
  RETURN_IF_ERROR(ExpectDense(ctx, "Out@GRAD"));
  const Shape dout = ctx.InputShape("Out@GRAD");
  if (dout.size() != 2 || dout[1] < 0) {
    return ctx.Error(absl::StrCat("Out@GRAD must be [batch, columns], got ", ShapeString(dout)));
  }
  ASSIGN_OR_RETURN(const std::vector<LookupPiece> lookups, InferLookups(ctx, dout[0]));
  const std::vector<int64_t> begins = ctx.attrs().Ints("lookup_begins"),
                             dense_begins = ctx.attrs().Ints("dense_begins"), sizes = ctx.attrs().Ints("dense_sizes");
  const size_t rows = static_cast<size_t>(ctx.OutputCount("Rows@GRAD")),
               x = static_cast<size_t>(ctx.OutputCount("X@GRAD"));
  if (rows != lookups.size() || begins.size() != rows || dense_begins.size() != x || sizes.size() != x) {
    return ctx.Error(absl::StrCat(lookups.size(), " look-ups have ", rows, " Rows@GRAD and ", begins.size(),
                                  " lookup_begins, and ", x, " X@GRAD have ", dense_begins.size(), " dense_begins and ",
                                  sizes.size(), " dense_sizes; they must be as many"));
  }
  for (size_t k = 0; k < rows; ++k) {
    if (!Within(begins[k], Columns(lookups[k]), dout[1])) {
      return ctx.Error(absl::StrCat("look-up ", k, " has ", Columns(lookups[k]), " columns from ", begins[k],
                                    " on; Out@GRAD is ", ShapeString(dout)));
    }
    const int i = static_cast<int>(k);
    ctx.SetOutput("Rows@GRAD", ctx.InputShape("Rows", i), v1::FLOAT32, i);
    ctx.Output("Rows@GRAD", i)->set_kind(v1::SELECTED_ROWS);
  }
  for (size_t j = 0; j < x; ++j) {
    if (!Within(dense_begins[j], sizes[j], dout[1])) {
      return ctx.Error(absl::StrCat("X@GRAD[", j, "] is ", sizes[j], " columns from ", dense_begins[j],
                                    " on; Out@GRAD is ", ShapeString(dout)));
    }
    ctx.SetOutput("X@GRAD", {dout[0], sizes[j]}, v1::FLOAT32, static_cast<int>(j));
  }
  return absl::OkStatus();
}

// Adds LookupCost of each look-up, and the reading and writing of the dense columns.
Cost LookupConcatCost(const InferContext& ctx, int64_t batch, int64_t dense_columns) {
  const double examples = static_cast<double>(std::max<int64_t>(batch, 1));
  Cost cost{.bytes = 8 * examples * static_cast<double>(dense_columns)};
  for (int k = 0; k < ctx.InputCount("Ids"); ++k) {
    const double n = examples * static_cast<double>(ctx.InputShape("Ids", k)[1]);
    const double floats = n * static_cast<double>(ctx.InputShape("Rows", k)[1]);
    cost.flops += floats;
    cost.bytes += 8 * floats + 8 * n;
  }
  return cost;
}
Cost ForwardCost(InferContext& ctx) {
  int64_t columns = 0;
  for (int j = 0; j < ctx.InputCount("X"); ++j) columns += ctx.InputShape("X", j)[1];
  return LookupConcatCost(ctx, ctx.InputShape("Ids")[0], columns);
}
Cost BackwardCost(InferContext& ctx) {
  int64_t columns = 0;
  for (const int64_t size : ctx.attrs().Ints("dense_sizes")) columns += size;
  return LookupConcatCost(ctx, ctx.InputShape("Out@GRAD")[0], columns);
}

class LookupConcatKernel : public OpKernel {
 public:
  explicit LookupConcatKernel(LookupConcat pieces) : pieces_(std::move(pieces)) {}

  absl::Status Run(KernelContext& ctx) override {
    const int64_t batch = std::get<IdBatch>(ctx.input_var(kIds)).batch();
    int64_t total = 0;
    for (const int piece : pieces_.order) {
      ASSIGN_OR_RETURN(const int64_t columns,
                       piece < 0 ? CheckDense(ctx, -1 - piece, batch) : CheckLookup(ctx, piece, batch));
      total += columns;
    }
    Tensor* const out = ctx.output(0);
    out->Resize(v1::FLOAT32, {batch, total});
    int64_t begin = 0;
    for (const int piece : pieces_.order) {
      begin += piece < 0 ? CopyDense(ctx.input(kDense, -1 - piece), begin, out) : LookUp(ctx, piece, begin, out);
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kIds = 0, kIndex = 1, kRows = 2, kDense = 3;

  // Returns the number of its columns in Out.
  absl::StatusOr<int64_t> CheckLookup(KernelContext& ctx, int k, int64_t batch) const {
    const LookupPiece& piece = pieces_.lookups[static_cast<size_t>(k)];
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds, k));
    RETURN_IF_ERROR(CheckStepRows(piece.attrs, ids, ctx.input(kIndex, k),
                                  std::get<SelectedRows>(ctx.input_var(kRows, k)), piece.width));
    if (ids.batch() == batch) return OutWidth(piece.attrs, ids.slots, piece.width);
    return absl::InvalidArgumentError(absl::StrCat("Ids[", k, "] has ", ids.batch(), " examples, Ids[0] ", batch));
  }
  static absl::StatusOr<int64_t> CheckDense(KernelContext& ctx, int j, int64_t batch) {
    const Tensor& x = ctx.input(kDense, j);
    const std::string name = absl::StrCat("X[", j, "]");
    RETURN_IF_ERROR(CheckRank(name, x, 2));
    RETURN_IF_ERROR(CheckTensor(name, x, {batch, x.dim(1)}));
    return x.dim(1);
  }

  int64_t LookUp(KernelContext& ctx, int k, int64_t begin, Tensor* out) const {
    const LookupPiece& piece = pieces_.lookups[static_cast<size_t>(k)];
    const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds, k));
    const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(kRows, k));
    const bool none = ids.values.empty();
    PoolRows(piece.attrs, ids, none ? nullptr : ctx.input(kIndex, k).data<int32_t>(),
             none ? nullptr : rows.values.data<float>(), piece.width, out->data<float>() + begin, out->dim(1));
    return OutWidth(piece.attrs, ids.slots, piece.width);
  }
  static int64_t CopyDense(const Tensor& x, int64_t begin, Tensor* out) {
    CopyIntoPiece(out->dims(), 1, begin, x.dim(1), x.data<float>(), out->data<float>());
    return x.dim(1);
  }

  const LookupConcat pieces_;
};

class LookupConcatGradKernel : public OpKernel {
 public:
  explicit LookupConcatGradKernel(LookupConcatGrad pieces) : pieces_(std::move(pieces)) {}

  absl::Status Run(KernelContext& ctx) override {
    const Tensor& dout = ctx.input(kOutGrad);
    RETURN_IF_ERROR(CheckRank("Out@GRAD", dout, 2));
    const int64_t columns = dout.dim(1);
    for (size_t k = 0; k < pieces_.lookups.size(); ++k) {
      const LookupPiece& piece = pieces_.lookups[k];
      const int i = static_cast<int>(k);
      const IdBatch& ids = std::get<IdBatch>(ctx.input_var(kIds, i));
      const Tensor& index = ctx.input(kIndex, i);
      const SelectedRows& rows = std::get<SelectedRows>(ctx.input_var(kRows, i));
      RETURN_IF_ERROR(CheckStepRows(piece.attrs, ids, index, rows, piece.width));
      const int64_t wide = OutWidth(piece.attrs, ids.slots, piece.width);
      if (ids.batch() != dout.dim(0) || !Within(piece.begin, wide, columns)) {
        return absl::InvalidArgumentError(absl::StrCat("look-up ", k, " has ", ids.batch(), " examples and ", wide,
                                                       " columns from ", piece.begin, " on; Out@GRAD is ",
                                                       ShapeString(dout.dims())));
      }
      StepRowsGradient(piece.attrs, ids, index, rows, piece.width, dout.data<float>() + piece.begin, columns,
                       ctx.OutputAs<SelectedRows>(kRowsGrad, i));
    }
    for (size_t j = 0; j < pieces_.dense_begins.size(); ++j) {
      const int64_t begin = pieces_.dense_begins[j], size = pieces_.dense_sizes[j];
      if (!Within(begin, size, columns)) {
        return absl::InvalidArgumentError(absl::StrCat("X@GRAD[", j, "] is ", size, " columns from ", begin,
                                                       " on; Out@GRAD is ", ShapeString(dout.dims())));
      }
      Tensor* const dx = ctx.output(kDenseGrad, static_cast<int>(j));
      dx->Resize(v1::FLOAT32, {dout.dim(0), size});
      CopyFromPiece({dout.dim(0), columns}, 1, begin, size, dout.data<float>(), dx->data<float>());
    }
    return absl::OkStatus();
  }

 private:
  static constexpr int kIds = 0, kIndex = 1, kRows = 2, kOutGrad = 3;
  static constexpr int kRowsGrad = 0, kDenseGrad = 1;

  const LookupConcatGrad pieces_;
};

// Returns the look-ups as the program describes them.
absl::StatusOr<std::vector<LookupPiece>> DescribedLookups(const KernelInit& init) {
  const google::protobuf::RepeatedPtrField<std::string>*ids = nullptr, *rows = nullptr;
  for (const v1::OpSlot& slot : init.op.inputs()) {
    if (slot.name() == "Ids") ids = &slot.vars();
    if (slot.name() == "Rows") rows = &slot.vars();
  }
  std::vector<LookupPiece> lookups(ids == nullptr ? 0 : static_cast<size_t>(ids->size()));
  if ((rows == nullptr ? 0 : static_cast<size_t>(rows->size())) != lookups.size()) {
    return absl::InvalidArgumentError("Ids and Rows are not as many");
  }
  ASSIGN_OR_RETURN(const std::vector<LookupAttrs> attrs, ReadPoolings(init.attrs, lookups.size()));
  for (size_t k = 0; k < lookups.size(); ++k) {
    const v1::VarDesc* const id = init.vars((*ids)[static_cast<int>(k)]);
    const v1::VarDesc* const row = init.vars((*rows)[static_cast<int>(k)]);
    if (id == nullptr || id->dims_size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat("Ids[", k, "] is not described as [-1, slots]"));
    }
    if (row == nullptr || row->dims_size() != 2) {
      return absl::InvalidArgumentError(absl::StrCat("Rows[", k, "] is not described as [-1, width]"));
    }
    lookups[k] = {.attrs = attrs[k], .width = row->dims(1), .slots = id->dims(1)};
  }
  return lookups;
}

std::vector<SlotDef> Inputs(bool optional) {
  return {{.name = "Ids", .kinds = {v1::IDS}, .optional = optional, .variadic = true},
          {.name = "Index", .optional = optional, .variadic = true},
          {.name = "Rows", .kinds = {v1::SELECTED_ROWS}, .optional = optional, .variadic = true}};
}
std::vector<SlotDef> With(std::vector<SlotDef> slots, SlotDef more) {
  slots.push_back(std::move(more));
  return slots;
}
std::vector<AttrDef> Attrs(const std::vector<AttrDef>& more) {
  std::vector<AttrDef> attrs = {StringsAttr("poolings"), IntsAttr("per_slot"), IntsAttr("padded"),
                                IntsAttr("padding_ids")};
  attrs.insert(attrs.end(), more.begin(), more.end());
  return attrs;
}

REGISTER_OP(lookup_concat)
({.type = "lookup_concat",
  .summary = "prefetched rows by several ids, pooled, and dense inputs, joined",
  .inputs = With(Inputs(/*optional=*/false), {.name = "X", .optional = true, .variadic = true}),
  .outputs = {{.name = "Out"}},
  .attrs = Attrs({IntsAttr("dense_at")}),
  .shape = LookupConcatShape,
  .gradient = LookupConcatGradient,
  .cost = ForwardCost});
REGISTER_OP(lookup_concat_grad)
({.type = "lookup_concat_grad",
  .summary = "gradients of lookup_concat's rows, merged, and of its dense inputs",
  .inputs = With(Inputs(/*optional=*/true), {.name = "Out@GRAD"}),
  .outputs = {{.name = "Rows@GRAD", .kinds = {v1::SELECTED_ROWS}, .optional = true, .variadic = true},
              {.name = "X@GRAD", .optional = true, .variadic = true}},
  .attrs = Attrs({IntsAttr("lookup_begins"), IntsAttr("dense_begins"), IntsAttr("dense_sizes")}),
  .shape = LookupConcatGradShape,
  .cost = BackwardCost});

REGISTER_KERNEL(lookup_concat, [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpKernel>> {
  ASSIGN_OR_RETURN(LookupConcat pieces, ReadLookupConcat(init));
  return std::unique_ptr<OpKernel>(new LookupConcatKernel(std::move(pieces)));
});
REGISTER_KERNEL(lookup_concat_grad, [](const KernelInit& init) -> absl::StatusOr<std::unique_ptr<OpKernel>> {
  ASSIGN_OR_RETURN(LookupConcatGrad pieces, ReadLookupConcatGrad(init));
  return std::unique_ptr<OpKernel>(new LookupConcatGradKernel(std::move(pieces)));
});

}  // namespace

absl::StatusOr<LookupConcat> ReadLookupConcat(const KernelInit& init) {
  LookupConcat pieces;
  ASSIGN_OR_RETURN(pieces.lookups, DescribedLookups(init));
  int dense = 0;
  for (const v1::OpSlot& slot : init.op.inputs()) {
    if (slot.name() == "X") dense = slot.vars_size();
  }
  ASSIGN_OR_RETURN(pieces.order, ReadOrder(init.attrs, static_cast<int>(pieces.lookups.size()), dense));
  return pieces;
}

absl::StatusOr<LookupConcatGrad> ReadLookupConcatGrad(const KernelInit& init) {
  LookupConcatGrad pieces;
  ASSIGN_OR_RETURN(pieces.lookups, DescribedLookups(init));
  const std::vector<int64_t> begins = init.attrs.Ints("lookup_begins");
  pieces.dense_begins = init.attrs.Ints("dense_begins");
  pieces.dense_sizes = init.attrs.Ints("dense_sizes");
  if (begins.size() != pieces.lookups.size() || pieces.dense_sizes.size() != pieces.dense_begins.size()) {
    return absl::InvalidArgumentError(absl::StrCat(pieces.lookups.size(), " look-ups have ", begins.size(),
                                                   " lookup_begins, ", pieces.dense_begins.size(),
                                                   " dense_begins have ", pieces.dense_sizes.size(), " dense_sizes"));
  }
  for (size_t k = 0; k < begins.size(); ++k) pieces.lookups[k].begin = begins[k];
  return pieces;
}

}  // namespace weir
