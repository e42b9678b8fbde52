#include "transpiler/start/program_elements.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/base/string_views.h"
#include "framework/graph/elements.h"
#include "glog/logging.h"

namespace weir {
namespace {

ElementAxes Places(const v1::VarDesc& var, int first_dim) {
  ElementAxes axes;
  for (int d = first_dim; d < var.dims_size(); ++d) {
    axes.push_back(AxisOf(var.name(), std::max<int64_t>(var.dims(d), 0)));
  }
  return axes;
}

bool Fits(const ElementAxes& axes, const v1::VarDesc& var, int first_dim) {
  if (static_cast<int>(axes.size()) != std::max(var.dims_size() - first_dim, 0)) return false;
  for (size_t d = 0; d < axes.size(); ++d) {
    const int64_t size = var.dims(static_cast<int>(d) + first_dim);
    if (size >= 0 && AxisSize(axes[d]) != size) return false;
  }
  return true;
}

const v1::OpSlot* FindSlot(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view name) {
  for (const v1::OpSlot& slot : slots) {
    if (slot.name() == name) return &slot;
  }
  return nullptr;
}

}  // namespace

class ProgramElements::Context : public ElementContext {
 public:
  Context(ProgramElements* program, Op* op) : program_(*program), op_(*op) {}
  const v1::OpDesc& op() const override { return *op_.op; }
  AttrReader attrs() const override { return AttrReader(*op_.op, *op_.def); }
  int InputCount(std::string_view slot) const override {
    const v1::OpSlot* const found = FindSlot(op().inputs(), slot);
    return found == nullptr ? 0 : found->vars_size();
  }
  int OutputCount(std::string_view slot) const override {
    const v1::OpSlot* const found = FindSlot(op().outputs(), slot);
    return found == nullptr ? 0 : found->vars_size();
  }
  const v1::VarDesc& Input(std::string_view slot, int i) const override { return Var(op().inputs(), slot, i); }
  const v1::VarDesc& Output(std::string_view slot, int i) const override { return Var(op().outputs(), slot, i); }
  const ElementAxes& Names(std::string_view slot, int i) const override {
    return program_.Variable(Input(slot, i).name());
  }
  void NameParameter(std::string_view slot, ElementAxes axes, int i) override {
    const v1::VarDesc& var = Input(slot, i);
    // One that several ops share has the names of the first.
    if (program_.parameters_.contains(var.name()) && Fits(axes, var, 0)) {
      program_.axes_.emplace(var.name(), std::move(axes));
    }
  }
  void NameOutput(std::string_view slot, ElementAxes axes, int i) override {
    const v1::VarDesc& var = Output(slot, i);
    if (Fits(axes, var, 1)) program_.axes_[var.name()] = std::move(axes);
  }
  void SetEffect(ElementEffect effect) override { op_.effect = effect; }
  void NotZeroOfZero() override { op_.zero_of_zero = false; }

 private:
  const v1::VarDesc& Var(const google::protobuf::RepeatedPtrField<v1::OpSlot>& slots, std::string_view slot,
                         int i) const {
    const v1::OpSlot* const found = FindSlot(slots, slot);
    CHECK(found != nullptr && i < found->vars_size()) << op().type() << " " << Av(slot);
    const v1::VarDesc* const var = program_.Find(found->vars(i));
    CHECK(var != nullptr) << found->vars(i);
    return *var;
  }

  ProgramElements& program_;
  Op& op_;
};

ProgramElements::ProgramElements(const v1::ProgramDesc& main, const std::map<std::string, ElementAxes>& data) {
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    vars_.emplace(var.name(), &var);
    if (var.is_parameter()) parameters_.emplace(var.name(), &var);
    const auto known = data.find(var.name());
    if (known != data.end() && Fits(known->second, var, 1)) axes_.emplace(var.name(), known->second);
  }
  for (const v1::OpDesc& op : main.blocks(0).ops()) {
    if (op.role() != v1::FORWARD && op.role() != v1::LOSS) continue;
    if (const OpDef* const def = OpRegistry::Global().Find(op.type()); def != nullptr) Add(op, *def);
  }
  for (const auto& [name, var] : parameters_) {
    // One that a rule has named has axes, and its place says nothing.
    if (!axes_.emplace(name, Places(*var, 0)).second) places_.erase(name);
  }
}

void ProgramElements::Add(const v1::OpDesc& op, const OpDef& def) {
  Op each{.op = &op, .def = &def, .effect = def.effect, .zero_of_zero = def.zero_of_zero};
  for (const v1::OpSlot& slot : op.inputs()) {
    for (const std::string& name : slot.vars()) {
      const v1::VarDesc* const var = Find(name);
      if (var == nullptr) continue;
      if (parameters_.contains(name)) {
        each.parameters.push_back(name);
        continue;
      }
      each.inputs.push_back(name);
      if (axes_.emplace(name, Places(*var, 1)).second || var->stop_gradient()) read_data_.insert(name);
    }
  }
  for (const v1::OpSlot& slot : op.outputs()) {
    for (const std::string& name : slot.vars()) each.outputs.push_back(name);
  }
  if (def.elements != nullptr) {
    Context context(this, &each);
    def.elements(context);
  }
  std::string reads = op.type();
  for (const std::string& name : each.inputs) {
    for (const ElementAxis& axis : Variable(name)) {
      absl::StrAppend(&reads, "|");
      for (const ElementRun& run : axis) absl::StrAppend(&reads, run.of, "[", run.first, "+", run.count, "]");
    }
  }
  const Place place{.type = op.type(), .reads = StableHash(reads)};
  for (const std::string& name : each.parameters) {
    if (Find(name)->kind() != v1::TABLE) places_.emplace(name, place);
  }
  for (const std::string& name : each.outputs) {
    const v1::VarDesc* const var = Find(name);
    if (var != nullptr && axes_.emplace(name, Places(*var, 1)).second) places_.emplace(name, place);
  }
  ops_.push_back(std::move(each));
}

const ElementAxes& ProgramElements::Parameter(std::string_view name) const { return Variable(name); }

const ElementAxes& ProgramElements::Variable(std::string_view name) const {
  const auto found = axes_.find(name);
  CHECK(found != axes_.end()) << Av(name);
  return found->second;
}

const v1::VarDesc* ProgramElements::Find(std::string_view name) const {
  const auto found = vars_.find(name);
  return found == vars_.end() ? nullptr : found->second;
}

}  // namespace weir
