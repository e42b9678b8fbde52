// Pass: applies the registered rewrites (framework/graph/rewrite.h), such as the one for look-ups that are joined in
// one matrix.
//
// Before: rows are prefetched, so look-ups are lookup_rows. After: each rewrite of the linked operators has run, in the
// order of their places. A rewrite is left out if train.cpu_ops names an operator that it would replace: the job wants
// that operator on the CPU. No errors; returns false if nothing was replaced.
#include <algorithm>

#include "framework/graph/rewrite.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

absl::StatusOr<bool> FuseLookups(const Job& job, Programs* programs) {
  const auto& cpu_ops = job.config.train().cpu_ops();
  bool changed = false;
  for (const Rewrite& rewrite : Rewrites()) {
    const auto replaced = [&](const std::string& op) {
      return std::find(rewrite.replaces.begin(), rewrite.replaces.end(), op) != rewrite.replaces.end();
    };
    if (std::any_of(cpu_ops.begin(), cpu_ops.end(), replaced)) continue;
    changed |= rewrite.run(&programs->main);
  }
  return changed;
}

REGISTER_PASS(fuse_lookups)
({.name = "fuse_lookups", .run = FuseLookups, .phase = Phase::kTrainer, .after = "prefetch_tables"});

}  // namespace
}  // namespace weir
