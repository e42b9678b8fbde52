#include "ops/update_op.h"

#include "framework/graph/infer.h"
#include "ops/columns.h"

namespace weir {
namespace {

constexpr int kParam = 0, kGrad = 1, kLearningRate = 2, kFirstState = 3;

absl::Status InferUpdate(const std::vector<StateDef>& state, InferContext& ctx) {
  const v1::VarDesc& param = ctx.Input("Param");
  const v1::VarDesc& grad = ctx.Input("Grad");
  const bool table = param.kind() == v1::TABLE;
  const bool rows = grad.kind() == v1::SELECTED_ROWS;
  const Shape dims = ctx.InputShape("Param");
  const Shape grad_dims = ctx.InputShape("Grad");
  if (table && !rows) return ctx.Error("Param is a table: Grad must be selected rows");
  for (const char* slot : {"Param", "Grad", "LearningRate"}) {
    const DType dtype = ctx.Input(slot).dtype();
    // Update rules see the rows of a table as float32, whatever type stores them.
    if (dtype != v1::FLOAT32 && ctx.Input(slot).kind() != v1::TABLE)
      return ctx.Error(absl::StrCat(slot, " must be FLOAT32, got ", v1::DType_Name(dtype)));
  }
  // The heights of tables and of gradients without bound are unknown.
  const bool same_rank = dims.size() == grad_dims.size() && !dims.empty();
  const bool fit =
      rows ? same_rank && std::equal(dims.begin() + 1, dims.end(), grad_dims.begin() + 1) : dims == grad_dims;
  if (!fit) {
    return ctx.Error(absl::StrCat("Grad ", ShapeString(grad_dims), " does not fit Param ", ShapeString(dims)));
  }
  if (KnownCount(ctx.InputShape("LearningRate")) != 1) {
    return ctx.Error(
        absl::StrCat("LearningRate must have one element, got ", ShapeString(ctx.InputShape("LearningRate"))));
  }
  RETURN_IF_ERROR(CheckColumns(ctx, table, table ? dims.back() : 0));
  if (const int64_t after = ctx.attrs().Int("after"); after < 0 || (after > 0 && !table)) {
    return ctx.Error(absl::StrCat("after is for tables and not negative, got ", after));
  }
  if (ctx.attrs().Has("initializer") && !table) return ctx.Error("initializer is for columns of tables");
  const auto pass_on = [&](const std::string& slot) {
    if (ctx.OutputCount(slot + "Out") == 0) return;
    const std::string name = ctx.Output(slot + "Out")->name();
    v1::VarDesc out = ctx.Input(slot);
    out.set_name(name);
    *ctx.Output(slot + "Out") = out;
  };
  for (const StateDef& s : state) {
    if (ctx.InputCount(s.slot) == 0) {
      if (table) continue;  // the state lives in the rows
      return ctx.Error(absl::StrCat(s.slot, " is missing"));
    }
    Shape want = {1};
    if (s.like == StateDef::kParameter) want = dims;
    if (s.like == StateDef::kCount && rows) want = {dims[0]};
    if (ctx.InputShape(s.slot) != want || ctx.Input(s.slot).dtype() != v1::FLOAT32) {
      return ctx.Error(absl::StrCat(s.slot, " must be FLOAT32 ", ShapeString(want), ", got ",
                                    v1::DType_Name(ctx.Input(s.slot).dtype()), " ",
                                    ShapeString(ctx.InputShape(s.slot))));
    }
    pass_on(s.slot);
  }
  pass_on("Param");
  return absl::OkStatus();
}

// Returns the output's tensor with the input's values.
float* InPlace(KernelContext& ctx, int input_slot, int output_slot) {
  const Tensor& in = ctx.input(input_slot);
  if (ctx.has_output(output_slot) && ctx.output_var(output_slot) != &ctx.input_var(input_slot)) {
    Tensor* out = ctx.output(output_slot);
    if (out->raw() != in.raw() || !out->initialized()) out->CopyFrom(in);
    return out->data<float>();
  }
  return std::get<Tensor>(*ctx.inputs[0][input_slot].vars[0]).data<float>();
}

absl::Status CheckRows(const SelectedRows& grad, int64_t rows, int64_t width) {
  const int64_t n = static_cast<int64_t>(grad.ids.size());
  if (!grad.merged && n > 1) return absl::InvalidArgumentError("Grad has rows that are not merged by id");
  if (n > 0 && (!grad.values.initialized() || grad.values.size() != n * width)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Grad has ", grad.values.size(), " values; ", n, " rows of width ", width, " need ", n * width));
  }
  for (int64_t id : grad.ids) {
    if (id < 0 || id >= rows) {
      return absl::InvalidArgumentError(absl::StrCat("Grad has row ", id, "; Param has rows 0 to ", rows - 1));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string SnakeCase(std::string_view slot) {
  std::string result;
  for (char ch : slot) {
    const bool upper = ch >= 'A' && ch <= 'Z';
    if (upper && !result.empty()) result += '_';
    result += upper ? static_cast<char>(ch - 'A' + 'a') : ch;
  }
  return result;
}

OpDef MakeUpdateOp(std::string type, std::string summary, std::vector<AttrDef> attrs, std::vector<StateDef> state,
                   double flops) {
  OpDef def = {.type = std::move(type), .summary = std::move(summary)};
  def.inputs = {{.name = "Param", .kinds = {v1::DENSE, v1::TABLE}},
                {.name = "Grad", .kinds = {v1::DENSE, v1::SELECTED_ROWS}},
                {.name = "LearningRate"}};
  def.outputs = {{.name = "ParamOut", .kinds = {v1::DENSE, v1::TABLE}}};
  def.in_place = {{.input = "Param", .output = "ParamOut"}};
  for (const StateDef& s : state) {
    def.inputs.push_back({.name = s.slot, .optional = true});
    def.outputs.push_back({.name = s.slot + "Out", .optional = true});
    def.in_place.push_back({.input = s.slot, .output = s.slot + "Out"});
  }
  def.attrs = std::move(attrs);
  def.attrs.push_back(ColumnsAttr());
  def.attrs.push_back(IntAttr("after", 0));
  AttrDef initializer{.name = "initializer"};
  initializer.default_value.set_name("initializer");
  initializer.default_value.mutable_initializer();
  def.attrs.push_back(std::move(initializer));
  def.scope = OpScope::kStep;
  def.shape = [state](InferContext& ctx) { return InferUpdate(state, ctx); };
  const double floats = 3 + 2 * static_cast<double>(state.size());  // read gradient, read and write the others
  def.cost = [flops, floats](InferContext& ctx) {
    double elements = 1;
    for (int64_t d : ctx.InputShape("Grad")) elements *= static_cast<double>(std::max<int64_t>(d, 1));
    elements *= ColumnsShare(ctx, ctx.InputShape("Grad"));
    return Cost{.flops = flops * elements, .bytes = 4 * floats * elements};
  };
  def.is_optimizer = true;
  def.state = std::move(state);
  return def;
}

std::vector<float> InitialStates(std::string_view type, const AttrReader& attrs) {
  std::vector<float> initial;
  for (const StateDef& s : OpRegistry::Global().Find(type)->state) {
    initial.push_back(static_cast<float>(s.initial_attr.empty() ? s.initial : attrs.Float(s.initial_attr)));
  }
  return initial;
}

absl::StatusOr<UpdateArgs> CheckUpdate(KernelContext& ctx, int states, bool counts) {
  UpdateArgs a;
  const Variable& grad = ctx.input_var(kGrad);
  a.dense = std::get_if<Tensor>(&grad);
  a.selected = std::get_if<SelectedRows>(&grad);
  CHECK(a.dense != nullptr || a.selected != nullptr) << "Grad holds ids";
  a.absent = a.dense != nullptr ? !a.dense->initialized() : !a.selected->present;
  if (!std::holds_alternative<Tensor>(ctx.input_var(kParam)) || !ctx.input(kParam).initialized()) {
    return absl::FailedPreconditionError("Param has no value; run the startup program first");
  }
  // Check the types at run time: startup programs are files of their own, and may fill a variable with another type
  // than the main program declares.
  for (int slot = kParam; slot < kFirstState + states + (counts ? 1 : 0); ++slot) {
    if (!ctx.has_input(slot)) continue;
    const Tensor* tensor = std::get_if<Tensor>(&ctx.input_var(slot));
    if (tensor == nullptr || !tensor->initialized() || tensor->dtype() == v1::FLOAT32) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("input ", slot, " is ", v1::DType_Name(tensor->dtype()), ", expected FLOAT32"));
  }
  const Tensor& learning_rate = ctx.input(kLearningRate);
  if (!learning_rate.initialized() || learning_rate.size() != 1) {
    return absl::FailedPreconditionError("LearningRate has no value; run the startup program first");
  }
  a.lr = learning_rate.data<float>()[0];
  a.param = InPlace(ctx, kParam, 0);
  const Tensor& param = ctx.input(kParam);
  a.size = param.size();
  a.rows = param.rank() == 0 ? 1 : param.dim(0);
  a.width = a.rows == 0 ? 0 : a.size / a.rows;
  for (int s = 0; s < states + (counts ? 1 : 0); ++s) {
    if (!ctx.has_input(kFirstState + s) || !ctx.input(kFirstState + s).initialized()) {
      return absl::FailedPreconditionError(absl::StrCat("state ", s, " has no value; run the startup program first"));
    }
    const int64_t want = s < states ? a.size : a.selected != nullptr ? a.rows : 1;
    const int64_t got = ctx.input(kFirstState + s).size();
    if (got != want)
      return absl::InvalidArgumentError(absl::StrCat("state ", s, " has ", got, " elements, needs ", want));
    (s < states ? a.state[s] : a.count) = InPlace(ctx, kFirstState + s, 1 + s);
  }
  if (a.absent) return a;
  if (a.dense != nullptr && a.dense->size() != a.size) {
    return absl::InvalidArgumentError(
        absl::StrCat("Grad ", ShapeString(a.dense->dims()), " does not fit Param ", ShapeString(param.dims())));
  }
  if (a.selected != nullptr) RETURN_IF_ERROR(CheckRows(*a.selected, a.rows, a.width));
  return a;
}

void ForPieces(ThreadPool* pool, int64_t n, int64_t piece, const std::function<void(int64_t, int64_t)>& fn) {
  const int64_t pieces = (n + piece - 1) / piece;
  if (pool == nullptr || pieces <= 1) {
    if (n > 0) fn(0, n);
    return;
  }
  pool->ParallelFor(pieces, [&](int64_t i) { fn(i * piece, std::min(n, (i + 1) * piece)); });
}

}  // namespace weir
