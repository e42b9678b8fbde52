#include "transpiler/receive_parameters.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"

namespace weir {
namespace {

struct Received {
  v1::ParamGrad pair;
  std::vector<std::string> blocks;
  std::vector<int64_t> servers;
};

// Dense parameters in placement order.
std::vector<Received> FromServers(const v1::Plan& plan) {
  std::vector<Received> all;
  for (const v1::PlacedBlock& block : plan.blocks()) {
    if (all.empty() || all.back().pair.param() != block.parameter()) {
      all.push_back({.pair = Pair(block.parameter(), block.gradient())});
    }
    all.back().blocks.push_back(block.name());
    all.back().servers.push_back(block.server());
  }
  return all;
}

void AppendReceives(const v1::Plan& plan, bool with_pairs, v1::BlockDesc* block) {
  const std::vector<Received> all = FromServers(plan);
  for (const Received& r : all) {
    *block->add_ops() = WithRole(MakeOp("recv", {}, {{"Out", r.blocks}},
                                        {AttrStrings("blocks", r.blocks), AttrInts("servers", r.servers)}),
                                 v1::RPC, with_pairs ? &r.pair : nullptr);
  }
  *block->add_ops() = WithRole(MakeOp("fetch_barrier", {}, {}, {AttrB("sync", plan.sync())}), v1::RPC);
  for (const Received& r : all) {
    if (r.blocks.size() == 1) continue;
    *block->add_ops() = WithRole(
        MakeOp("concat", {{"X", r.blocks}}, {{"Out", {r.pair.param()}}}, {AttrI("axis", 0)}), v1::DIST);
  }
}

}  // namespace

absl::StatusOr<bool> ReceiveParameters(const Job& job, Programs* programs) {
  v1::ProgramDesc* main = &programs->main;
  v1::ProgramDesc* startup = &programs->startup;
  for (const v1::OpDesc& op : main->blocks(0).ops()) {
    if (op.type() == "fetch_barrier") return false;
  }
  AppendReceives(main->plan(), /*with_pairs=*/true, main->mutable_blocks(0));
  DropUnusedVars(main);

  std::set<std::string> received;
  for (const v1::PlacedBlock& block : main->plan().blocks()) {
    received.insert(block.parameter());
    received.insert(block.name());
  }
  FilterOps(startup->mutable_blocks(0), [&](const v1::OpDesc& op) {
    const std::string out = OutputOf(op, "Out");
    return !received.contains(out) && FindVar(main->blocks(0), out) != nullptr;
  });
  for (const v1::VarDesc& var : main->blocks(0).vars()) {
    if (received.contains(var.name()) && FindVar(startup->blocks(0), var.name()) == nullptr) {
      *startup->mutable_blocks(0)->add_vars() = var;
    }
  }
  AppendReceives(main->plan(), /*with_pairs=*/false, startup->mutable_blocks(0));
  DropUnusedVars(startup);
  *startup->mutable_plan() = main->plan();
  main->set_name(absl::StrCat(job.config.name(), ".trainer.main"));
  startup->set_name(absl::StrCat(job.config.name(), ".trainer.startup"));
  return true;
}

}  // namespace weir
