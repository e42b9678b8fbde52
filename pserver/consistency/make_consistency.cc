#include "pserver/consistency/make_consistency.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/training_mode.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Modes by name, so that nothing depends on the order of registration.
std::map<std::string, ConsistencyMode>& Modes() {
  static auto* const modes = new std::map<std::string, ConsistencyMode>();
  return *modes;
}

}  // namespace

void RegisterConsistency(ConsistencyMode mode) {
  CHECK(mode.make != nullptr) << mode.name;
  for (const auto& [name, other] : Modes()) {
    CHECK(mode.chosen != nullptr || other.chosen != nullptr || mode.sync != other.sync)
        << mode.name << " and " << name << " are both for programs that choose none";
  }
  const std::string name = mode.name;
  CHECK(Modes().emplace(name, std::move(mode)).second) << name << " is registered twice";
}

absl::StatusOr<std::unique_ptr<Consistency>> MakeConsistency(bool sync, const v1::ProgramDesc& main,
                                                             Consistency::Options options, StepBook book) {
  const v1::TrainingMode mode = ModeOf(main);
  const v1::Plan& plan = main.plan();
  if (plan.has_sync() && plan.sync() != sync) {
    return absl::InvalidArgumentError(
        absl::StrCat("the program is ", plan.sync() ? "sync" : "async", ", the job is ", sync ? "sync" : "async"));
  }
  if (!sync && options.average_by_trainers) {
    return absl::InvalidArgumentError(
        "average BY_TRAINERS needs sync: in async no step has gradients of several trainers");
  }
  const ConsistencyMode *chosen = nullptr, *other = nullptr;
  for (const auto& [name, each] : Modes()) {
    if (each.sync != sync) continue;
    if (each.chosen == nullptr) {
      other = &each;
    } else if (each.chosen(plan, mode)) {
      if (chosen != nullptr) {
        return absl::InvalidArgumentError(absl::StrCat("the program chooses two consistency modes, ", chosen->name,
                                                       " and ", name, "; a job has one"));
      }
      chosen = &each;
    }
  }
  if (chosen == nullptr) chosen = other;
  CHECK(chosen != nullptr) << "no mode is registered for sync = " << sync;
  if (chosen->check != nullptr) RETURN_IF_ERROR(chosen->check(options));
  options.mode = chosen->name;
  options.facts = chosen->facts;
  options.staleness = mode.staleness();
  return chosen->make(std::move(options), std::move(book));
}

}  // namespace weir
