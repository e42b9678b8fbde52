#include "transpiler/explain/traffic.h"

#include <algorithm>
#include <set>
#include <utility>

#include "framework/base/stable_hash.h"
#include "framework/graph/placement.h"
#include "transpiler/base/programs.h"
#include "transpiler/explain/attr_lists.h"
#include "transpiler/passes/share_buffers.h"

namespace weir {
namespace {

size_t Places(const SparseTarget& target, int servers) {
  return target.table ? static_cast<size_t>(servers) : target.blocks.size();
}

// Part of the rows of a target that a place has, when they are spread evenly.
double Share(const SparseTarget& target, int servers, size_t place) {
  if (!target.table) {
    const SparseTarget::Block& block = target.blocks[place];
    return target.rows == 0 ? 0
                            : static_cast<double>(block.row_end - block.row_begin) / static_cast<double>(target.rows);
  }
  // Shards s with ShardServer(s) == place.
  const auto begin = [&](size_t server) {
    return (static_cast<uint64_t>(server) * target.shards + static_cast<uint64_t>(servers) - 1) /
           static_cast<uint64_t>(servers);
  };
  return static_cast<double>(begin(place + 1) - begin(place)) / target.shards;
}

// At most this many rows there are.
double Limit(const SparseTarget& target, double rows) {
  const int64_t most = target.table ? target.capacity : target.rows;
  return most > 0 ? std::min(rows, static_cast<double>(most)) : rows;
}

// Look-ups whose gradients flow into `gradient`.
void TraceSources(const v1::BlockDesc& block, const std::string& gradient, std::set<std::string>* seen,
                  SparseTarget* target) {
  if (!seen->insert(gradient).second) return;
  for (const v1::OpDesc& op : block.ops()) {
    if (!Writes(op, gradient)) continue;
    SparseTarget::Source source;
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) {
        const v1::VarDesc* var = FindVar(block, name);
        if (var != nullptr && var->kind() == v1::IDS) {
          source.ids = name;
          source.slots = var->dims_size() > 1 ? var->dims(1) : 1;
        }
      }
    }
    if (source.ids.empty()) {
      for (const v1::OpSlot& slot : op.inputs()) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = FindVar(block, name);
          if (var != nullptr && var->kind() == v1::SELECTED_ROWS) TraceSources(block, name, seen, target);
        }
      }
      continue;
    }
    if (const v1::OpAttr* padding = FindAttr(op, "has_padding"); padding != nullptr && padding->b()) {
      const v1::OpAttr* id = FindAttr(op, "padding_id");
      source.has_padding = true;
      source.padding = id == nullptr ? 0 : id->i();
    }
    if (const v1::OpAttr* sequence = FindAttr(op, "sequence"); sequence != nullptr) source.sequence = sequence->i();
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& name : slot.vars()) {
        const v1::VarDesc* var = FindVar(block, name);
        target->with_step_rows |= var != nullptr && var->kind() == v1::SELECTED_ROWS;
      }
    }
    if (std::find(target->pushed_by.begin(), target->pushed_by.end(), source) == target->pushed_by.end()) {
      target->pushed_by.push_back(source);
    }
  }
}

}  // namespace

Traffic::Traffic(const v1::JobConfig& job, const v1::ProgramDesc& main) : job_(job), main_(main), plan_(main.plan()) {
  FindTargets();
}

void Traffic::FindTargets() {
  const v1::BlockDesc& block = main_.blocks(0);
  std::map<std::string, size_t> place;
  const auto target_of = [&](const std::string& parameter) -> SparseTarget& {
    const auto [at, fresh] = place.emplace(parameter, targets_.size());
    if (fresh) targets_.push_back({.parameter = parameter});
    return targets_[at->second];
  };
  for (const v1::OpDesc& op : block.ops()) {
    if (op.type() == "prefetch") {
      const std::vector<std::string> tables = Strings(op, "tables"), row_tables = Strings(op, "row_tables");
      const std::vector<int64_t> widths = Ints(op, "widths"), sequences = Ints(op, "sequences");
      for (size_t r = 0; r < row_tables.size() && r < widths.size(); ++r) {
        target_of(row_tables[r]).width = widths[r];
      }
      for (const v1::OpSlot& slot : op.inputs()) {
        for (int i = 0; slot.name() == "Ids" && i < slot.vars_size() && i < static_cast<int>(tables.size()); ++i) {
          const v1::VarDesc* ids = FindVar(block, slot.vars(i));
          target_of(tables[static_cast<size_t>(i)])
              .pulled_by.push_back(
                  {.ids = slot.vars(i),
                   .slots = ids != nullptr && ids->dims_size() > 1 ? ids->dims(1) : 1,
                   .sequence = i < static_cast<int>(sequences.size()) ? sequences[static_cast<size_t>(i)] : 0});
        }
      }
    }
    const v1::OpAttr* width = FindAttr(op, "width");
    const bool sends = op.type() == "send" || op.type() == "all_reduce" || op.type() == "local_gradient";
    if (!sends || width == nullptr || width->i() == 0 || op.param_grads().empty()) continue;
    SparseTarget& target = target_of(op.param_grads(0).param());
    target.width = width->i();
    target.gradient = op.param_grads(0).grad();
    std::set<std::string> seen;
    TraceSources(block, target.gradient, &seen, &target);
  }
  for (SparseTarget& target : targets_) {
    for (const v1::PlacedTable& table : plan_.tables()) {
      if (table.name() != target.parameter) continue;
      target.table = true;
      target.shards = static_cast<uint32_t>(table.logical_shards());
      target.capacity = table.capacity();
    }
    for (const v1::PlacedBlock& placed : plan_.blocks()) {
      if (placed.parameter() != target.parameter || target.table || placed.dims_size() == 0) continue;
      target.blocks.push_back({placed.name(), placed.server(), target.rows, target.rows + placed.dims(0)});
      target.rows += placed.dims(0);
    }
  }
}

int64_t Traffic::LaneIds(const std::vector<SparseTarget::Source>& sources) const {
  std::map<std::string, int64_t> slots;
  for (const SparseTarget::Source& source : sources) {
    int64_t& most = slots[source.ids];
    most = std::max(most, source.slots * std::max<int64_t>(1, source.sequence));
  }
  int64_t all = 0;
  for (const auto& [ids, count] : slots) all += count;
  return all * LaneBatch(plan_);
}

StepRows Traffic::RowsAtMost(const TrainerRange& trainers) const {
  const LaneRange lanes = LanesOf(plan_, trainers);
  const std::vector<LaneRange> nodes = AlignedNodes(lanes);
  StepRows rows;
  for (const SparseTarget& target : targets_) {
    TargetRows& of = rows[target.parameter];
    const double lane_pulled = static_cast<double>(LaneIds(target.pulled_by));
    const double lane_pushed = static_cast<double>(LaneIds(target.pushed_by) * batches());
    of.pulled.resize(static_cast<size_t>(batches()));
    const size_t places = Places(target, plan_.servers());
    of.distinct = Limit(target, (target.pulled_by.empty() ? lane_pushed : lane_pulled) * lanes.count);
    for (size_t p = 0; p < places; ++p) {
      const double share = Share(target, plan_.servers(), p);
      for (std::vector<double>& batch : of.pulled) batch.push_back(Limit(target, lane_pulled * lanes.count) * share);
      of.pushed.emplace_back();
      for (const LaneRange& node : nodes) of.pushed.back().push_back(Limit(target, lane_pushed * node.count) * share);
    }
    of.lane_rows.assign(static_cast<size_t>(lanes.count),
                        Limit(target, static_cast<double>(LaneIds(target.pushed_by))));
  }
  return rows;
}

StepRows Traffic::RowsOf(const TrainerRange& trainers, const StepIds& step) const {
  StepRows rows;
  for (const SparseTarget& target : targets_) {
    const StepIds::OfSender& ids = step.Of(target, trainers);
    TargetRows& of = rows[target.parameter];
    for (const DistinctIds& batch : ids.pulled) {
      of.pulled.push_back(batch.ByPlace(target, plan_.servers()));
      of.distinct = std::max(of.distinct, static_cast<double>(batch.count));
    }
    of.pushed.assign(Places(target, plan_.servers()), std::vector<double>(ids.pushed.size(), 0));
    for (size_t n = 0; n < ids.pushed.size(); ++n) {
      const std::vector<double> of_node = ids.pushed[n].ByPlace(target, plan_.servers());
      for (size_t p = 0; p < of_node.size(); ++p) of.pushed[p][n] = of_node[p];
    }
    of.lane_rows = ids.lane_rows;
    if (target.pulled_by.empty()) of.distinct = static_cast<double>(ids.distinct_pushed);
  }
  return rows;
}

std::vector<double> Traffic::UpdatedPlaces(const SparseTarget& target, const StepIds* step) const {
  const int servers = plan_.servers();
  if (step != nullptr) return step->Of(target).updated.ByPlace(target, servers);
  std::vector<double> updated(Places(target, servers), 0);
  const int lanes = std::max(1, plan_.lanes() == 0 ? plan_.trainers() : plan_.lanes());
  const double all = Limit(target, static_cast<double>(LaneIds(target.pushed_by)) * lanes * batches());
  for (size_t p = 0; p < updated.size(); ++p) updated[p] = all * Share(target, servers, p);
  return updated;
}

std::vector<double> Traffic::ByServer(const SparseTarget& target, const std::vector<double>& places) const {
  const auto servers = static_cast<size_t>(plan_.servers());
  std::vector<double> rows(servers + 1, 0);
  for (size_t p = 0; p < places.size(); ++p) {
    const int server = target.table ? static_cast<int>(p) : target.blocks[p].server;
    rows[server == kEveryTrainer ? servers : static_cast<size_t>(server)] += places[p];
  }
  return rows;
}

std::vector<ServerFlows> Traffic::Step(const TrainerRange& trainers, const StepRows& rows) const {
  return StepTraffic(job_, main_, targets_, trainers, rows).Flows(batches());
}

}  // namespace weir
