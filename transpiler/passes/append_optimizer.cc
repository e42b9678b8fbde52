#include "transpiler/passes/append_optimizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/running_averages.h"
#include "framework/runtime/row_gradient.h"
#include "framework/runtime/row_rule.h"
#include "framework/tensor/float16.h"
#include "transpiler/base/state_name.h"
#include "transpiler/clips/norm_vars.h"
#include "transpiler/job/job.h"
#include "transpiler/job/update_settings.h"
#include "transpiler/passes/arrange_norms.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

constexpr char kStepCounter[] = "learning_rate.step";
constexpr char kFrozenRate[] = "frozen.learning_rate";

v1::VarDesc StepVar(const std::string& name, absl::Span<const int64_t> dims, v1::DType dtype) {
  v1::VarDesc var;
  var.set_name(name);
  var.set_kind(v1::DENSE);
  var.set_dtype(dtype);
  var.mutable_dims()->Add(dims.begin(), dims.end());
  return var;
}

v1::VarDesc ConstantVar(const std::string& name, absl::Span<const int64_t> dims, double value,
                        v1::DType dtype = v1::FLOAT32) {
  v1::VarDesc var = StepVar(name, dims, dtype);
  var.set_persistable(true);
  var.set_stop_gradient(true);
  var.mutable_initializer()->mutable_constant()->set_value(value);
  return var;
}

// Returns a text that names this number and no other: six digits if they suffice, else as many as the type may need.
std::string NumberName(double value) {
  std::string text = absl::StrFormat("%.6g", value);
  double back = 0;
  if (!absl::SimpleAtod(text, &back) || back != value) text = absl::StrFormat("%.17g", value);
  return text;
}

std::string NumberName(float value) {
  std::string text = absl::StrFormat("%.6g", value);
  float back = 0;
  if (!absl::SimpleAtof(text, &back) || back != value) text = absl::StrFormat("%.9g", value);
  return text;
}

// An optimizer of the job and its learning rates.
struct Updater {
  UpdateSettings settings;
  const OpDef* def = nullptr;
  // Variable with the learning rate, "learning_rate" or "<table>.learning_rate".
  std::string learning_rate;
  // Path of the optimizer in the job.
  std::string path;
  // float64 variable with the schedule's rate; empty without a schedule.
  std::string scheduled;
  // Variables by learning-rate factor.
  std::map<double, std::string> rates = {};
};

class Appender {
 public:
  // averages: parameters of the block that are running averages and have no optimizer.
  Appender(const Job& job, v1::BlockDesc* block, std::map<std::string, RunningAverage> averages)
      : job_(job), block_(block), vars_(*block), averages_(std::move(averages)) {}

  absl::Status Append(const v1::VarDesc& param) {
    const std::string grad_name = GradName(param.name());
    const v1::VarDesc* found = vars_.Find(grad_name);
    if (found == nullptr) {
      return job_.positions.Error("program",
                                  absl::StrCat("parameter '", param.name(), "' has no gradient '", grad_name, "'"));
    }
    const v1::VarDesc grad = *found;
    if (IsFrozen(job_.config.train(), param.name())) return AppendFrozen(param, grad);
    if (const auto average = averages_.find(param.name()); average != averages_.end()) {
      return AppendAverage(param, grad, average->second);
    }
    const int index = param.kind() == v1::TABLE ? TableIndex(param.name()) : -1;
    static const v1::Table* const no_table = new v1::Table();
    const v1::Table& table = index < 0 ? *no_table : job_.config.table(index);
    if (table.bad_gradient() == v1::Table::SKIP_ROW) {
      AddUpdateOp(MakeOp("drop_bad_rows", {{"Grad", {grad.name()}}}, {{"Out", {grad.name()}}}), param, grad);
    }
    if (table.segment_size() == 0) RETURN_IF_ERROR(AppendPart(param, grad, Part()));
    int64_t begin = 0;
    for (int i = 0; i < table.segment_size(); ++i) {
      const v1::Segment& segment = table.segment(i);
      RETURN_IF_ERROR(
          AppendPart(param, grad, {.segment = &segment, .index = i, .begin = begin, .end = begin + segment.width()}));
      begin += segment.width();
    }
    if (table.has_min_value() || table.has_max_value()) {
      // Move the bounds inwards to values that a row can hold, so that rounding does not pass them.
      const auto bound = [&](double value, float (*inside)(DType, double)) {
        return param.dtype() == v1::FLOAT32 ? value : double{inside(param.dtype(), value)};
      };
      std::vector<v1::OpAttr> attrs;
      if (table.has_min_value()) attrs.push_back(AttrF("min", bound(table.min_value(), NotBelow)));
      if (table.has_max_value()) attrs.push_back(AttrF("max", bound(table.max_value(), NotAbove)));
      AddUpdateOp(MakeOp("bound", {{"Param", {param.name()}}}, {{"ParamOut", {param.name()}}}, attrs), param, grad);
    }
    return absl::OkStatus();
  }

  // Call after the last Append: puts everything into the block.
  absl::Status Finish() {
    std::vector<std::string> average_names;
    for (const auto& [name, average] : averages_) average_names.push_back(name);
    for (const auto& [learning_rate, updater] : updaters_) {
      RETURN_IF_ERROR(updater.settings.CheckMatches(updated_[learning_rate], average_names));
    }
    if (!schedule_ops_.empty())
      AddScheduleOp(MakeOp("lr_count", {{"Step", {kStepCounter}}}, {{"StepOut", {kStepCounter}}}));
    RETURN_IF_ERROR(CheckNormsFit(job_, update_ops_));
    ArrangeNorms(&update_ops_);
    for (std::vector<v1::OpDesc>* ops : {&schedule_ops_, &update_ops_}) {
      for (v1::OpDesc& op : *ops) *block_->add_ops() = std::move(op);
    }
    return absl::OkStatus();
  }

 private:
  // Target of one update op: a parameter, or columns of a table's rows.
  struct Part {
    const v1::Segment* segment = nullptr;
    int index = -1;
    int64_t begin = 0;
    int64_t end = 0;
  };

  // Appends the update of a running average: without clip or decay, at a rate that no schedule changes.
  absl::Status AppendAverage(const v1::VarDesc& param, const v1::VarDesc& grad, const RunningAverage& average) {
    const v1::Wire& wire = job_.config.distribute().wire();
    for (const auto& [field, format] : {std::pair("wire.pull", wire.pull()), std::pair("wire.push", wire.push())}) {
      if (format != v1::WIRE_FLOAT16 && format != v1::WIRE_INT8) continue;
      return At("distribute")
          .Error(field,
                 absl::StrCat(v1::WireFormat_Name(format), " has no room for '", param.name(),
                              "', a running average of ", average.op,
                              ": sums over a batch may be large and values small; use WIRE_BFLOAT16 or leave it out"));
    }
    const float rate = static_cast<float>(1 - average.momentum);
    const std::string name = absl::StrCat("running_average.x", NumberName(rate));
    if (average_rates_.insert(name).second) RETURN_IF_ERROR(AddVar(ConstantVar(name, {1}, rate)));
    AddUpdateOp(
        MakeOp(kRunningAverageOp, {{"Param", {param.name()}}, {"Grad", {grad.name()}}, {"LearningRate", {name}}},
               {{"ParamOut", {param.name()}}}),
        param, grad);
    return absl::OkStatus();
  }

  // Appends an update that changes nothing: a dense parameter is held, saved and sent by those that update it.
  absl::Status AppendFrozen(const v1::VarDesc& param, const v1::VarDesc& grad) {
    if (average_rates_.insert(kFrozenRate).second) RETURN_IF_ERROR(AddVar(ConstantVar(kFrozenRate, {1}, 0)));
    AddUpdateOp(MakeOp("sgd", {{"Param", {param.name()}}, {"Grad", {grad.name()}}, {"LearningRate", {kFrozenRate}}},
                       {{"ParamOut", {param.name()}}}),
                param, grad);
    return absl::OkStatus();
  }

  absl::Status AppendPart(const v1::VarDesc& param, const v1::VarDesc& grad, const Part& part) {
    ASSIGN_OR_RETURN(Updater * updater, UpdaterOf(param.name(), part));
    const ParameterUpdate update = updater->settings.Of(param.name());
    RETURN_IF_ERROR(AppendClip(param, grad, part, *updater, update));
    AppendDecay(param, grad, part, update);
    return AppendUpdate(param, grad, part, update, updater);
  }

  // Returns the op restricted to these columns.
  static v1::OpDesc OnColumns(v1::OpDesc op, const Part& part) {
    if (part.segment != nullptr) *op.add_attrs() = AttrInts("columns", {part.begin, part.end});
    return op;
  }

  absl::Status AppendClip(const v1::VarDesc& param, const v1::VarDesc& grad, const Part& part, const Updater& updater,
                          const ParameterUpdate& update) {
    if (update.clip == nullptr) return absl::OkStatus();
    const ClipTarget target = {
        .param = param, .grad = grad, .group = update.clip_group, .declare = [this](const v1::VarDesc& var) {
          return AddVar(var);
        }};
    ASSIGN_OR_RETURN(std::vector<v1::OpDesc> ops, (*update.clip)(target));
    const int table = TableIndex(param.name());
    for (v1::OpDesc& op : ops) {
      if (IsNormOp(op)) {
        if (part.segment != nullptr) {
          return At(updater.path)
              .Error("clip", absl::StrCat("by a norm is over whole rows, but table '", param.name(),
                                          "' has segments: use by_value"));
        }
        if (param.kind() == v1::TABLE && table >= 0 && job_.config.table(table).bad_gradient() == v1::Table::SKIP_ROW) {
          return At(absl::StrCat("table[", table, "]"))
              .Error("bad_gradient", "SKIP_ROW contradicts a clip by norm, which one bad row decides: use by_value");
        }
      } else if (param.kind() == v1::TABLE) {
        op = OnColumns(std::move(op), part);
        RETURN_IF_ERROR(TableError(param.name(), RowGradientRegistry::Global().Make(op).status()));
      }
      AddUpdateOp(std::move(op), param, grad);
    }
    return absl::OkStatus();
  }

  void AppendDecay(const v1::VarDesc& param, const v1::VarDesc& grad, const Part& part, const ParameterUpdate& update) {
    if (update.l1_decay == 0 && update.l2_decay == 0) return;
    AddUpdateOp(
        OnColumns(MakeOp("decay", {{"Param", {param.name()}}, {"Grad", {grad.name()}}}, {{"Out", {grad.name()}}},
                         {AttrF("l1", update.l1_decay), AttrF("l2", update.l2_decay)}),
                  part),
        param, grad);
  }

  absl::Status AppendUpdate(const v1::VarDesc& param, const v1::VarDesc& grad, const Part& part,
                            const ParameterUpdate& update, Updater* updater) {
    ASSIGN_OR_RETURN(const std::string learning_rate, LearningRate(updater, update.learning_rate_factor));
    const UpdateRule& rule = updater->settings.rule();
    if (!rule.only_tables.empty() && param.kind() != v1::TABLE) {
      return At(rule.only_tables)
          .Error("", absl::StrCat("is for distributed tables, but this optimizer updates '", param.name(),
                                  "' too: give the tables an optimizer of their own"));
    }
    const auto& known = updater->def->attrs;
    if (part.segment != nullptr &&
        std::none_of(known.begin(), known.end(), [](const AttrDef& attr) { return attr.name == "columns"; })) {
      return At(updater->path)
          .Error("", absl::StrCat("makes the operator ", rule.op_type,
                                  ", which cannot update part of a row: it has no attribute columns"));
    }
    v1::OpDesc op =
        MakeOp(rule.op_type, {{"Param", {param.name()}}, {"Grad", {grad.name()}}, {"LearningRate", {learning_rate}}},
               {{"ParamOut", {param.name()}}}, rule.attrs);
    if (part.segment != nullptr) {
      op = OnColumns(std::move(op), part);
      if (part.segment->after() > 0) *op.add_attrs() = AttrI("after", part.segment->after());
      if (part.segment->has_initializer()) {
        v1::OpAttr* const initializer = op.add_attrs();
        initializer->set_name("initializer");
        *initializer->mutable_initializer() = part.segment->initializer();
      }
    }
    if (param.kind() == v1::TABLE) {
      RETURN_IF_ERROR(TableError(param.name(), RowRuleRegistry::Global().Make(op).status()));
    } else {
      RETURN_IF_ERROR(AddStates(*updater, param, grad.kind() == v1::SELECTED_ROWS, &op));
    }
    RETURN_IF_ERROR(AppendNorms(param, grad, rule, &op));
    updated_[updater->learning_rate].push_back(param.name());
    AddUpdateOp(std::move(op), param, grad);
    return absl::OkStatus();
  }

  // Appends the norms that the update reads: all sums first, so that the servers exchange them once.
  absl::Status AppendNorms(const v1::VarDesc& param, const v1::VarDesc& grad, const UpdateRule& rule,
                           v1::OpDesc* update) {
    std::vector<v1::OpDesc> norms;
    const v1::OpDesc plain = *update;
    for (const NormInput& input : rule.norms) {
      std::string of = input.of == NormInput::kParameter ? param.name() : grad.name();
      if (input.of == NormInput::kDirection) {
        v1::OpDesc direction = plain;
        direction.set_type(input.direction_op);
        direction.clear_outputs();
        direction.clear_inputs();
        for (const v1::OpSlot& slot : plain.inputs()) {
          if (slot.name() != "LearningRate") *direction.add_inputs() = slot;
        }
        v1::VarDesc var = grad;
        var.set_name(of = param.name() + ".direction");
        RETURN_IF_ERROR(AddVar(var));
        v1::OpSlot* out = direction.add_outputs();
        out->set_name("Out");
        out->add_vars(of);
        AddUpdateOp(std::move(direction), param, grad);
      }
      const std::string squares = of + ".squares", norm = of + ".norm";
      RETURN_IF_ERROR(AddVar(SumOfSquaresVar(squares)));
      RETURN_IF_ERROR(AddVar(WholeNormVar(norm)));
      AddUpdateOp(MakeOp("sum_of_squares", {{"X", {of}}}, {{"Out", {squares}}}), param, grad);
      norms.push_back(MakeOp("whole_norm", {{"X", {squares}}}, {{"Out", {norm}}}, {AttrS("name", of)}));
      v1::OpSlot* slot = update->add_inputs();
      slot->set_name(input.slot);
      slot->add_vars(norm);
    }
    for (v1::OpDesc& op : norms) AddUpdateOp(std::move(op), param, grad);
    return absl::OkStatus();
  }

  void AddUpdateOp(v1::OpDesc op, const v1::VarDesc& param, const v1::VarDesc& grad) {
    const v1::ParamGrad pair = Pair(param.name(), grad.name());
    update_ops_.push_back(WithRole(std::move(op), v1::OPTIMIZE, &pair));
  }

  void AddScheduleOp(v1::OpDesc op) { schedule_ops_.push_back(WithRole(std::move(op), v1::LR_SCHEDULE)); }

  // Returns the index of a table in the job; -1 for other parameters.
  int TableIndex(const std::string& param) const {
    for (int i = 0; i < job_.config.table_size(); ++i) {
      if (job_.config.table(i).name() == param) return i;
    }
    return -1;
  }

  absl::StatusOr<Updater*> UpdaterOf(const std::string& param, const Part& part) {
    const int table = TableIndex(param);
    const bool of_segment = part.segment != nullptr && part.segment->has_optimizer();
    const bool own = of_segment || (table >= 0 && job_.config.table(table).has_optimizer());
    const std::string learning_rate = of_segment ? absl::StrCat(param, ".", part.index, ".learning_rate")
                                      : own      ? param + ".learning_rate"
                                                 : "learning_rate";
    const auto found = updaters_.find(learning_rate);
    if (found != updaters_.end()) return &found->second;
    if (!own && !job_.config.has_optimizer()) {
      return job_.positions.Error("", absl::StrCat("the job has no optimizer for parameter '", param, "'"));
    }
    const std::string path = of_segment ? absl::StrCat("table[", table, "].segment[", part.index, "].optimizer")
                             : own      ? absl::StrCat("table[", table, "].optimizer")
                                        : "optimizer";
    const v1::Optimizer& optimizer = of_segment ? part.segment->optimizer()
                                     : own      ? job_.config.table(table).optimizer()
                                                : job_.config.optimizer();
    const Setting at(&optimizer, path, &job_.positions);
    ASSIGN_OR_RETURN(UpdateSettings settings, UpdateSettings::Make(at));
    const absl::StatusOr<const OpDef*> def = OpRegistry::Global().Get(settings.rule().op_type);
    if (!def.ok()) return at.Error("", absl::StrCat("makes the operator ", std::string(def.status().message())));
    if (!(*def)->is_optimizer) {
      return at.Error("", absl::StrCat("makes the operator ", settings.rule().op_type, ", which is no update"));
    }
    Updater updater{
        .settings = std::move(settings), .def = *def, .learning_rate = learning_rate, .path = path, .scheduled = ""};
    RETURN_IF_ERROR(AppendSchedule(&updater));
    return &updaters_.emplace(learning_rate, std::move(updater)).first->second;
  }

  // Appends the ops from the step to the rate in float64.
  absl::Status AppendSchedule(Updater* updater) {
    for (const ScheduleOp& op : updater->settings.schedule()) {
      if (!vars_.Contains(kStepCounter)) RETURN_IF_ERROR(AddVar(ConstantVar(kStepCounter, {1}, 0, v1::INT64)));
      const std::string out = updater->learning_rate + (updater->scheduled.empty() ? ".schedule" : ".warm_up");
      RETURN_IF_ERROR(AddVar(StepVar(out, {1}, v1::FLOAT64)));
      std::vector<std::pair<std::string, std::vector<std::string>>> inputs = {{"Step", {kStepCounter}}};
      if (!updater->scheduled.empty()) inputs.push_back({"X", {updater->scheduled}});
      AddScheduleOp(MakeOp(op.type, inputs, {{"Out", {out}}}, op.attrs));
      updater->scheduled = out;
    }
    return absl::OkStatus();
  }

  // Returns the variable with the learning rate times `factor`.
  absl::StatusOr<std::string> LearningRate(Updater* updater, double factor) {
    const auto known = updater->rates.find(factor);
    if (known != updater->rates.end()) return known->second;
    const std::string name =
        factor == 1 ? updater->learning_rate : absl::StrCat(updater->learning_rate, ".x", NumberName(factor));
    RETURN_IF_ERROR(AddVar(ConstantVar(name, {1}, updater->settings.rule().learning_rate * factor)));
    if (!updater->scheduled.empty()) {
      AddScheduleOp(MakeOp("lr_rate", {{"X", {updater->scheduled}}}, {{"Out", {name}}}, {AttrF("factor", factor)}));
    }
    updater->rates[factor] = name;
    return name;
  }

  absl::Status AddVar(const v1::VarDesc& var) {
    if (vars_.Contains(var.name())) {
      return job_.positions.Error(
          "", absl::StrCat("the optimizer needs a variable '", var.name(), "', but a layer or the data has that name"));
    }
    v1::VarDesc* added = block_->add_vars();
    *added = var;
    vars_.Add(*added);
    return absl::OkStatus();
  }

  absl::Status AddStates(const Updater& updater, const v1::VarDesc& param, bool by_row, v1::OpDesc* op) {
    const AttrReader attrs(*op, *updater.def);
    std::vector<std::pair<std::string, std::string>> slots;
    for (const StateDef& state : updater.def->state) {
      const std::string name = StateName(param.name(), state.slot);
      std::vector<int64_t> dims = {1};
      if (state.like == StateDef::kParameter) dims.assign(param.dims().begin(), param.dims().end());
      if (state.like == StateDef::kCount && by_row) dims = {param.dims(0)};
      const double initial = state.initial_attr.empty() ? state.initial : attrs.Float(state.initial_attr);
      RETURN_IF_ERROR(AddVar(ConstantVar(name, dims, initial)));
      slots.emplace_back(state.slot, name);
    }
    for (const auto& [slot, name] : slots) {
      v1::OpSlot* input = op->add_inputs();
      input->set_name(slot);
      input->add_vars(name);
      v1::OpSlot* output = op->add_outputs();
      output->set_name(slot + "Out");
      output->add_vars(name);
    }
    return absl::OkStatus();
  }

  // Returns the setting at a path of the job.
  Setting At(std::string path) const { return Setting(&job_.config, std::move(path), &job_.positions); }

  // Returns the error `made`, if it is one, at the table's place in the job.
  absl::Status TableError(const std::string& table, const absl::Status& made) const {
    if (made.ok()) return absl::OkStatus();
    const int i = TableIndex(table);
    return job_.positions.Error(i < 0 ? "program" : absl::StrCat("table[", i, "]"),
                                absl::StrCat("table '", table, "': ", std::string(made.message())));
  }

  const Job& job_;
  v1::BlockDesc* const block_;
  VarIndex vars_;
  const std::map<std::string, RunningAverage> averages_;
  std::set<std::string> average_rates_;                      // variables, also of frozen parameters
  std::map<std::string, Updater> updaters_;                  // by learning rate variable; pointers into it stay
  std::map<std::string, std::vector<std::string>> updated_;  // parameters by learning rate variable
  std::vector<v1::OpDesc> schedule_ops_;
  std::vector<v1::OpDesc> update_ops_;
};

}  // namespace

absl::StatusOr<bool> AppendOptimizer(const Job& job, Programs* programs) {
  if (!UpdatedParameters(programs->main).empty()) {
    // A program that brings its updates must pass the check of the norms as well.
    std::vector<v1::OpDesc> updates;
    for (const v1::OpDesc& op : programs->main.blocks(0).ops()) {
      if (op.role() == v1::OPTIMIZE) updates.push_back(op);
    }
    RETURN_IF_ERROR(CheckNormsFit(job, updates));
    return false;
  }
  v1::BlockDesc* block = programs->main.mutable_blocks(0);
  std::map<std::string, v1::VarDesc> params;
  for (const v1::VarDesc& var : block->vars()) {
    if (var.is_parameter() && var.trainable()) params[var.name()] = var;
  }
  if (params.empty()) return job.positions.Error("model", "the model has no trainable parameter");
  absl::StatusOr<std::map<std::string, RunningAverage>> averages = RunningAveragesOf(programs->main);
  if (!averages.ok()) {
    return job.positions.Error(job.config.has_program() ? "program" : "model",
                               std::string(averages.status().message()));
  }
  Appender appender(job, block, *std::move(averages));
  for (const auto& [name, var] : params) RETURN_IF_ERROR(appender.Append(var));
  RETURN_IF_ERROR(appender.Finish());
  return true;
}

REGISTER_PASS(append_optimizer)
({.name = "append_optimizer", .run = AppendOptimizer, .phase = Phase::kSingleMachine, .after = "append_backward"});

}  // namespace weir
