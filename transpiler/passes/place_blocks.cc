// Pass: gives every block its server and every table its shards.
//
// Before: a plan with blocks (SliceVariables). After: every block has a server, by distribute.assign, else by
// distribute.custom_dispatcher or split_method, or -1 if every trainer holds it (dense: ALL_REDUCE), and plan.tables
// holds the distributed tables in order of their variables. Errors: a dispatcher that answers for another number of
// blocks or names a server that does not exist; a row of assign that names a parameter, block or server that does not
// exist, or that places something another row has placed. whole_norm ops over what trainers and what servers update get
// the attribute `with_tables`. Returns false if every block already has a server.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/base/textproto.h"
#include "framework/graph/op_registry.h"
#include "framework/graph/placement.h"
#include "framework/graph/var_index.h"
#include "framework/runtime/table_update.h"
#include "transpiler/base/programs.h"
#include "transpiler/dispatchers/dispatcher.h"
#include "transpiler/job/corner.h"
#include "transpiler/job/job.h"
#include "transpiler/passes/block_costs.h"
#include "transpiler/passes/keep_updates.h"
#include "transpiler/passes/pass.h"

namespace weir {
namespace {

absl::StatusOr<Kind> DispatcherOf(const Job& job) {
  const v1::Distribute& distribute = job.config.distribute();
  const Setting at(&distribute, "distribute", &job.positions);
  if (distribute.has_custom_dispatcher()) return CustomKind(at, "custom_dispatcher");
  return Kind{.key = v1::Distribute::SplitMethod_Name(distribute.split_method()), .setting = at};
}

// Floats of optimizer state beside a row of the table; 0 when nothing updates it.
absl::StatusOr<int> StateWidth(const v1::BlockDesc& block, const v1::VarDesc& table) {
  std::vector<const v1::OpDesc*> ops;
  for (const v1::OpDesc& op : block.ops()) {
    const bool of_table = std::any_of(op.param_grads().begin(), op.param_grads().end(),
                                      [&](const v1::ParamGrad& pair) { return pair.param() == table.name(); });
    if (op.role() == v1::OPTIMIZE && of_table && HasRowForm(op)) ops.push_back(&op);
  }
  if (ops.empty()) return 0;
  ASSIGN_OR_RETURN(const TableUpdate update, MakeTableUpdate(table, /*seed=*/0, ops, nullptr));
  return update.rule->state_width(static_cast<int>(table.dims(1)));
}

// 4-byte words that the lifecycle keeps beside a row (pserver/tables/lifecycle_rules.h).
int LifecycleWords(const v1::VarDesc& table) {
  const v1::Lifecycle& lifecycle = table.lifecycle();
  const bool evicts = table.capacity() > 0 && lifecycle.when_full() != v1::Lifecycle::REFUSE;
  const bool counts = evicts && lifecycle.when_full() == v1::Lifecycle::EVICT_LEAST_FREQUENT && !lifecycle.has_click();
  return (counts ? 1 : 0) + (lifecycle.has_click() ? 2 : 0) +
         (lifecycle.ttl_steps() > 0 || evicts || lifecycle.tombstones() ? 1 : 0) +
         (lifecycle.ttl_seconds() > 0 ? 1 : 0);
}

absl::StatusOr<v1::PlacedTable> PlaceTable(const v1::BlockDesc& block, const v1::VarDesc& table) {
  v1::PlacedTable placed;
  placed.set_name(table.name());
  placed.set_width(static_cast<int32_t>(table.dims(1)));
  placed.set_logical_shards(table.logical_shards());
  ASSIGN_OR_RETURN(const int state_width, StateWidth(block, table));
  placed.set_state_width(state_width + LifecycleWords(table));
  placed.set_capacity(table.capacity());
  if (table.lifecycle().has_click()) placed.set_shows_and_clicks(true);
  return placed;
}

// Servers by distribute.assign; -1 where it says nothing.
absl::StatusOr<std::vector<int>> Assigned(const Job& job, const v1::Plan& plan) {
  const v1::Distribute& distribute = job.config.distribute();
  std::vector<int> servers(static_cast<size_t>(plan.blocks_size()), -1);
  if (distribute.assign_size() == 0) return servers;
  std::map<std::string, std::vector<int>> places;  // of the blocks of each parameter
  for (int i = 0; i < plan.blocks_size(); ++i) places[plan.blocks(i).parameter()].push_back(i);
  std::vector<int> by(servers.size(), -1);  // the row that placed it
  for (int i = 0; i < distribute.assign_size(); ++i) {
    const v1::Assignment& row = distribute.assign(i);
    const std::string path = absl::StrCat("assign[", i, "]");
    const Setting at(&distribute, "distribute", &job.positions);
    if (row.parameter().empty()) return at.Error(path, "names no parameter");
    const auto found = places.find(row.parameter());
    if (found == places.end()) {
      for (const v1::Table& table : job.config.table()) {
        if (table.name() != row.parameter() || !table.is_distributed()) continue;
        return at.Error(path + ".parameter", absl::StrCat("'", row.parameter(),
                                                          "' is a distributed table: its rows are "
                                                          "spread over all servers by shard"));
      }
      std::vector<std::string> names;
      names.reserve(places.size());
      for (const auto& [name, blocks] : places) names.push_back(name);
      const std::string near = NearestName(row.parameter(), names);
      return at.Error(path + ".parameter",
                      absl::StrCat("'", row.parameter(), "' is no parameter that servers hold",
                                   near.empty() ? "" : absl::StrCat(" (did you mean '", near, "'?)")));
    }
    const int blocks = static_cast<int>(found->second.size());
    if (row.has_block() && (row.block() < 0 || row.block() >= blocks)) {
      return at.Error(path + ".block", absl::StrCat("must be in [0, ", blocks, "), the blocks of '", row.parameter(),
                                                    "', got ", row.block()));
    }
    if (!row.has_server()) return at.Error(path, "names no server");
    if (row.server() < 0 || row.server() >= plan.servers()) {
      return at.Error(path + ".server", absl::StrCat("must be in [0, ", plan.servers(), "), got ", row.server()));
    }
    for (int b = row.has_block() ? row.block() : 0; b < (row.has_block() ? row.block() + 1 : blocks); ++b) {
      const size_t place = static_cast<size_t>(found->second[static_cast<size_t>(b)]);
      if (by[place] >= 0) {
        return at.Error(path, absl::StrCat("places block '", plan.blocks(static_cast<int>(place)).name(),
                                           "', which assign[", by[place], "] has placed"));
      }
      by[place] = i;
      servers[place] = row.server();
    }
  }
  return servers;
}

// Gives every block of the plan its server.
absl::Status ChooseServers(const Job& job, const v1::ProgramDesc& main, v1::Plan* plan) {
  if (AllReduces(job.config.distribute())) {
    for (v1::PlacedBlock& block : *plan->mutable_blocks()) block.set_server(kEveryTrainer);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Kind kind, DispatcherOf(job));
  ASSIGN_OR_RETURN(const DispatcherRule* rule, DispatcherRegistry().Find(kind));
  const std::vector<v1::PlacedBlock> blocks(plan->blocks().begin(), plan->blocks().end());
  const std::vector<BlockCost> costs = BlockCosts(main);
  ASSIGN_OR_RETURN(const std::vector<int> assigned, Assigned(job, *plan));
  const Placement placement{.blocks = blocks, .costs = costs, .assigned = assigned, .servers = plan->servers()};
  ASSIGN_OR_RETURN(const std::vector<int> servers, (*rule)(kind.setting.message(), placement));
  if (servers.size() != blocks.size()) {
    return kind.setting.Error("", absl::StrCat("placed ", servers.size(), " of ", blocks.size(), " blocks"));
  }
  for (int i = 0; i < plan->blocks_size(); ++i) {
    if (assigned[i] >= 0) {
      plan->mutable_blocks(i)->set_server(assigned[i]);
      continue;
    }
    if (servers[i] < 0 || servers[i] >= plan->servers()) {
      return kind.setting.Error("", absl::StrCat("placed block '", blocks[i].name(), "' on server ", servers[i],
                                                 "; there are servers 0 to ", plan->servers() - 1));
    }
    plan->mutable_blocks(i)->set_server(servers[i]);
  }
  return absl::OkStatus();
}

// Marks norms that cover dense parameters, which trainers update, and tables, which servers update (attribute
// `with_tables`). InvalidArgument: trainers that update by themselves.
absl::Status MarkNorms(const Job& job, v1::BlockDesc* block) {
  const VarIndex vars(*block);
  for (v1::OpDesc& op : *block->mutable_ops()) {
    if (op.type() != "whole_norm") continue;
    std::string table, dense;  // one of each kind, if there is any
    for (const v1::ParamGrad& pair : op.param_grads()) {
      (vars.Find(pair.param())->kind() == v1::TABLE ? table : dense) = pair.param();
    }
    if (table.empty() || dense.empty()) continue;
    if (job.config.distribute().has_local_sgd()) {
      return job.positions.Error(
          "distribute.local_sgd",
          absl::StrCat("contradicts a norm over both '", dense, "', which trainers update, and table '", table,
                       "', which servers update: give the table an optimizer with a clip of its own"));
    }
    *op.add_attrs() = AttrB("with_tables", true);
  }
  return absl::OkStatus();
}

bool IsLossy(const v1::Wire& wire) { return wire.pull() != v1::WIRE_FLOAT32 || wire.push() != v1::WIRE_FLOAT32; }

absl::StatusOr<bool> PlaceBlocks(const Job& job, Programs* programs) {
  CHECK(programs->main.has_plan()) << "slice first";
  v1::Plan* plan = programs->main.mutable_plan();
  bool placed = plan->blocks_size() > 0 || plan->tables_size() > 0;
  for (const v1::PlacedBlock& block : plan->blocks()) placed &= block.has_server();
  if (placed) return false;

  RETURN_IF_ERROR(ChooseServers(job, programs->main, plan));
  if (AllReduces(job.config.distribute())) RETURN_IF_ERROR(MarkNorms(job, programs->main.mutable_blocks(0)));
  if (IsLossy(job.config.distribute().wire())) *plan->mutable_wire() = job.config.distribute().wire();
  const v1::ProgramDesc on_servers = ProgramOfServers(job, programs->main);
  for (const v1::VarDesc& var : programs->main.blocks(0).vars()) {
    if (var.kind() != v1::TABLE) continue;
    if (var.dims_size() != 2 || var.dims(1) < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("table '", var.name(), "' has the shape ", ShapeString(Dims(var)), "; [-1, width] is needed"));
    }
    ASSIGN_OR_RETURN(*plan->add_tables(), PlaceTable(on_servers.blocks(0), var));
    // The table's own word, or that of all.
    const auto& tables = job.config.table();
    const auto own = std::find_if(tables.begin(), tables.end(), [&](const v1::Table& table) {
      return table.name() == var.name() && table.has_wire();
    });
    const v1::Wire& wire = own != tables.end() ? own->wire() : job.config.distribute().wire();
    if (IsLossy(wire)) *plan->mutable_tables()->rbegin()->mutable_wire() = wire;
  }
  return true;
}

REGISTER_PASS(place_blocks)
({.name = "place_blocks", .run = PlaceBlocks, .phase = Phase::kPlacement, .after = "choose_fetch"});

}  // namespace
}  // namespace weir
