#include "framework/runtime/scope.h"

namespace weir {

Variable* Scope::Find(std::string_view name) {
  auto at = vars_.find(name);
  return at == vars_.end() ? nullptr : at->second.get();
}

const Variable* Scope::Find(std::string_view name) const {
  auto at = vars_.find(name);
  return at == vars_.end() ? nullptr : at->second.get();
}

Variable* Scope::FindOrCreate(std::string_view name) {
  auto at = vars_.lower_bound(name);
  if (at == vars_.end() || at->first != name) {
    at = vars_.emplace_hint(at, std::string(name), std::make_unique<Variable>());
  }
  return at->second.get();
}

}  // namespace weir
