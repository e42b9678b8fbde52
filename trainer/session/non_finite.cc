#include "trainer/session/non_finite.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"

namespace weir {
namespace {

// Returns whether a second run leaves the op out: ops that talk to servers, ops whose output only those read, and
// share_buffers. Everything from send_barrier on is left out too. prefetch stays, as its outputs need a writer, but
// does not run.
bool LeftOut(const v1::OpDesc& op) {
  return (op.role() == v1::RPC && op.type() != "prefetch") || op.type() == "shows" || op.type() == "share_buffers";
}

// Makes a deep copy.
void CopyVariable(const Variable& from, Variable* to) {
  *to = from;
  if (const Tensor* tensor = std::get_if<Tensor>(&from); tensor != nullptr && tensor->initialized()) {
    std::get<Tensor>(*to) = Tensor();
    std::get<Tensor>(*to).CopyFrom(*tensor);
  } else if (const SelectedRows* rows = std::get_if<SelectedRows>(&from);
             rows != nullptr && rows->values.initialized()) {
    std::get<SelectedRows>(*to).values = Tensor();
    std::get<SelectedRows>(*to).values.CopyFrom(rows->values);
  }
}

// The first number of a variable that is not finite.
struct BadNumber {
  int64_t element = 0;
  float value = 0;
};
std::optional<BadNumber> FindBad(const Variable* var) {
  const Tensor* tensor = var == nullptr ? nullptr : std::get_if<Tensor>(var);
  if (const SelectedRows* rows = var == nullptr ? nullptr : std::get_if<SelectedRows>(var)) tensor = &rows->values;
  if (tensor == nullptr || !tensor->initialized() || tensor->dtype() != v1::FLOAT32) return std::nullopt;
  const float* const values = tensor->data<float>();
  for (int64_t i = 0; i < tensor->size(); ++i) {
    if (!std::isfinite(values[i])) return BadNumber{.element = i, .value = values[i]};
  }
  return std::nullopt;
}

std::string Text(float value) { return std::isnan(value) ? "NaN" : value > 0 ? "inf" : "-inf"; }

class Trace {
 public:
  explicit Trace(const NonFiniteStep& step) : step_(step), block_(step.main->blocks(0)) {
    for (int i = 0; i < block_.ops_size(); ++i) {
      if (block_.ops(i).type() == "send_barrier") break;
      if (LeftOut(block_.ops(i))) continue;
      kept_.push_back(i);
      for (const v1::OpSlot& slot : block_.ops(i).outputs()) {
        for (const std::string& name : slot.vars()) writers_[name].push_back(i);
      }
    }
    for (const v1::VarDesc& var : block_.vars()) vars_[var.name()] = &var;
  }

  absl::Status RunAgain();
  std::string Follow() const;
  std::string Read() const;

 private:
  // Returns a variable of the step in `lane` of this process.
  const Variable* Value(int lane, const std::string& name) const {
    const auto desc = vars_.find(name);
    // Persistable variables have the values that the step has read, whatever the second run computes.
    if (desc != vars_.end() && desc->second->persistable()) return step_.scope->Find(name);
    return (again_ != nullptr ? again_.get() : step_.executor)->Find(lane, name);
  }
  // Returns the last op before `before` that writes it; -1 if there is none.
  int WriterBefore(const std::string& name, int before) const {
    const auto found = writers_.find(name);
    if (found == writers_.end()) return -1;
    const auto end = std::lower_bound(found->second.begin(), found->second.end(), before);
    return end == found->second.begin() ? -1 : *(end - 1);
  }
  std::string OpText(int index, const std::string& output) const;
  std::string InputText(int lane, const std::string& name, const BadNumber& bad) const;

  const NonFiniteStep& step_;
  const v1::BlockDesc& block_;
  std::vector<int> kept_;
  std::map<std::string, std::vector<int>> writers_;
  std::map<std::string, const v1::VarDesc*> vars_;
  Scope scope_;
  std::unique_ptr<Executor> again_;
};

absl::Status Trace::RunAgain() {
  v1::ProgramDesc program = *step_.main;
  program.mutable_blocks(0)->clear_ops();
  std::vector<std::string> fetch;
  for (const int i : kept_) *program.mutable_blocks(0)->add_ops() = block_.ops(i);
  for (const auto& [name, ops] : writers_) {
    if (const auto var = vars_.find(name); var != vars_.end() && !var->second->persistable()) fetch.push_back(name);
  }
  for (const auto& [name, var] : vars_) {
    const Variable* const value = var->persistable() ? step_.scope->Find(name) : nullptr;
    if (value != nullptr) CopyVariable(*value, scope_.FindOrCreate(name));
  }
  ASSIGN_OR_RETURN(again_, step_.make_executor(program, &scope_, fetch));
  const int lanes = static_cast<int>(step_.batch.size());
  std::set<std::string> given(step_.columns.begin(), step_.columns.end());
  for (const v1::OpDesc& op : program.blocks(0).ops()) {
    if (op.type() != "prefetch") continue;
    for (const v1::OpSlot& slot : op.outputs()) given.insert(slot.vars().begin(), slot.vars().end());
  }
  for (int lane = 0; lane < lanes; ++lane) {
    for (const std::string& name : given) {
      const Variable* const from = step_.executor->Find(lane, name);
      Variable* const to = again_->Find(lane, name);
      const bool shared = lane > 0 && to == again_->Find(0, name);
      if (from != nullptr && to != nullptr && !shared) CopyVariable(*from, to);
    }
  }
  StepContext context = step_.context;
  StepHealth health;
  context.rows = nullptr;
  context.channel = nullptr;
  context.outcome = nullptr;
  context.health = &health;
  const int ops = program.blocks(0).ops_size();
  for (int begin = 0; begin < ops;) {
    int end = begin;
    while (end < ops && program.blocks(0).ops(end).type() != "prefetch") ++end;
    RETURN_IF_ERROR(again_->RunOps(context, step_.batch, begin, end));
    begin = end;
    while (begin < ops && program.blocks(0).ops(begin).type() == "prefetch") ++begin;
  }
  return absl::OkStatus();
}

std::string Trace::OpText(int index, const std::string& output) const {
  std::string layer;
  for (const std::string& name : step_.layers) {
    const bool has = output == name || output.starts_with(name + ".") || output.starts_with(name + "@");
    if (has && name.size() > layer.size()) layer = name;
  }
  return absl::StrCat(block_.ops(index).type(), " (op ", index,
                      layer.empty() ? "" : absl::StrCat(", layer '", layer, "'"), ")");
}

std::string Trace::InputText(int lane, const std::string& name, const BadNumber& bad) const {
  const Variable& value = *Value(lane, name);
  if (std::find(step_.columns.begin(), step_.columns.end(), name) != step_.columns.end()) {
    const Tensor* const tensor = std::get_if<Tensor>(&value);
    const int64_t width =
        tensor == nullptr || tensor->rank() == 0 || tensor->dim(0) == 0 ? 1 : tensor->size() / tensor->dim(0);
    return absl::StrCat("it came with the data: '", name, "' is ", Text(bad.value), " in lane ",
                        step_.context.first_lane + lane, ", example ", bad.element / width, " of the batch, element ",
                        bad.element % width);
  }
  if (const SelectedRows* rows = std::get_if<SelectedRows>(&value); rows != nullptr && !rows->ids.empty()) {
    const int64_t width = std::max<int64_t>(1, rows->values.size() / static_cast<int64_t>(rows->ids.size()));
    std::string table = name;
    for (const int i : kept_) {
      const v1::OpDesc& op = block_.ops(i);
      if (op.type() != "prefetch") continue;
      const auto is_rows = [](const v1::OpSlot& slot) { return slot.name() == "Rows"; };
      const auto is_tables = [](const v1::OpAttr& attr) { return attr.name() == "row_tables"; };
      const auto slot = std::find_if(op.outputs().begin(), op.outputs().end(), is_rows);
      const auto attr = std::find_if(op.attrs().begin(), op.attrs().end(), is_tables);
      if (slot == op.outputs().end() || attr == op.attrs().end()) continue;
      for (int r = 0; r < std::min(slot->vars_size(), attr->strings().v_size()); ++r) {
        if (slot->vars(r) == name) table = attr->strings().v(r);
      }
    }
    return absl::StrCat("row ", rows->ids[static_cast<size_t>(bad.element / width)], " of '", table, "' was ",
                        Text(bad.value), " when the step began");
  }
  return absl::StrCat("'", name, "' was ", Text(bad.value), " when the step began, element ", bad.element);
}

std::string Trace::Follow() const {
  std::vector<std::string> begins;
  for (const v1::LossDesc& loss : step_.main->losses()) begins.push_back(loss.var());
  begins.push_back(step_.seen);
  int lane = 0;
  std::string at;
  std::optional<BadNumber> bad;
  for (const std::string& name : begins) {
    for (int l = 0; l < static_cast<int>(step_.batch.size()) && !bad.has_value(); ++l) {
      if (step_.batch[static_cast<size_t>(l)] == 0) continue;
      bad = FindBad(Value(l, name));
      if (bad.has_value()) {
        lane = l;
        at = name;
      }
    }
  }
  if (!bad.has_value()) {
    return absl::StrCat("the step's operators, run once more, leave '", step_.seen,
                        "' finite: what made it has moved since, as parameters of asynchronous training do");
  }
  // Each iteration moves to an earlier op.
  for (int before = block_.ops_size();;) {
    const int writer = WriterBefore(at, before);
    if (writer < 0 || block_.ops(writer).type() == "prefetch") return InputText(lane, at, *bad);
    std::string from;
    std::optional<BadNumber> there;
    int earliest = writer;
    for (const v1::OpSlot& slot : block_.ops(writer).inputs()) {
      for (const std::string& name : slot.vars()) {
        const int made = WriterBefore(name, writer);
        // A variable that has been overwritten since no longer has the value that this op read.
        if (made >= earliest || WriterBefore(name, block_.ops_size()) >= writer) continue;
        if (const std::optional<BadNumber> found = FindBad(Value(lane, name)); found.has_value()) {
          from = name;
          there = found;
          earliest = made;
        }
      }
    }
    if (!there.has_value()) {
      return absl::StrCat(OpText(writer, at), " made it: '", at, "' is ", Text(bad->value), " in lane ",
                          step_.context.first_lane + lane, ", element ", bad->element, ", from inputs that are finite");
    }
    at = from;
    bad = there;
    before = writer;
  }
}

std::string Trace::Read() const {
  for (const auto& [name, var] : vars_) {
    if (!var->persistable()) continue;
    if (const std::optional<BadNumber> bad = FindBad(step_.scope->Find(name))) return InputText(0, name, *bad);
  }
  for (const int i : kept_) {
    if (block_.ops(i).type() != "prefetch") continue;
    for (const v1::OpSlot& slot : block_.ops(i).outputs()) {
      for (const std::string& name : slot.vars()) {
        for (int lane = 0; lane < static_cast<int>(step_.batch.size()); ++lane) {
          if (step_.batch[static_cast<size_t>(lane)] == 0) continue;
          if (const std::optional<BadNumber> bad = FindBad(Value(lane, name))) return InputText(lane, name, *bad);
        }
      }
    }
  }
  return "";
}

}  // namespace

std::string WhatWasNonFinite(const NonFiniteStep& step) { return Trace(step).Read(); }

absl::StatusOr<std::string> WhereNonFinite(const NonFiniteStep& step) {
  Trace trace(step);
  RETURN_IF_ERROR(trace.RunAgain());
  return trace.Follow();
}

}  // namespace weir
