#include "framework/graph/autodiff.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/graph/builder.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"

namespace weir {
namespace {

bool IsFloat(const v1::VarDesc& var) {
  return var.kind() != v1::IDS && (var.dtype() == v1::FLOAT32 || var.dtype() == v1::FLOAT64 ||
                                   var.dtype() == v1::FLOAT16 || var.dtype() == v1::BFLOAT16);
}

bool IsScalar(const v1::VarDesc& var) { return var.dims_size() == 0; }

bool IsPerSample(const v1::VarDesc& var) {
  return var.kind() == v1::DENSE && var.dims_size() >= 1 && var.dims(0) == -1 &&
         (var.dims_size() == 1 || (var.dims_size() == 2 && var.dims(1) == 1));
}

// State of one variable of the forward program.
struct VarState {
  const v1::VarDesc* desc = nullptr;
  // Index of the op that writes it; -1 for data and parameters.
  int producer = -1;
  int writers = 0;
  // Smallest index of an op that reads it; ops.size() if no op does.
  int first_use = 0;
  // True for a trainable parameter and for values computed from one.
  bool wants_gradient = false;
  // True for values computed from data.
  bool from_data = false;

  // Contributions to its gradient by place of use: (op, slot, position). The values are names in the emitted ops.
  std::map<std::tuple<int, int, int>, std::string> uses;
  // Name of its whole gradient once all uses are known; empty if it has none.
  std::string gradient;
};

class Backward {
 public:
  explicit Backward(const v1::ProgramDesc& program)
      : before_(program), block_(program.blocks(0)), index_(program), ops_(block_.ops_size()) {}

  absl::Status Run() {
    RETURN_IF_ERROR(Forward());
    if (before_.losses_size() == 0) return absl::InvalidArgumentError("the program has no loss to differentiate");
    RETURN_IF_ERROR(Seed());
    for (auto& [name, var] : vars_) {
      if (var.first_use == ops_) RETURN_IF_ERROR(Finish(&var));
    }
    for (int i = ops_ - 1; i >= 0; --i) {
      RETURN_IF_ERROR(Differentiate(i));
      // Variables that op i is the first to read have all their contributions now. Slots are walked in order, so that
      // the emitted program depends on the input program alone.
      for (const v1::OpSlot& slot : block_.ops(i).inputs()) {
        for (const std::string& name : slot.vars()) {
          VarState& var = vars_.at(name);
          if (var.first_use == i && var.gradient.empty()) RETURN_IF_ERROR(Finish(&var));
        }
      }
    }
    return absl::OkStatus();
  }

  // Appends the ops that Run has emitted.
  absl::Status Emit(v1::ProgramDesc* program) {
    Rename();
    MarkParameters();
    ProgramBuilder builder(program);
    for (v1::OpDesc& op : emitted_) {
      // The gradient of x is like x unless the op's rule says otherwise.
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          if (builder.FindVar(name) != nullptr) continue;
          v1::VarDesc desc;
          if (const auto like = like_.find(name); like != like_.end()) {
            // Rows of a table travel, and have gradients, as float32.
            desc.set_dtype(like->second->kind() == v1::TABLE ? v1::FLOAT32 : like->second->dtype());
            *desc.mutable_dims() = like->second->dims();
            desc.set_kind(like->second->kind() == v1::TABLE ? v1::SELECTED_ROWS : v1::DENSE);
          }
          desc.set_name(name);
          RETURN_IF_ERROR(Infer(op, builder, &desc));
          RETURN_IF_ERROR(builder.AddVar(std::move(desc)).status());
        }
      }
      RETURN_IF_ERROR(builder.AddOp(std::move(op)));
    }
    return absl::OkStatus();
  }

  std::vector<std::string> WithoutGradient() const {
    std::vector<std::string> names;
    for (const auto& [name, var] : vars_) {
      if (IsTrainable(*var.desc) && var.gradient.empty()) names.push_back(name);
    }
    return names;
  }

 private:
  static bool IsTrainable(const v1::VarDesc& var) {
    return var.is_parameter() && var.trainable() && !var.stop_gradient() && IsFloat(var);
  }

  std::string Place(int i) const { return OpPlace(0, i, block_.ops(i)); }

  // Fills in vars_ and defs_.
  absl::Status Forward() {
    for (const v1::VarDesc& desc : block_.vars()) {
      VarState& var = vars_[desc.name()];
      var.desc = &desc;
      var.first_use = ops_;
      var.wants_gradient = IsTrainable(desc);
      var.from_data = !desc.persistable();
    }
    const VarLookup find = index_.Lookup(0);
    for (int i = 0; i < ops_; ++i) {
      const v1::OpDesc& op = block_.ops(i);
      if (op.role() == v1::BACKWARD) {
        return absl::AlreadyExistsError(absl::StrCat(Place(i), ": the program has its backward ops already"));
      }
      const absl::StatusOr<const OpDef*> def = CheckSignature(op, find, /*outputs_may_be_new=*/false);
      if (!def.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(Place(i), ": ", def.status().message()));
      }
      defs_.push_back(*def);
      bool wants = false, from_data = false;
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          VarState& var = vars_.at(name);
          var.first_use = std::min(var.first_use, i);
          wants |= var.wants_gradient;
          from_data |= var.from_data;
        }
      }
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          VarState& var = vars_.at(name);
          var.producer = i;
          ++var.writers;
          var.from_data = from_data;
          var.wants_gradient = wants && !var.desc->stop_gradient() && IsFloat(*var.desc);
        }
      }
    }
    return absl::OkStatus();
  }

  absl::Status Seed() {
    for (int i = 0; i < before_.losses_size(); ++i) {
      const v1::LossDesc& loss = before_.losses(i);
      const std::string title = absl::StrCat("loss '", loss.name().empty() ? loss.var() : loss.name(), "'");
      const auto at = vars_.find(loss.var());
      if (at == vars_.end()) {
        return absl::InvalidArgumentError(absl::StrCat(title, ": variable '", loss.var(), "' is not declared"));
      }
      VarState& var = at->second;
      const bool scalar = IsScalar(*var.desc);
      if (scalar) {
        RETURN_IF_ERROR(CheckScalar(title, loss.var()));
      } else if (!IsPerSample(*var.desc)) {
        return absl::InvalidArgumentError(
            absl::StrCat(title, ": variable '", loss.var(), "' is ", DescribeVar(*var.desc),
                         "; a loss is [B, 1], the mean of one, or a weighted sum of such"));
      }
      if (!var.wants_gradient) {
        return absl::InvalidArgumentError(
            absl::StrCat(title, ": variable '", loss.var(), "' depends on no trainable parameter"));
      }
      const std::string seed = Fresh(loss.var());
      Append(MakeOp("fill_like_batch", {{"X", {loss.var()}}}, {{"Out", {seed}}},
                    {AttrF("value", loss.weight()), AttrB("scalar_times_batch", scalar)}));
      // Sorts behind every use by an op.
      var.uses.emplace(std::make_tuple(ops_, 0, i), seed);
    }
    return absl::OkStatus();
  }

  // Checks that a scalar loss is a mean of [B, 1], free of data, or a weighted sum of such scalars.
  absl::Status CheckScalar(const std::string& title, const std::string& name) const {
    std::vector<std::string> open = {name};
    std::set<std::string> done;
    while (!open.empty()) {
      const std::string current = open.back();
      open.pop_back();
      if (!done.insert(current).second) continue;
      const VarState& var = vars_.at(current);
      if (!var.from_data) continue;
      const auto refuse = [&](const std::string& why) {
        return absl::InvalidArgumentError(absl::StrCat(
            title, ": scalar '", current, "' ", why, "; a loss is [B, 1], the mean of one, or a weighted sum of such"));
      };
      if (var.producer < 0) return refuse("is data");
      const v1::OpDesc& op = block_.ops(var.producer);
      const LossForm form = defs_[static_cast<size_t>(var.producer)]->loss_form;
      if (form == LossForm::kOther) return refuse(absl::StrCat("is made by ", Place(var.producer)));
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& input : slot.vars()) {
          const v1::VarDesc& desc = *vars_.at(input).desc;
          if (form == LossForm::kWeightedSum && IsScalar(desc)) {
            open.push_back(input);
          } else if (form != LossForm::kMean || !IsPerSample(desc)) {
            return refuse(absl::StrCat("is made by ", Place(var.producer), " from '", input, "', ", DescribeVar(desc)));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // Emits the whole gradient of a variable whose uses have all been seen.
  absl::Status Finish(VarState* var) {
    if (var->uses.empty()) return absl::OkStatus();
    const std::string& name = var->desc->name();
    const std::string whole = GradName(name);
    if (index_.Find(0, whole) != nullptr) {
      return absl::AlreadyExistsError(absl::StrCat("variable '", whole, "' is declared already"));
    }
    if (var->uses.size() == 1) {
      renamed_[var->uses.begin()->second] = whole;
    } else {
      std::vector<std::string> terms;
      for (const auto& [place, term] : var->uses) {
        terms.push_back(term);
        renamed_[term] = absl::StrCat(whole, "@", terms.size() - 1);
      }
      // Fresh names cannot collide with another renaming.
      const std::string sum = Fresh(name);
      renamed_[sum] = whole;
      Append(MakeOp("sum", {{"X", std::move(terms)}}, {{"Out", {sum}}}));
    }
    var->gradient = whole;
    return absl::OkStatus();
  }

  // Returns a provisional name for one contribution to the gradient of `var`; Rename replaces it.
  std::string Fresh(const std::string& var) {
    std::string name = absl::StrCat("\n", fresh_++, "\n", var);
    like_name_[name] = var;
    return name;
  }

  class Context : public GradContext {
   public:
    Context(Backward* backward, int op) : backward_(*backward), at_(op) {}
    const v1::OpDesc& op() const override { return backward_.block_.ops(at_); }
    AttrReader attrs() const override { return AttrReader(op(), *backward_.defs_[static_cast<size_t>(at_)]); }
    std::string OutputGrad(std::string_view slot, int i) const override {
      const v1::OpSlot* found = Find(op().outputs(), slot, nullptr);
      if (found == nullptr || i >= found->vars_size()) return "";
      return backward_.vars_.at(found->vars(i)).gradient;
    }
    std::string InputGrad(std::string_view slot, int i) override {
      int slot_index = 0;
      const v1::OpSlot* found = Find(op().inputs(), slot, &slot_index);
      if (found == nullptr || i >= found->vars_size()) return "";
      VarState& var = backward_.vars_.at(found->vars(i));
      if (!var.wants_gradient) return "";
      const auto [use, fresh] = var.uses.try_emplace(std::make_tuple(at_, slot_index, i));
      if (fresh) {
        use->second = backward_.Fresh(var.desc->name());
        asked_.push_back(use->second);
      }
      return use->second;
    }
    const v1::VarDesc& Var(std::string_view name) const override { return *backward_.vars_.at(std::string(name)).desc; }
    const std::vector<std::string>& asked() const { return asked_; }

   private:
    static const v1::OpSlot* Find(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name,
                                  int* index) {
      for (int s = 0; s < slots.size(); ++s) {
        if (slots.Get(s).name() != name) continue;
        if (index != nullptr) *index = s;
        return &slots.Get(s);
      }
      return nullptr;
    }

    Backward& backward_;
    const int at_;
    std::vector<std::string> asked_;
  };

  absl::Status Differentiate(int i) {
    const v1::OpDesc& op = block_.ops(i);
    bool reached = false, wanted = false;
    for (const v1::OpSlot& slot : op.outputs()) {
      for (const std::string& name : slot.vars()) {
        const VarState& var = vars_.at(name);
        reached |= !var.gradient.empty();
        if (!var.gradient.empty() && var.writers > 1) {
          return absl::InvalidArgumentError(absl::StrCat(Place(i), ": variable '", name, "' is written by ",
                                                         var.writers, " ops; a gradient needs one"));
        }
      }
    }
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) wanted |= vars_.at(name).wants_gradient;
    }
    if (!reached || !wanted) return absl::OkStatus();
    const OpDef& def = *defs_[static_cast<size_t>(i)];
    if (!def.gradient) {
      return absl::InvalidArgumentError(absl::StrCat(
          Place(i),
          ": this op has no gradient, and a loss depends on a parameter through it; set stop_gradient on its output"));
    }
    Context context(this, i);
    absl::StatusOr<std::vector<v1::OpDesc>> ops = def.gradient(context);
    if (!ops.ok()) return absl::Status(ops.status().code(), absl::StrCat(Place(i), ": ", ops.status().message()));
    std::unordered_set<std::string> written;
    for (const v1::OpDesc& grad_op : *ops) {
      for (const v1::OpSlot& slot : grad_op.outputs()) written.insert(slot.vars().begin(), slot.vars().end());
    }
    for (const std::string& asked : context.asked()) {
      if (!written.contains(asked)) {
        return absl::InternalError(absl::StrCat(Place(i), ": its gradient rule asks for the gradient of '",
                                                like_name_.at(asked), "' and does not compute it"));
      }
    }
    for (v1::OpDesc& grad_op : *ops) Append(std::move(grad_op));
    return absl::OkStatus();
  }

  void Append(v1::OpDesc op) {
    op.set_role(v1::BACKWARD);
    emitted_.push_back(std::move(op));
  }

  // Replaces provisional names by the final names of gradients.
  void Rename() {
    const auto rename = [this](google::protobuf::RepeatedPtrField<v1::OpSlot>* slots) {
      for (v1::OpSlot& slot : *slots) {
        for (std::string& name : *slot.mutable_vars()) {
          const auto at = renamed_.find(name);
          if (at == renamed_.end()) continue;
          like_[at->second] = vars_.at(like_name_.at(name)).desc;
          name = at->second;
        }
      }
    };
    for (v1::OpDesc& op : emitted_) {
      rename(op.mutable_inputs());
      rename(op.mutable_outputs());
    }
  }

  void MarkParameters() {
    std::map<std::string, std::string> parameter_of;
    for (const auto& [name, var] : vars_) {
      if (IsTrainable(*var.desc) && !var.gradient.empty()) parameter_of[var.gradient] = name;
    }
    for (v1::OpDesc& op : emitted_) {
      for (const v1::OpSlot& slot : op.outputs()) {
        for (const std::string& name : slot.vars()) {
          const auto at = parameter_of.find(name);
          if (at == parameter_of.end()) continue;
          v1::ParamGrad* pair = op.add_param_grads();
          pair->set_param(at->second);
          pair->set_grad(name);
        }
      }
    }
  }

  // Applies the op's shape rule to one new output; the rule overrides the guess in `desc`.
  static absl::Status Infer(const v1::OpDesc& op, const ProgramBuilder& builder, v1::VarDesc* desc) {
    const VarLookup find = [&](std::string_view name) -> const v1::VarDesc* {
      return name == desc->name() ? desc : builder.FindVar(name);
    };
    // AddOp, which follows, reports errors of the signature and of the rule.
    const OpDef* def = OpRegistry::Global().Find(op.type());
    if (def == nullptr || !CheckSignature(op, builder_lookup(builder), /*outputs_may_be_new=*/true).ok()) {
      return absl::OkStatus();
    }
    const absl::StatusOr<std::vector<v1::VarDesc>> outputs = InferOutputs(op, *def, find);
    if (!outputs.ok()) return absl::OkStatus();
    for (const v1::VarDesc& output : *outputs) {
      if (output.name() == desc->name()) *desc = output;
    }
    return absl::OkStatus();
  }
  static VarLookup builder_lookup(const ProgramBuilder& builder) {
    return [&builder](std::string_view name) { return builder.FindVar(name); };
  }

  const v1::ProgramDesc& before_;
  const v1::BlockDesc& block_;
  const ProgramIndex index_;
  const int ops_;
  std::vector<const OpDef*> defs_;
  std::map<std::string, VarState> vars_;
  std::vector<v1::OpDesc> emitted_;
  int fresh_ = 0;
  // Keyed by provisional name: its forward variable, and its final name. Keyed by final name: the variable it
  // resembles.
  std::unordered_map<std::string, std::string> like_name_;
  std::unordered_map<std::string, std::string> renamed_;
  std::unordered_map<std::string, const v1::VarDesc*> like_;
};

}  // namespace

absl::Status AppendBackward(v1::ProgramDesc* program, std::vector<std::string>* without_gradient) {
  if (program->blocks_size() == 0) return absl::InvalidArgumentError("a program without blocks has no backward");
  v1::ProgramDesc after = *program;
  Backward backward(*program);
  RETURN_IF_ERROR(backward.Run());
  RETURN_IF_ERROR(backward.Emit(&after));
  if (without_gradient != nullptr) *without_gradient = backward.WithoutGradient();
  *program = std::move(after);
  return absl::OkStatus();
}

}  // namespace weir
