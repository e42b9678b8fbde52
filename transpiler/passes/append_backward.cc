// Pass: adds the gradients of every trainable parameter.
//
// Before: forward and losses. After: backward behind them (framework/graph/autodiff.h). Errors: a loss of a form that
// has no gradient per sample; a trainable parameter that no loss depends on, at the place of its layer or table.
// Returns false if the program already has backward ops.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/autodiff.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

// The table or layer that a parameter belongs to, as a path of the job.
std::string PathOf(const Job& job, const std::string& param) {
  for (int i = 0; i < job.config.table_size(); ++i) {
    if (job.config.table(i).name() == param) return absl::StrCat("table[", i, "]");
  }
  for (int i = 0; i < job.config.model().layer_size(); ++i) {
    if (param.starts_with(job.config.model().layer(i).name() + ".")) return absl::StrCat("model.layer[", i, "]");
  }
  return job.config.has_program() ? "program" : "model";
}

absl::StatusOr<bool> AppendGradients(const Job& job, Programs* programs) {
  for (const v1::OpDesc& op : programs->main.blocks(0).ops()) {
    if (op.role() == v1::BACKWARD) return false;
  }
  std::vector<std::string> without;
  const absl::Status appended = AppendBackward(&programs->main, &without);
  if (!appended.ok()) {
    return job.positions.Error(job.config.has_program() ? "program" : "model.loss[0]", std::string(appended.message()));
  }
  if (!without.empty()) {
    return job.positions.Error(PathOf(job, without[0]),
                               absl::StrCat("no loss depends on parameter '", without[0], "': it would never change"));
  }
  return true;
}

REGISTER_PASS(append_backward)
({.name = "append_backward", .run = AppendGradients, .phase = Phase::kSingleMachine, .after = "build_forward"});

}  // namespace
}  // namespace weir
