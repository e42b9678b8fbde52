#include "framework/graph/running_averages.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/graph/def_use.h"
#include "framework/graph/op_registry.h"

namespace weir {
namespace {

std::map<std::string, RunningAveragesDef>& Registry() {
  static auto* const registry = new std::map<std::string, RunningAveragesDef>();
  return *registry;
}

bool IsForward(const v1::OpDesc& op) { return op.role() == v1::FORWARD || op.role() == v1::LOSS; }

}  // namespace

RunningAveragesRegistrar::RunningAveragesRegistrar(RunningAveragesDef def) {
  std::string op = def.op;
  Registry().emplace(std::move(op), std::move(def));
}

absl::StatusOr<std::map<std::string, RunningAverage>> RunningAveragesOf(const v1::ProgramDesc& program) {
  std::map<std::string, RunningAverage> found;
  if (program.blocks_size() == 0) return found;
  const v1::BlockDesc& block = program.blocks(0);
  for (const v1::OpDesc& op : block.ops()) {
    if (!IsForward(op)) continue;
    const auto def = Registry().find(op.type());
    const OpDef* const known = OpRegistry::Global().Find(op.type());
    for (const v1::OpSlot& slot : op.inputs()) {
      if (def == Registry().end() || known == nullptr || slot.vars_size() != 1) continue;
      const std::vector<std::string>& averages = def->second.inputs;
      if (std::find(averages.begin(), averages.end(), slot.name()) == averages.end()) continue;
      found[slot.vars(0)] = {.momentum = AttrReader(op, *known).Float(def->second.momentum), .op = op.type()};
    }
  }
  const DefUse uses(block);
  for (const auto& [name, average] : found) {
    const absl::Span<const int> readers = uses.Readers(name);
    const auto reads = std::count_if(readers.begin(), readers.end(), [&](int i) { return IsForward(block.ops(i)); });
    if (reads == 1) continue;
    return absl::InvalidArgumentError(absl::StrCat("'", name, "' is a running average of ", average.op, " and read ",
                                                   reads, " times: give each its own"));
  }
  return found;
}

}  // namespace weir
