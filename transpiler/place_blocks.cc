#include "transpiler/place_blocks.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/status_macros.h"
#include "framework/runtime/row_rule.h"
#include "transpiler/dispatchers/dispatcher.h"

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
  for (const v1::OpDesc& op : block.ops()) {
    if (op.role() != v1::OPTIMIZE || InputOf(op, "Param") != table.name() || InputOf(op, "LearningRate").empty()) continue;
    ASSIGN_OR_RETURN(const std::unique_ptr<RowRule> rule, RowRuleRegistry::Global().Make(op));
    return rule->state_width(static_cast<int>(table.dims(1)));
  }
  return 0;
}

absl::StatusOr<v1::PlacedTable> PlaceTable(const v1::BlockDesc& block, const v1::VarDesc& table) {
  v1::PlacedTable placed;
  placed.set_name(table.name());
  placed.set_width(static_cast<int32_t>(table.dims(1)));
  placed.set_logical_shards(table.logical_shards());
  ASSIGN_OR_RETURN(const int state_width, StateWidth(block, table));
  placed.set_state_width(state_width);
  placed.set_capacity(table.capacity());
  return placed;
}

}  // namespace

absl::StatusOr<bool> PlaceBlocks(const Job& job, Programs* programs) {
  CHECK(programs->main.has_plan()) << "slice first";
  v1::Plan* plan = programs->main.mutable_plan();
  bool placed = plan->blocks_size() > 0 || plan->tables_size() > 0;
  for (const v1::PlacedBlock& block : plan->blocks()) placed &= block.has_server();
  if (placed) return false;

  ASSIGN_OR_RETURN(const Kind kind, DispatcherOf(job));
  ASSIGN_OR_RETURN(const DispatcherRule* rule, DispatcherRegistry().Find(kind));
  const std::vector<v1::PlacedBlock> blocks(plan->blocks().begin(), plan->blocks().end());
  ASSIGN_OR_RETURN(const std::vector<int> servers, (*rule)(kind.setting.message(), blocks, plan->servers()));
  if (servers.size() != blocks.size()) {
    return kind.setting.Error("", absl::StrCat("placed ", servers.size(), " of ", blocks.size(), " blocks"));
  }
  for (int i = 0; i < plan->blocks_size(); ++i) {
    if (servers[i] < 0 || servers[i] >= plan->servers()) {
      return kind.setting.Error("", absl::StrCat("placed block '", blocks[i].name(), "' on server ", servers[i],
                                                 "; there are servers 0 to ", plan->servers() - 1));
    }
    plan->mutable_blocks(i)->set_server(servers[i]);
  }
  const v1::BlockDesc& block = programs->main.blocks(0);
  for (const v1::VarDesc& var : block.vars()) {
    if (var.kind() != v1::TABLE) continue;
    if (var.dims_size() != 2 || var.dims(1) < 1) {
      return absl::InvalidArgumentError(absl::StrCat("table '", var.name(), "' has the shape ", ShapeString(Dims(var)),
                                                     "; [-1, width] is needed"));
    }
    ASSIGN_OR_RETURN(*plan->add_tables(), PlaceTable(block, var));
    // Geo: the trainers keep the state.
    if (job.config.distribute().has_geo()) plan->mutable_tables()->rbegin()->set_state_width(0);
  }
  return true;
}

}  // namespace weir
