#include "transpiler/passes.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/verifier.h"
#include "transpiler/append_backward.h"
#include "transpiler/append_optimizer.h"
#include "transpiler/build_forward.h"
#include "transpiler/build_startup.h"
#include "transpiler/keep_updates.h"
#include "transpiler/place_blocks.h"
#include "transpiler/prefetch_tables.h"
#include "transpiler/receive_parameters.h"
#include "transpiler/send_gradients.h"
#include "transpiler/share_buffers.h"
#include "transpiler/slice_variables.h"

namespace weir {

const std::vector<Pass>& SingleMachinePasses() {
  static const auto* const passes = new std::vector<Pass>{{"build_forward", BuildForward},
                                                          {"append_backward", AppendGradients},
                                                          {"append_optimizer", AppendOptimizer},
                                                          {"build_startup", BuildStartup}};
  return *passes;
}

const std::vector<Pass>& PlacementPasses() {
  static const auto* const passes =
      new std::vector<Pass>{{"slice_variables", SliceVariables}, {"place_blocks", PlaceBlocks}};
  return *passes;
}

const std::vector<Pass>& TrainerPasses() {
  static const auto* const passes = new std::vector<Pass>{{"keep_updates", KeepUpdates},
                                                          {"prefetch_tables", PrefetchTables},
                                                          {"send_gradients", SendGradients},
                                                          {"receive_parameters", ReceiveParameters},
                                                          {"share_buffers", ShareBuffers}};
  return *passes;
}

absl::Status RunPasses(absl::Span<const Pass> passes, const Job& job, Programs* programs) {
  for (const Pass& pass : passes) {
    const absl::StatusOr<bool> changed = pass.run(job, programs);
    if (!changed.ok()) return changed.status();
    if (!*changed) continue;
    for (const v1::ProgramDesc* program : {&programs->main, &programs->startup}) {
      if (program->blocks_size() == 0) continue;
      const absl::Status verified = VerifyProgram(*program);
      if (!verified.ok()) {
        return absl::InternalError(absl::StrCat("after pass ", pass.name, ": ", verified.message()));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace weir
