#include "framework/graph/var_index.h"

namespace weir {

const v1::VarDesc* FindVar(const v1::BlockDesc& block, std::string_view name) {
  for (const v1::VarDesc& var : block.vars()) {
    if (var.name() == name) return &var;
  }
  return nullptr;
}

v1::VarDesc* FindVar(v1::BlockDesc* block, std::string_view name) {
  return const_cast<v1::VarDesc*>(FindVar(static_cast<const v1::BlockDesc&>(*block), name));
}

VarIndex::VarIndex(const v1::BlockDesc& block) {
  vars_.reserve(static_cast<size_t>(block.vars_size()));
  for (const v1::VarDesc& var : block.vars()) Add(var);
}

}  // namespace weir
