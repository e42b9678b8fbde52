#include "framework/graph/loss_inputs.h"

#include <algorithm>
#include <set>

#include "framework/graph/loss_facts.h"
#include "framework/graph/op_view.h"

namespace weir {
namespace {

// Returns the variables that no op writes and from whose values `name` is computed, in order of first use: none for a
// constant. Returns `name` itself if a parameter takes part, or rows of a table, as it is no label of the data then.
std::vector<std::string> DataBehind(const v1::ProgramDesc& program, const std::string& name) {
  if (program.blocks_size() == 0) return {name};
  const v1::BlockDesc& block = program.blocks(0);
  std::set<std::string> persistable;
  for (const v1::VarDesc& var : block.vars()) {
    if (var.persistable()) persistable.insert(var.name());
  }
  std::vector<std::string> found, open = {name};
  std::set<std::string> seen = {name};
  while (!open.empty()) {
    const std::string current = open.back();
    open.pop_back();
    if (persistable.contains(current)) return {name};
    bool written = false;
    std::vector<std::string> sources;
    for (const v1::OpDesc& op : block.ops()) {
      if (!Writes(op, current) || Reads(op, current)) continue;
      // Rows of tables, that the trainer has fetched.
      if (op.role() == v1::RPC) return {name};
      written = true;
      // Takes the shape of its input alone: the label of a loss without one.
      if (op.type() == "fill_like_batch") continue;
      ForEachVar(op.inputs(), [&](const std::string& source) {
        if (seen.insert(source).second) sources.push_back(source);
      });
    }
    if (!written) found.push_back(current);
    open.insert(open.end(), sources.rbegin(), sources.rend());
  }
  return found;
}

}  // namespace

LossInputs LossInputsOf(const v1::ProgramDesc& program) {
  LossInputs inputs;
  const auto add = [&](const std::string& name, std::vector<std::string>* variables) {
    if (name.empty()) return;
    for (const std::string& source : DataBehind(program, name)) {
      if (std::find(variables->begin(), variables->end(), source) == variables->end()) variables->push_back(source);
    }
  };
  for (const v1::LossDesc& loss : program.losses()) {
    add(loss.label(), &inputs.required);
    add(loss.sample_weight(), &inputs.required);
  }
  const auto add_numbers = [&](bool required, std::vector<std::string>* variables) {
    if (program.blocks_size() == 0) return;
    for (const v1::OpDesc& op : program.blocks(0).ops()) {
      const LossFacts* const facts = LossFactsOf(op.type());
      if (facts == nullptr) continue;
      for (const LossFacts::Number& number : facts->numbers) {
        if (number.above_zero == required) add(InputOf(op, number.slot), variables);
      }
    }
  };
  add_numbers(/*required=*/true, &inputs.required);
  inputs.untransformed = inputs.required;
  add_numbers(/*required=*/false, &inputs.untransformed);
  return inputs;
}

}  // namespace weir
