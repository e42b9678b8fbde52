// Pass: checks train.freeze, and makes the tables that it names not trainable.
//
// Before: a forward program. After: distributed tables that are frozen get neither gradient nor update, and their rows
// are neither made nor removed. Of other parameters append_optimizer makes updates that change nothing. Error, with the
// pattern's place: a pattern that matches no parameter.
#include <string>

#include "absl/strings/str_cat.h"
#include "transpiler/job/job.h"
#include "transpiler/job/update_settings.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

absl::StatusOr<bool> FreezeParameters(const Job& job, Programs* programs) {
  bool changed = false;
  for (int i = 0; i < job.config.train().freeze_size(); ++i) {
    const std::string& pattern = job.config.train().freeze(i);
    bool matches = false;
    for (v1::VarDesc& var : *programs->main.mutable_blocks(0)->mutable_vars()) {
      if (!var.is_parameter() || !MatchesPattern(pattern, var.name())) continue;
      matches = true;
      if (!var.trainable() || var.kind() != v1::TABLE) continue;
      var.set_trainable(false);
      var.clear_lifecycle();
      changed = true;
    }
    if (matches) continue;
    const std::string path = absl::StrCat("train.freeze[", i, "]");
    return job.positions.Error(
        path,
        absl::StrCat(path, " '", pattern, "' matches no parameter and no table (transpile --print=single lists them)"));
  }
  return changed;
}

REGISTER_PASS(freeze_parameters)
({.name = "freeze_parameters",
  .run = FreezeParameters,
  .phase = Phase::kSingleMachine,
  .after = "keep_judged",
  .before = "append_backward"});

}  // namespace
}  // namespace weir
