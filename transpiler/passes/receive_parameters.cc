// Pass: makes trainers receive the new values of parameters from their servers.
//
// Before: a trainer's main program up to send_barrier, and the startup program of the single machine. After: both end
// with a recv per dense parameter in placement order (none for plan.fetched_rows), from its servers or from the
// trainer's own values, a fetch_barrier, and a concat per parameter that is cut; the startup program keeps the
// initialisers of variables that no server holds. Variables that nothing names any more are removed. Returns false if
// main has a fetch_barrier.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/def_use.h"
#include "framework/graph/op_registry.h"
#include "transpiler/base/programs.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

struct Received {
  v1::ParamGrad pair;
  std::vector<std::string> blocks;
  std::vector<int64_t> servers;
};

// Returns the parameters whose rows are fetched.
std::set<std::string> Fetched(const v1::Plan& plan) {
  std::set<std::string> fetched;
  for (const v1::FetchedRows& rows : plan.fetched_rows()) fetched.insert(rows.parameter());
  return fetched;
}

// Returns the dense parameters in placement order.
std::vector<Received> FromServers(const v1::Plan& plan) {
  const std::set<std::string> fetched = Fetched(plan);
  std::vector<Received> all;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (fetched.contains(block.parameter())) continue;
    if (all.empty() || all.back().pair.param() != block.parameter()) {
      all.push_back({.pair = Pair(block.parameter(), block.gradient())});
    }
    all.back().blocks.push_back(block.name());
    all.back().servers.push_back(block.server());
  }
  return all;
}

// Appends the receives to `block`, of the main program if `is_main`, else of the startup program.
void AppendReceives(const v1::Plan& plan, bool is_main, v1::BlockDesc* block) {
  const std::vector<Received> all = FromServers(plan);
  for (const Received& r : all) {
    *block->add_ops() = WithRole(
        MakeOp("recv", {}, {{"Out", r.blocks}}, {AttrStrings("blocks", r.blocks), AttrInts("servers", r.servers)}),
        v1::RPC, is_main ? &r.pair : nullptr);
  }
  *block->add_ops() = WithRole(MakeOp("fetch_barrier", {}, {}, {AttrB("sync", plan.sync())}), v1::RPC);
  for (const Received& r : all) {
    if (r.blocks.size() == 1) continue;
    *block->add_ops() =
        WithRole(MakeOp("concat", {{"X", r.blocks}}, {{"Out", {r.pair.param()}}}, {AttrI("axis", 0)}), v1::DIST);
  }
}

// Returns the blocks behind block 0, which update what the trainer holds itself.
OwnUpdates UpdatesIn(const v1::ProgramDesc& main) {
  OwnUpdates updates;
  for (const v1::BlockDesc& kept : main.blocks()) {
    if (kept.index() == 0 || kept.ops().empty()) continue;
    if (kept.ops(0).role() == v1::LR_SCHEDULE) {
      updates.lr_block = kept.index();
    } else {
      updates.blocks.push_back(kept.index());
    }
  }
  return updates;
}

absl::StatusOr<bool> ReceiveParameters(const Job& job, Programs* programs) {
  v1::ProgramDesc* main = &programs->main;
  v1::ProgramDesc* startup = &programs->startup;
  for (const v1::OpDesc& op : main->blocks(0).ops()) {
    if (op.type() == "fetch_barrier") return false;
  }
  AppendReceives(main->plan(), /*is_main=*/true, main->mutable_blocks(0));
  DropUnusedVars(main);

  const VarIndex in_startup(startup->blocks(0));
  const std::set<std::string> fetched = Fetched(main->plan());
  const DefUse uses(main->blocks(0));
  // Names of all parameters and blocks on the servers.
  std::set<std::string> received;
  for (const v1::PlacedBlock& block : main->plan().blocks()) {
    received.insert(block.parameter());
    received.insert(block.name());
  }
  FilterOps(startup->mutable_blocks(0), [&](const v1::OpDesc& op) {
    // Keeps initial values that the program itself reads; excludes states and learning rates of updates that a trainer
    // keeps.
    const std::string out = OutputOf(op, "Out");
    return !received.contains(out) && uses.IsNamed(out);
  });
  for (const v1::VarDesc& var : main->blocks(0).vars()) {
    if (received.contains(var.name()) && !fetched.contains(var.name()) && !in_startup.Contains(var.name())) {
      *startup->mutable_blocks(0)->add_vars() = var;
    }
  }
  AppendReceives(main->plan(), /*is_main=*/false, startup->mutable_blocks(0));
  DropUnusedVars(startup);
  const v1::Distribute& distribute = job.config.distribute();
  WriteModes(distribute, &JobMode::in_trainer, UpdatesIn(*main), main);
  WriteModes(distribute, &JobMode::in_startup, OwnUpdates(), startup);
  *startup->mutable_plan() = main->plan();
  main->set_name(absl::StrCat(job.config.name(), ".trainer.main"));
  startup->set_name(absl::StrCat(job.config.name(), ".trainer.startup"));
  return true;
}

REGISTER_PASS(receive_parameters)
({.name = "receive_parameters", .run = ReceiveParameters, .phase = Phase::kTrainer, .after = "send_gradients"});

}  // namespace
}  // namespace weir
