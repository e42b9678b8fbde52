#include "framework/graph/norms_with_tables.h"

#include "framework/graph/op_view.h"

namespace weir {

std::set<std::string> NormsWithTables(const v1::ProgramDesc& main) {
  std::set<std::string> names;
  for (const v1::BlockDesc& block : main.blocks()) {
    for (const v1::OpDesc& op : block.ops()) {
      const v1::OpAttr* const with_tables = op.type() == "whole_norm" ? FindAttr(op, "with_tables") : nullptr;
      if (with_tables == nullptr || !with_tables->b()) continue;
      if (const v1::OpAttr* const name = FindAttr(op, "name"); name != nullptr) names.insert(name->s());
    }
  }
  return names;
}

}  // namespace weir
