#include "transpiler/passes/make_replica_program.h"

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/op_view.h"
#include "framework/graph/placement.h"
#include "framework/graph/training_mode.h"
#include "google/protobuf/repeated_field.h"

namespace weir {
namespace {

using Blocks = google::protobuf::RepeatedField<int32_t>;

// Keeps the items for which `keep` returns true.
template <typename T, typename Keep>
void Filter(google::protobuf::RepeatedPtrField<T>* items, Keep keep) {
  google::protobuf::RepeatedPtrField<T> kept;
  for (T& item : *items) {
    if (keep(item)) *kept.Add() = std::move(item);
  }
  items->Swap(&kept);
}

// Leaves out what servers hold.
void KeepDense(v1::ProgramDesc* main) {
  Filter(main->mutable_blocks(0)->mutable_vars(), [](const v1::VarDesc& var) { return var.kind() != v1::TABLE; });
  Filter(main->mutable_plan()->mutable_blocks(),
         [](const v1::PlacedBlock& placed) { return placed.server() == kEveryTrainer; });
  main->mutable_plan()->clear_tables();
}

// Returns true if an optimizer of the block updates one of the parameters.
bool Updates(const v1::BlockDesc& block, const std::set<std::string>& parameters) {
  for (const v1::OpDesc& op : block.ops()) {
    const OpDef* const def = OpRegistry::Global().Find(op.type());
    if (def != nullptr && def->is_optimizer && parameters.contains(InputOf(op, "Param"))) return true;
  }
  return false;
}

void AddNames(const v1::BlockDesc& block, std::set<std::string>* names) {
  for (const v1::OpDesc& op : block.ops()) {
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      for (const v1::OpSlot& slot : *slots) names->insert(slot.vars().begin(), slot.vars().end());
    }
  }
}

bool WritesAny(const v1::OpDesc& op, const std::set<std::string>& names) {
  for (const v1::OpSlot& slot : op.outputs()) {
    for (const std::string& name : slot.vars()) {
      if (names.contains(name)) return true;
    }
  }
  return false;
}

// Leaves out what only other trainers update, so that it takes no memory. Returns the optimize blocks that stay.
Blocks KeepShare(int trainer, const v1::AllReduceMode& mode, Programs* programs) {
  v1::ProgramDesc* const main = &programs->main;
  std::set<std::string> own;
  Filter(main->mutable_plan()->mutable_blocks(), [&](const v1::PlacedBlock& placed) {
    return placed.trainer() == trainer && own.insert(placed.name()).second;
  });
  const auto exists = [main](int index) { return index >= 0 && index < main->blocks_size(); };
  std::set<std::string> needed = own;
  if (exists(mode.lr_block())) AddNames(main->blocks(mode.lr_block()), &needed);
  Blocks kept;
  for (const int32_t index : mode.blocks()) {
    // A block that does not exist is for others to report.
    if (exists(index) && !Updates(main->blocks(index), own)) {
      main->mutable_blocks(index)->clear_ops();
      continue;
    }
    if (exists(index)) AddNames(main->blocks(index), &needed);
    kept.Add(index);
  }
  if (programs->startup.blocks_size() < 2) return kept;
  Filter(programs->startup.mutable_blocks(1)->mutable_ops(),
         [&](const v1::OpDesc& op) { return WritesAny(op, needed); });
  return kept;
}

// Makes the programs those of a server.
absl::Status Serve(int server, const Blocks& blocks, int lr_block, Programs* programs) {
  v1::ProgramDesc &main = programs->main, &startup = programs->startup;
  if (startup.blocks_size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat("program ", main.name(),
                                                   ": its startup program has no block 1 with the initial values of "
                                                   "what the trainer updates"));
  }
  main.clear_mode();
  v1::Plan* const plan = main.mutable_plan();
  plan->set_servers(1);
  plan->set_trainers(1);
  for (v1::PlacedBlock& block : *plan->mutable_blocks()) block.set_server(server);
  v1::OpDesc serve =
      MakeOp("listen_and_serv", {}, {},
             {AttrI("server_id", server), AttrI("trainers", 1), AttrI("lanes", plan->lanes()),
              AttrB("sync", plan->sync()), AttrS("average", "samples"), AttrBlocks("optimize_blocks", blocks)});
  if (lr_block >= 0) *serve.add_attrs() = AttrBlock("lr_block", lr_block);
  main.mutable_blocks(0)->clear_ops();
  *main.mutable_blocks(0)->add_ops() = WithRole(std::move(serve), v1::RPC);
  startup.mutable_blocks(0)->mutable_ops()->Swap(startup.mutable_blocks(1)->mutable_ops());
  startup.mutable_blocks()->DeleteSubrange(1, startup.blocks_size() - 1);
  main.clear_losses();
  main.clear_kept();
  DropUnusedVars(&main);
  DropUnusedVars(&startup);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Programs> MakeReplicaProgram(const v1::ProgramDesc& main, const v1::ProgramDesc& startup, int trainer) {
  const v1::TrainingMode mode = ModeOf(main);
  Programs own = {.main = main, .startup = startup};
  if (mode.has_all_reduce()) {
    Blocks blocks = mode.all_reduce().blocks();
    KeepDense(&own.main);
    if (mode.all_reduce().sharded()) blocks = KeepShare(trainer, mode.all_reduce(), &own);
    // Without lanes every trainer is a leaf of the tree in which its rows are added.
    if (own.main.plan().lanes() == 0) own.main.mutable_plan()->set_lanes(main.plan().trainers());
    RETURN_IF_ERROR(Serve(main.plan().servers() + trainer, blocks, mode.all_reduce().lr_block(), &own));
    return own;
  }
  const v1::GeoMode& copy = mode.geo();
  if (copy.every_steps() < 1 || copy.blocks().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("program ", main.name(), ": the trainer updates nothing itself: it has neither the blocks of ",
                     "distribute.dense: ALL_REDUCE nor those of distribute.geo; servers do (--role=pserver)"));
  }
  RETURN_IF_ERROR(Serve(/*server=*/0, copy.blocks(), copy.lr_block(), &own));
  return own;
}

}  // namespace weir
