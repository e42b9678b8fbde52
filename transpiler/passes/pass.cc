#include "transpiler/passes/pass.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "glog/logging.h"

namespace weir {
namespace {

struct Registry {
  std::vector<Pass> passes;
  bool closed = false;  // AllPasses has ordered them
};

Registry& TheRegistry() {
  static auto* const registry = new Registry();
  return *registry;
}

// Orders the passes of one phase.
class PhaseOrder {
 public:
  // Passes are of one phase and have different names.
  explicit PhaseOrder(std::map<std::string, Pass> passes) : left_(std::move(passes)) {
    for (const auto& [name, pass] : left_) {
      waits_for_[name];
      AddEdge(pass.after, name, name);
      AddEdge(name, pass.before, name);
    }
  }

  std::vector<Pass> Order() {
    std::vector<Pass> ordered;
    while (!left_.empty()) {
      const auto next = left_.find(OnlyFree());
      ordered.push_back(next->second);
      for (auto& [name, others] : waits_for_) others.erase(next->first);
      left_.erase(next);
    }
    return ordered;
  }

 private:
  // `by` says that `first` runs before `second`; either may be "", an end of the phase.
  void AddEdge(const std::string& first, const std::string& second, const std::string& by) {
    for (const std::string& name : {first, second}) {
      CHECK(name.empty() || left_.contains(name))
          << "pass " << by << " is placed beside " << name << ", which is no pass of its phase";
    }
    if (!first.empty() && !second.empty()) waits_for_[second].insert(first);
  }

  // Returns the one pass that waits for no other.
  std::string OnlyFree() const {
    std::string free;
    for (const auto& [name, pass] : left_) {
      if (!waits_for_.at(name).empty()) continue;
      CHECK(free.empty()) << "passes " << free << " and " << name
                          << " have the same place: give one of them the other as `after` or `before`";
      free = name;
    }
    CHECK(!free.empty()) << "passes wait for each other, among them " << left_.begin()->first;
    return free;
  }

  std::map<std::string, Pass> left_;
  std::map<std::string, std::set<std::string>> waits_for_;  // passes of left_
};

}  // namespace

std::vector<Pass> InOrder(const std::vector<Pass>& passes) {
  std::set<std::string> names;
  std::map<Phase, std::map<std::string, Pass>> phases;
  for (const Pass& pass : passes) {
    CHECK(names.insert(pass.name).second) << "pass " << pass.name << " is registered twice";
    CHECK(pass.run != nullptr) << "pass " << pass.name << " does nothing";
    phases[pass.phase].emplace(pass.name, pass);
  }
  std::vector<Pass> ordered;
  for (auto& [phase, of_phase] : phases) {
    for (const Pass& pass : PhaseOrder(std::move(of_phase)).Order()) ordered.push_back(pass);
  }
  return ordered;
}

const std::vector<Pass>& AllPasses() {
  static const auto* const passes = [] {
    TheRegistry().closed = true;
    return new std::vector<Pass>(InOrder(TheRegistry().passes));
  }();
  return *passes;
}

PassRegistrar::PassRegistrar(const Pass& pass) {
  CHECK(!TheRegistry().closed) << "pass " << pass.name << " is registered after the passes have been ordered";
  TheRegistry().passes.push_back(pass);
}

}  // namespace weir
