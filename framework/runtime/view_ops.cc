#include "framework/runtime/view_ops.h"

#include <map>
#include <string>

#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/shared_buffers.h"

namespace weir {
namespace {

struct Writers {
  int count = 0;
  int first = -1;
};

}  // namespace

bool HasViews(const v1::OpDesc& op) {
  const OpDef* const def = OpRegistry::Global().Find(op.type());
  return def != nullptr && CanGiveViews(*def);
}

std::vector<int> ViewOps(const v1::BlockDesc& block, const std::function<bool(std::string_view)>& shares_buffer) {
  std::map<std::string_view, const v1::VarDesc*> vars;
  for (const v1::VarDesc& var : block.vars()) vars[var.name()] = &var;
  std::map<std::string_view, Writers> writers;
  for (int i = 0; i < block.ops_size(); ++i) {
    for (const v1::OpSlot& slot : block.ops(i).outputs()) {
      for (const std::string& var : slot.vars()) {
        Writers& of = writers[var];
        if (of.count++ == 0) of.first = i;
      }
    }
  }
  // Written once, by an op of lanes; the place of that op, or -1.
  const auto only_writer = [&](const std::string& name) {
    const auto var = vars.find(name);
    const auto found = writers.find(name);
    if (var == vars.end() || var->second->kind() != v1::DENSE || var->second->persistable() || shares_buffer(name))
      return -1;
    if (found == writers.end() || found->second.count != 1) return -1;
    const v1::OpDesc& op = block.ops(found->second.first);
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    return def != nullptr && def->scope == OpScope::kLane && op.role() != v1::DIST ? found->second.first : -1;
  };
  std::vector<int> ops;
  for (int i = 0; i < block.ops_size(); ++i) {
    const v1::OpDesc& op = block.ops(i);
    if (!HasViews(op)) continue;
    const InPlaceRule& rule = OpRegistry::Global().Find(op.type())->in_place[0];
    const std::string& whole = OnlyVar(op.inputs(), rule.input);
    const std::string& view = OnlyVar(op.outputs(), rule.output);
    if (whole.empty() || view.empty() || only_writer(view) != i) continue;
    const int made = only_writer(whole);
    if (made >= 0 && made < i) ops.push_back(i);
  }
  return ops;
}

}  // namespace weir
