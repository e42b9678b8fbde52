// Pass: parameters and tables that train.freeze names keep their values.
//
// Before: a forward program. After: they are not trainable, as tables with trainable: false, so that they get neither a
// gradient nor an update; rows of a table are neither made nor removed. Error, with the pattern's place: a pattern that
// matches no parameter.
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
      if (!var.trainable()) continue;
      var.set_trainable(false);
      var.clear_lifecycle();
      changed = true;
    }
    if (matches) continue;
    const std::string path = absl::StrCat("train.freeze[", i, "]");
    return job.positions.Error(
        path, absl::StrCat(path, " '", pattern, "' matches no parameter and no table (transpile --print=single lists them)"));
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
