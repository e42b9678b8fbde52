#include "transpiler/passes/fuse_lookups.h"

#include <algorithm>

#include "framework/graph/rewrite.h"

namespace weir {

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

}  // namespace weir
