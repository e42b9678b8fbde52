#include "transpiler/split/transpile.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/graph/op_view.h"
#include "framework/graph/verifier.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/keep_updates.h"
#include "transpiler/passes/make_replica_program.h"
#include "transpiler/passes/make_server_program.h"
#include "transpiler/passes/passes.h"
#include "transpiler/verify/verify_plan.h"

namespace weir {

namespace {

// Servers make their pieces from whole variables and the plan; only trainers name those of the placed program.
void DropPieces(v1::BlockDesc* block) {
  google::protobuf::RepeatedPtrField<v1::VarDesc> whole;
  for (v1::VarDesc& var : *block->mutable_vars()) {
    if (!var.has_block_of()) *whole.Add() = std::move(var);
  }
  block->mutable_vars()->Swap(&whole);
}

}  // namespace

absl::StatusOr<Programs> BuildSingleMachine(const Job& job) {
  Programs programs;
  RETURN_IF_ERROR(RunPasses(SingleMachinePasses(), job, &programs));
  return programs;
}

absl::StatusOr<Programs> TranspileUntil(const Job& job, PassTrace* trace) {
  const std::vector<std::string> names = PassNames();
  if (std::find(names.begin(), names.end(), trace->stop_after) == names.end()) {
    const std::string near = NearestName(trace->stop_after, names);
    return absl::InvalidArgumentError(absl::StrCat("there is no pass '", trace->stop_after, "'",
                                                   near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)"),
                                                   "; passes are ", absl::StrJoin(names, ", ")));
  }
  Programs programs;
  for (const auto* passes : {&SingleMachinePasses(), &PlacementPasses(), &TrainerPasses()}) {
    RETURN_IF_ERROR(RunPasses(*passes, job, &programs, trace));
  }
  return programs;
}

absl::StatusOr<Transpiled> Transpile(const Job& job, PassTrace* trace) {
  Transpiled transpiled;
  transpiled.job_ = std::make_shared<const Job>(job);
  RETURN_IF_ERROR(RunPasses(SingleMachinePasses(), job, &transpiled.single_, trace));
  RETURN_IF_ERROR(RunPasses(PlacementPasses(), job, &transpiled.single_, trace));
  transpiled.trainer_ = transpiled.single_;
  DropPieces(transpiled.single_.main.mutable_blocks(0));
  RETURN_IF_ERROR(RunPasses(TrainerPasses(), job, &transpiled.trainer_, trace));
  const int servers = transpiled.plan().servers();
  for (int s = 0; s < (servers <= kWholeSetServers ? servers : 1); ++s) {
    ASSIGN_OR_RETURN(const Programs server, transpiled.Server(s));
    if (trace != nullptr) RETURN_IF_ERROR(DumpPrograms(absl::StrCat("make_server_program.server", s), server, trace));
  }
  return transpiled;
}

absl::StatusOr<Programs> Transpiled::Server(int server) const {
  if (server < 0 || server >= plan().servers()) {
    const std::string count = plan().servers_in_trainers()
                                  ? absl::StrCat("each of the ", plan().trainers(), " trainers has one")
                                  : absl::StrCat("distribute.servers is ", plan().servers());
    return absl::InvalidArgumentError(absl::StrCat("there is no server ", server, "; ", count));
  }
  ASSIGN_OR_RETURN(Programs programs, MakeServerProgram(*job_, ProgramOfServers(*job_, single_.main), server));
  const auto verify = [&]() -> absl::Status {
    RETURN_IF_ERROR(VerifyProgram(programs.main));
    RETURN_IF_ERROR(VerifyProgram(programs.startup));
    RETURN_IF_ERROR(VerifyServer(programs, server));
    const ServerSide side{.index = server, .programs = &programs};
    return VerifySet(trainer_, absl::MakeConstSpan(&side, 1));
  };
  const absl::Status verified = verify();
  if (verified.ok()) return programs;
  return absl::InternalError(absl::StrCat("after pass make_server_program, server ", server, ": ", verified.message()));
}

absl::StatusOr<Programs> Transpiled::Replica(int trainer) const {
  ASSIGN_OR_RETURN(Programs programs, MakeReplicaProgram(trainer_.main, trainer_.startup, trainer));
  for (const v1::ProgramDesc* program : {&programs.main, &programs.startup}) {
    const absl::Status verified = VerifyProgram(*program);
    if (verified.ok()) continue;
    return absl::InternalError(
        absl::StrCat("after pass make_replica_program, trainer ", trainer, ": ", verified.message()));
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

v1::ProgramDesc PredictionProgram(const v1::ProgramDesc& trainer_main, const std::string& prediction) {
  v1::ProgramDesc program = EvaluationProgram(trainer_main);
  if (program.blocks_size() == 0) return program;
  std::set<std::string> needed = {prediction};
  std::set<const v1::OpDesc*> kept;
  const auto& ops = program.blocks(0).ops();
  for (auto op = ops.rbegin(); op != ops.rend(); ++op) {
    const auto writes = [&](const std::string& name) { return Writes(*op, name); };
    if (op->type() != "prefetch" && std::none_of(needed.begin(), needed.end(), writes)) continue;
    kept.insert(&*op);
    for (const v1::OpSlot& slot : op->inputs()) needed.insert(slot.vars().begin(), slot.vars().end());
  }
  FilterOps(program.mutable_blocks(0), [&](const v1::OpDesc& op) { return kept.contains(&op); });
  DropUnusedVars(&program);
  program.set_name(absl::StrCat(trainer_main.name(), ".prediction"));
  return program;
}

}  // namespace weir
