#include "framework/graph/loss_facts.h"

#include <functional>
#include <map>

#include "glog/logging.h"

namespace weir {
namespace {

std::map<std::string, LossFacts, std::less<>>& Registry() {
  static auto* const registry = new std::map<std::string, LossFacts, std::less<>>;
  return *registry;
}

}  // namespace

void RegisterLossFacts(const std::string& kind, const LossFacts& facts) {
  std::vector<std::string> names = facts.other_ops;
  names.push_back(kind);
  for (const std::string& name : names) {
    CHECK(Registry().emplace(name, facts).second) << "two losses have facts of " << name;
  }
}

const LossFacts* LossFactsOf(std::string_view name) {
  const auto found = Registry().find(name);
  return found == Registry().end() ? nullptr : &found->second;
}

}  // namespace weir
