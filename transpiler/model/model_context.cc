#include "transpiler/model/model_context.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/graph/infer.h"
#include "transpiler/job/job.h"

namespace weir {
namespace {

const v1::VarDesc* FindIn(const ModelState& state, std::string_view name) {
  const auto found = state.vars.find(name);
  return found == state.vars.end() ? nullptr : found->second;
}

std::string DimsOf(const v1::VarDesc& var) {
  return ShapeString(absl::MakeConstSpan(var.dims().data(), var.dims_size()));
}

v1::VarDesc ParameterVar(const std::string& name, absl::Span<const int64_t> dims, const v1::Initializer& initializer) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(v1::FLOAT32);
  var.mutable_dims()->Add(dims.begin(), dims.end());
  var.set_persistable(true);
  var.set_is_parameter(true);
  *var.mutable_initializer() = initializer;
  if (initializer.has_xavier() && dims.size() >= 2) {
    v1::XavierInitializer* xavier = var.mutable_initializer()->mutable_xavier();
    if (xavier->fan_in() == 0) xavier->set_fan_in(dims[0]);
    if (xavier->fan_out() == 0) xavier->set_fan_out(dims[1]);
  }
  return var;
}

v1::Initializer TableInitializer(const v1::Table& table) {
  if (table.has_initializer()) return table.initializer();
  v1::Initializer init;
  if (table.width() == 1) {
    init.mutable_constant()->set_value(0);
  } else {
    const double bound = 1 / std::sqrt(static_cast<double>(table.width()));
    init.mutable_uniform()->set_min(-bound);
    init.mutable_uniform()->set_max(bound);
  }
  return init;
}

v1::VarDesc TableVar(const v1::Table& table) {
  v1::VarDesc var = ParameterVar(table.name(), {table.is_distributed() ? -1 : table.dict_size(), table.width()},
                                 TableInitializer(table));
  if (!table.trainable()) var.set_trainable(false);
  var.set_is_sparse(table.is_sparse());
  if (!table.is_distributed()) return var;
  var.set_kind(v1::TABLE);
  var.set_dtype(table.storage());
  var.set_is_distributed(true);
  if (table.dict_size() > 0) var.set_capacity(table.dict_size());
  var.set_logical_shards(table.logical_shards());
  if (table.has_lifecycle()) *var.mutable_lifecycle() = table.lifecycle();
  // Each process chooses its own directory (PlaceTablesOnDisk).
  if (table.has_disk()) var.mutable_disk()->set_memory_mb(table.disk().memory_mb());
  return var;
}

}  // namespace

const v1::JobConfig& ModelContext::job() const { return state_->job->config; }

absl::Status ModelContext::Error(std::string_view field, std::string_view text) const {
  const std::string_view name = field.ends_with(']') ? field.substr(0, field.rfind('[')) : field;
  return at_.Place(field, absl::StrCat(what_, ": ", std::string(name), name.empty() ? "" : " ", std::string(text)));
}

absl::Status ModelContext::NeedSeveralExamples(std::string_view field, std::string_view why) const {
  const int lanes = job().train().lanes();
  // Without lanes each trainer has a batch.
  const int64_t batches = std::max(1, lanes > 0 ? lanes : job().distribute().trainers());
  if (job().data().batch_size() / batches != 1) return absl::OkStatus();
  return Error(
      field, absl::StrCat("has one example in a batch, as data.batch_size is ", job().data().batch_size(), " and ",
                          lanes > 0 ? "train.lanes" : "distribute.trainers", " ", batches, ": ", std::string(why),
                          "; set data.batch_size to ", 2 * batches, " at least", lanes > 0 ? ", or fewer lanes" : ""));
}

bool ModelContext::IsOfData(const std::string& variable) const {
  return std::any_of(state_->schema.begin(), state_->schema.end(),
                     [&](const v1::VarDesc& var) { return var.name() == variable; });
}

const std::string& ModelContext::IdSpaceOf(const std::string& ids) const {
  const auto found = state_->id_spaces.find(ids);
  return found == state_->id_spaces.end() ? ids : found->second;
}

absl::StatusOr<v1::VarDesc> ModelContext::Input(std::string_view field, const std::string& variable) {
  if (variable.empty()) return Error(field, "is required");
  if (const v1::VarDesc* var = FindIn(*state_, variable)) {
    if (!var->is_parameter()) return *var;
    return Error(field, absl::StrCat("'", variable, "' is a parameter, not a layer or a variable of the data"));
  }
  std::vector<std::string> known;
  for (const v1::VarDesc& var : state_->schema) {
    if (var.name() == variable) {
      RETURN_IF_ERROR(Declare(var));
      return var;
    }
    known.push_back(var.name());
  }
  for (const v1::Layer& layer : job().model().layer()) {
    if (layer.name() == variable && what_ == absl::StrCat("layer '", variable, "'")) {
      return Error(field, absl::StrCat("'", variable, "' is this layer itself; a layer reads those above it"));
    }
    if (layer.name() == variable) {
      return Error(field, absl::StrCat("'", variable, "' is a layer further down; a layer reads those above it"));
    }
  }
  for (const v1::VarDesc& var : state_->program.blocks(0).vars()) {
    if (!var.is_parameter()) known.push_back(var.name());
  }
  const std::string near = NearestName(variable, known);
  return Error(field, absl::StrCat("'", variable, "' is neither a variable of the data nor a layer above",
                                   near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
}

absl::StatusOr<v1::VarDesc> ModelContext::DenseInput(std::string_view field, const std::string& variable) {
  ASSIGN_OR_RETURN(v1::VarDesc var, Input(field, variable));
  if (var.kind() == v1::DENSE) return var;
  return Error(field, absl::StrCat("'", variable, "' holds ids; only an embedding reads them"));
}

absl::StatusOr<int64_t> ModelContext::FlatWidth(std::string_view field, const v1::VarDesc& var) {
  int64_t width = 1;
  bool known = var.dims_size() >= 1;
  for (int i = 1; i < var.dims_size(); ++i) {
    known &= var.dims(i) > 0;
    width *= known ? var.dims(i) : 1;
  }
  if (known) return width;
  return Error(field, absl::StrCat("'", var.name(), "' has dims ", DimsOf(var), "; a batch of vectors is needed"));
}

absl::StatusOr<std::string> ModelContext::Parameter(std::string_view suffix, absl::Span<const int64_t> dims,
                                                    const v1::Initializer& initializer) {
  const std::string name = absl::StrCat(name_, ".", std::string(suffix));
  if (initializer.kind_case() == v1::Initializer::KIND_NOT_SET) {
    return Error("", absl::StrCat("the initializer of ", name, " needs one of constant, uniform, gaussian, xavier"));
  }
  const v1::VarDesc var = ParameterVar(name, dims, initializer);
  const v1::XavierInitializer& xavier = var.initializer().xavier();
  if (initializer.has_xavier() && (xavier.fan_in() == 0 || xavier.fan_out() == 0)) {
    return Error("", absl::StrCat("xavier for ", name, " ", ShapeString(dims),
                                  " needs fan_in and fan_out: only a matrix has them by itself"));
  }
  RETURN_IF_ERROR(Declare(var));
  return name;
}

absl::StatusOr<const v1::Table*> ModelContext::UseTable(std::string_view field, const std::string& table) {
  std::vector<std::string> known;
  for (const v1::Table& candidate : job().table()) {
    known.push_back(candidate.name());
    if (candidate.name() != table) continue;
    if (state_->tables_used.insert(table).second) RETURN_IF_ERROR(Declare(TableVar(candidate)));
    return &candidate;
  }
  const std::string near = NearestName(table, known);
  return Error(field, absl::StrCat("'", table, "' is no table of the job",
                                   near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
}

absl::Status ModelContext::Append(v1::OpDesc op) { return AppendFor(std::move(op)).status(); }

absl::StatusOr<v1::VarDesc> ModelContext::AppendFor(v1::OpDesc op) {
  v1::BlockDesc* block = state_->program.mutable_blocks(0);
  const VarLookup find = [this](std::string_view name) { return FindIn(*state_, name); };
  const auto infer = [&]() -> absl::StatusOr<std::vector<v1::VarDesc>> {
    ASSIGN_OR_RETURN(const OpDef* def, CheckSignature(op, find, /*outputs_may_be_new=*/true));
    return InferOutputs(op, *def, find);
  };
  const absl::StatusOr<std::vector<v1::VarDesc>> outputs = infer();
  if (!outputs.ok()) return Error("", std::string(outputs.status().message()));
  CHECK(!outputs->empty()) << op.type() << " writes nothing";
  for (const v1::VarDesc& var : *outputs) RETURN_IF_ERROR(Declare(var));
  *block->add_ops() = std::move(op);
  return outputs->front();
}

absl::Status ModelContext::Declare(const v1::VarDesc& var) {
  if (FindIn(*state_, var.name()) != nullptr) {
    return Error("", absl::StrCat("would make a second variable '", var.name(), "': rename the layer"));
  }
  if (const absl::Status dims = CheckDims(var); !dims.ok()) return Error("", std::string(dims.message()));
  v1::VarDesc* added = state_->program.mutable_blocks(0)->add_vars();
  *added = var;
  state_->vars.emplace(added->name(), added);
  return absl::OkStatus();
}

absl::StatusOr<v1::VarDesc> Flatten(ModelContext& ctx, std::string_view field, const v1::VarDesc& x,
                                    const std::string& name) {
  if (x.dims_size() == 2) return x;
  ASSIGN_OR_RETURN(const int64_t width, ctx.FlatWidth(field, x));
  return ctx.AppendFor(MakeOp("reshape", {{"X", {x.name()}}}, {{"Out", {name}}}, {AttrInts("shape", {-1, width})}));
}

absl::Status AppendActivation(ModelContext& ctx, v1::Activation activation, const std::string& x,
                              const std::string& name) {
  const char* type = nullptr;
  switch (activation) {
    case v1::RELU:
      type = "relu";
      break;
    case v1::SIGMOID:
      type = "sigmoid";
      break;
    case v1::TANH:
      type = "tanh";
      break;
    case v1::SOFTMAX:
      type = "softmax";
      break;
    case v1::IDENTITY:
      break;
  }
  CHECK(type != nullptr) << "an identity has no operator";
  return ctx.Append(MakeOp(type, {{"X", {x}}}, {{"Out", {name}}}));
}

}  // namespace weir
