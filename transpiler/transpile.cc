#include "transpiler/transpile.h"

#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/verifier.h"
#include "transpiler/keep_updates.h"
#include "transpiler/make_server_program.h"
#include "transpiler/passes.h"

namespace weir {

absl::StatusOr<Programs> BuildSingleMachine(const Job& job) {
  Programs programs;
  RETURN_IF_ERROR(RunPasses(SingleMachinePasses(), job, &programs));
  return programs;
}

absl::StatusOr<Transpiled> Transpile(const Job& job) {
  Transpiled transpiled;
  transpiled.job_ = job;
  ASSIGN_OR_RETURN(transpiled.single_, BuildSingleMachine(job));
  RETURN_IF_ERROR(RunPasses(PlacementPasses(), job, &transpiled.single_));
  transpiled.plan_ = transpiled.single_.main.plan();
  transpiled.trainer_ = transpiled.single_;
  RETURN_IF_ERROR(RunPasses(TrainerPasses(), job, &transpiled.trainer_));
  return transpiled;
}

absl::StatusOr<Programs> Transpiled::Server(int server) const {
  if (server < 0 || server >= plan_.servers()) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no server ", server, "; distribute.servers is ", plan_.servers()));
  }
  const bool geo = job_.config.distribute().has_geo();
  ASSIGN_OR_RETURN(Programs programs,
                   MakeServerProgram(job_, geo ? WithDifferencesAdded(single_.main) : single_.main, server));
  for (const v1::ProgramDesc* program : {&programs.main, &programs.startup}) {
    const absl::Status verified = VerifyProgram(*program);
    if (!verified.ok()) {
      return absl::InternalError(absl::StrCat("program ", program->name(), ": ", verified.message()));
    }
  }
  return programs;
}

v1::ProgramDesc EvaluationProgram(const v1::ProgramDesc& trainer_main) {
  v1::ProgramDesc program = trainer_main;
  if (program.blocks_size() == 0) return program;
  FilterOps(program.mutable_blocks(0), [](const v1::OpDesc& op) {
    return op.role() == v1::FORWARD || op.role() == v1::LOSS || op.type() == "prefetch";
  });
  DropUnusedVars(&program);
  program.set_name(absl::StrCat(trainer_main.name(), ".evaluation"));
  return program;
}

}  // namespace weir
