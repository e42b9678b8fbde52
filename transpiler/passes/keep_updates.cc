#include "transpiler/passes/keep_updates.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/infer.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/make_server_program.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

constexpr char kAddRate[] = "geo.learning_rate";

void AddMissingVars(const v1::BlockDesc& from, v1::BlockDesc* to) {
  for (const v1::VarDesc& var : from.vars()) {
    if (FindVar(*to, var.name()) == nullptr) *to->add_vars() = var;
  }
}

// Checks that a copy of geo can hold the tables.
absl::Status CheckTables(const Job& job, const v1::ProgramDesc& main) {
  for (const v1::VarDesc& var : main.blocks(0).vars()) {
    if (var.kind() != v1::TABLE || var.dtype() == v1::FLOAT32) continue;
    return job.positions.Error(
        "distribute.geo", absl::StrCat("distribute.geo contradicts table '", var.name(), "' of the program, which is ",
                                       DescribeVar(var), ": geo needs float32"));
  }
  return absl::OkStatus();
}

// Returns the program of one owner of everything that a trainer updates.
absl::StatusOr<Programs> OwnersProgram(const Job& job, const v1::ProgramDesc& main) {
  if (AllReduces(job.config.distribute())) return MakeServerProgram(job, main, kEveryTrainer);
  RETURN_IF_ERROR(CheckTables(job, main));
  v1::ProgramDesc single = main;
  single.mutable_plan()->set_servers(1);
  for (v1::PlacedBlock& block : *single.mutable_plan()->mutable_blocks()) block.set_server(0);
  return MakeServerProgram(job, single, 0);
}

}  // namespace

absl::StatusOr<bool> KeepUpdates(const Job& job, Programs* programs) {
  const v1::Distribute& distribute = job.config.distribute();
  if (!UpdatesCopies(distribute) && !AllReduces(distribute)) return false;
  if (programs->main.blocks_size() != 1) return false;
  ASSIGN_OR_RETURN(const Programs owner, OwnersProgram(job, programs->main));

  AddMissingVars(owner.main.blocks(0), programs->main.mutable_blocks(0));
  for (int b = 1; b < owner.main.blocks_size(); ++b) {
    v1::BlockDesc* const block = programs->main.add_blocks();
    *block = owner.main.blocks(b);
    // Variables of schedules are declared in block 0 already.
    block->clear_vars();
    for (const v1::VarDesc& var : owner.main.blocks(b).vars()) {
      if (FindVar(programs->main.blocks(0), var.name()) == nullptr) *block->add_vars() = var;
    }
  }
  AddMissingVars(owner.startup.blocks(0), programs->startup.mutable_blocks(0));
  v1::BlockDesc* const initial = programs->startup.add_blocks();
  initial->set_index(1);
  initial->set_parent(0);
  *initial->mutable_ops() = owner.startup.blocks(0).ops();
  return true;
}

v1::ProgramDesc ProgramOfServers(const Job& job, const v1::ProgramDesc& single) {
  v1::ProgramDesc program = single;
  if (!UpdatesCopies(job.config.distribute())) return program;
  v1::BlockDesc* const block = program.mutable_blocks(0);
  v1::VarDesc* const rate = block->add_vars();
  rate->set_name(kAddRate);
  rate->add_dims(1);
  rate->set_persistable(true);
  rate->mutable_initializer()->mutable_constant()->set_value(-1);
  google::protobuf::RepeatedPtrField<v1::OpDesc> ops;
  for (const v1::OpDesc& op : single.blocks(0).ops()) {
    if (op.role() == v1::LR_SCHEDULE) continue;
    if (op.role() != v1::OPTIMIZE) {
      *ops.Add() = op;
      continue;
    }
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    if (def == nullptr || !def->is_optimizer) continue;
    const std::string param = InputOf(op, "Param"), grad = InputOf(op, "Grad");
    const v1::ParamGrad pair = Pair(param, grad);
    *ops.Add() = WithRole(
        MakeOp("sgd", {{"Param", {param}}, {"Grad", {grad}}, {"LearningRate", {kAddRate}}}, {{"ParamOut", {param}}}),
        v1::OPTIMIZE, &pair);
  }
  block->mutable_ops()->Swap(&ops);
  return program;
}

REGISTER_PASS(keep_updates)
({.name = "keep_updates", .run = KeepUpdates, .phase = Phase::kTrainer});

}  // namespace weir
