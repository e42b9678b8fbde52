#include "transpiler/explain/cluster_model.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "framework/graph/norms_with_tables.h"
#include "framework/graph/placement.h"
#include "framework/graph/shared_buffers.h"
#include "framework/graph/training_mode.h"
#include "framework/runtime/lane_tree.h"
#include "transpiler/job/job.h"
#include "transpiler/job/modes.h"
#include "transpiler/passes/share_buffers.h"

namespace weir {
namespace {

bool SameDims(const v1::VarDesc& a, const v1::VarDesc& b) {
  return std::equal(a.dims().begin(), a.dims().end(), b.dims().begin(), b.dims().end());
}

int64_t Elements(absl::Span<const int64_t> dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= std::max<int64_t>(d, 1);
  return n;
}

absl::Span<const int64_t> DimsOf(const v1::PlacedBlock& placed) {
  return absl::MakeConstSpan(placed.dims().data(), static_cast<size_t>(placed.dims_size()));
}

// Returns the floats of a row.
int64_t WidthOf(absl::Span<const int64_t> dims) { return dims.size() < 2 ? 1 : Elements(dims.subspan(1)); }

// Returns the cost of one run of an operator with the given variables instead of the program's.
Cost CostWith(const v1::OpDesc& op, const OpDef& def, const std::map<std::string, v1::VarDesc, std::less<>>& vars,
              const ProgramIndex& index, int64_t batch) {
  return CostOf(
      op, def,
      [&](std::string_view name) -> const v1::VarDesc* {
        const auto own = vars.find(name);
        return own == vars.end() ? index.Find(0, name) : &own->second;
      },
      batch);
}

// Returns whether the output of the op may be a view of its input, which an op has written to memory of its own (an
// executor checks more).
bool GivesView(const v1::OpDesc& op, const OpDef& def, const std::set<std::string>& written,
               const std::map<std::string, int64_t, std::less<>>& shared) {
  if (!CanGiveViews(def)) return false;
  const std::string whole = InputOf(op, def.in_place[0].input), view = OutputOf(op, def.in_place[0].output);
  return written.contains(whole) && !shared.contains(whole) && !shared.contains(view);
}

// Returns the largest value over the mean; 1 if there is nothing to compare.
double MaxOverMean(const std::vector<double>& values) {
  double sum = 0, most = 0;
  for (const double v : values) {
    sum += v;
    most = std::max(most, v);
  }
  return sum <= 0 ? 1 : most * static_cast<double>(values.size()) / sum;
}

}  // namespace

ClusterModel::ClusterModel(const v1::JobConfig& job, const Link& link, Programs single, Programs trainer,
                           Merging merging)
    : job_(job),
      link_(link),
      single_(std::move(single)),
      trainer_(std::move(trainer)),
      merging_(merging),
      traffic_(job_, trainer_.main),
      single_index_(single_.main),
      trainer_index_(trainer_.main),
      server_flows_(static_cast<size_t>(plan().servers())) {
  for (const v1::OpDesc& op : single_.main.blocks(0).ops()) {
    if (op.role() != v1::OPTIMIZE) continue;
    const OpDef* def = OpRegistry::Global().Find(op.type());
    std::set<std::string> params;
    for (const v1::ParamGrad& pair : op.param_grads()) params.insert(pair.param());
    for (const std::string& param : params) {
      if (def != nullptr) updates_[param].push_back({op, def});
    }
  }
  for (int t = 0; t < plan().trainers(); ++t) {
    const LaneRange lanes = LanesOfTrainer(plan().lanes(), plan().trainers(), t);
    const auto same = [&](const Group& group) {
      const LaneRange first = LanesOfTrainer(plan().lanes(), plan().trainers(), group.first);
      return first.count == lanes.count && AlignedNodes(first).size() == AlignedNodes(lanes).size();
    };
    if (groups_.empty() || !same(groups_.back())) groups_.push_back({.first = t, .lanes = lanes.count});
    ++groups_.back().count;
  }
  if (merging_.servers > 1) FindHosts();
  if (!ModeOf(trainer_.main).has_all_reduce()) return;
  int64_t elements = 0;
  for (const v1::PlacedBlock& placed : plan().blocks()) {
    const BlockState state = UpdatesOf(placed.parameter(), DimsOf(placed), /*grad_rows=*/-1);
    elements += placed.element_count() + state.bytes / kFloatBytes;
  }
  all_reduce_ = std::make_unique<AllReduceTraffic>(trainer_.main, elements, NormsWithTables(trainer_.main),
                                                   MovesByWire(job_.comm()));
  if (!ModeOf(trainer_.main).all_reduce().sharded()) return;
  const auto rounds = [this](const std::string& parameter) { return NormRounds(parameter); };
  sharded_ = std::make_unique<ShardedTraffic>(plan(), *all_reduce_, rounds, NormsWithTables(trainer_.main));
}

void ClusterModel::FindHosts() {
  const std::vector<TrainerRange> hosts = HostsOf(plan(), merging_.servers);
  for (size_t h = 0; h < hosts.size(); ++h) {
    const LaneRange lanes = LanesOf(plan(), hosts[h]);
    const auto same = [&](const HostGroup& group) {
      return group.trainers.count == hosts[h].count && group.lanes.count == lanes.count &&
             AlignedNodes(group.lanes).size() == AlignedNodes(lanes).size();
    };
    if (hosts_.empty() || !same(hosts_.back())) {
      hosts_.push_back({.trainers = hosts[h], .first = static_cast<int>(h), .lanes = lanes});
    }
    ++hosts_.back().count;
  }
}

void ClusterModel::AddHosts(const StepIds* input) {
  for (HostGroup& group : hosts_) {
    const int together = input == nullptr ? group.count : 1;
    for (int h = 0; h < group.count; h += together) {
      const TrainerRange host = {.first = group.trainers.first + h * merging_.servers, .count = group.trainers.count};
      const StepRows rows = input == nullptr ? traffic_.RowsAtMost(host) : traffic_.RowsOf(host, *input);
      const std::vector<ServerFlows> flows = traffic_.Step(host, rows);
      for (size_t s = 0; s < flows.size(); ++s) {
        group.flows += flows[s].Times(together);
        server_flows_[s] += flows[s].Times(together);
      }
    }
  }
}

void ClusterModel::AddStep(const StepIds* input) {
  ++steps_;
  for (Group& group : groups_) {
    // Without input, trainers of a group differ only in which server is their own.
    const int together = input == nullptr ? group.count : 1;
    for (int t = group.first; t < group.first + group.count; t += together) {
      const StepRows rows = input == nullptr ? traffic_.RowsAtMost({t}) : traffic_.RowsOf({t}, *input);
      const std::vector<ServerFlows> flows = traffic_.Step({t}, rows);
      for (size_t s = 0; s < flows.size(); ++s) {
        // Traffic of a trainer with its own server stays in the process.
        const int around = TrainerAround(plan(), static_cast<int>(s));
        const bool own = around >= t && around < t + together;
        const double times = together - (own ? 1 : 0);
        group.flows += flows[s].Times(times);
        // Trainers that merge reach the servers together.
        if (hosts_.empty()) server_flows_[s] += flows[s].Times(times);
      }
      AddExchange(&group, t, together, rows);
      for (const auto& [name, of] : rows) {
        TargetRows& peak = group.peak[name];
        peak.distinct = std::max(peak.distinct, of.distinct);
        peak.lane_rows.resize(of.lane_rows.size(), 0);
        for (size_t l = 0; l < of.lane_rows.size(); ++l)
          peak.lane_rows[l] = std::max(peak.lane_rows[l], of.lane_rows[l]);
      }
      if (input == nullptr) continue;
      for (const auto& [name, bytes] : input->id_bytes(t)) {
        group.id_bytes[name] = std::max(group.id_bytes[name], bytes);
      }
    }
  }
  AddHosts(input);
  AddUpdates(input);
}

void ClusterModel::AddExchange(Group* group, int first, int count, const StepRows& rows) {
  if (all_reduce_ == nullptr) return;
  if (sharded_ != nullptr) return sharded_->AddRows(first, count, rows);
  for (const AllReduceTraffic::Bucket& bucket : all_reduce_->buckets()) {
    if (bucket.width == 0) continue;
    const FlowSum sent = all_reduce_->RowsToOne(bucket, rows);
    group->row_exchange += sent.Times(count);
    row_bytes_[bucket.parameters[0]] += sent.bytes_out * count;
  }
}

void ClusterModel::AddUpdates(const StepIds* input) {
  std::map<std::string, double, std::less<>> blocks;
  for (const SparseTarget& target : traffic_.targets()) {
    const std::vector<double> places = traffic_.UpdatedPlaces(target, input);
    const std::vector<double> rows = traffic_.ByServer(target, places);
    std::vector<double>& sum = updated_[target.parameter];
    sum.resize(rows.size(), 0);
    for (size_t s = 0; s < rows.size(); ++s) sum[s] += rows[s];
    if (sharded_ == nullptr || target.table) continue;
    for (size_t p = 0; p < places.size(); ++p) blocks[target.blocks[p].name] = places[p];
  }
  if (sharded_ == nullptr) return;
  for (const auto& [name, rows] : blocks) updated_blocks_[name] += rows;
  sharded_->AddUpdates(blocks);
}

double ClusterModel::RowsOfStep(const std::string& parameter) const {
  const auto found = updated_.find(parameter);
  double sum = 0;
  if (found != updated_.end()) {
    for (const double rows : found->second) sum += rows;
  }
  return sum / static_cast<double>(std::max<int64_t>(1, steps_));
}

const v1::VarDesc* ClusterModel::SingleVar(const std::string& name) const { return single_index_.Find(0, name); }

ClusterModel::BlockState ClusterModel::UpdatesOf(const std::string& parameter, absl::Span<const int64_t> dims,
                                                 double grad_rows) const {
  BlockState state;
  const auto found = updates_.find(parameter);
  const v1::VarDesc* param = SingleVar(parameter);
  if (found == updates_.end() || param == nullptr) return state;
  const int64_t width = WidthOf(dims);
  bool merged = false;
  for (const Update& update : found->second) {
    const std::map<std::string, v1::VarDesc, std::less<>> vars = VarsOf(update.op, *param, dims, grad_rows);
    const auto& pairs = update.op.param_grads();
    const bool has_gradient =
        std::any_of(pairs.begin(), pairs.end(), [&](const v1::ParamGrad& pair) { return vars.contains(pair.grad()); });
    const Cost cost = CostWith(update.op, *update.def, vars, single_index_, 1);
    const double share = grad_rows >= 0 && grad_rows < 0.5 ? 0 : 1;
    state.flops += cost.flops * share;
    state.touched += cost.bytes * share;
    if (!merged && has_gradient) {
      merged = true;
      const double elements =
          grad_rows >= 0 ? grad_rows * static_cast<double>(width) : static_cast<double>(Elements(dims));
      state.flops += elements;  // the division by the samples
      state.touched += 2 * kFloatBytes * elements;
    }
    if (update.def->is_optimizer && param->kind() != v1::TABLE) state.bytes += StateBytes(update, *param, dims);
  }
  return state;
}

std::map<std::string, v1::VarDesc, std::less<>> ClusterModel::VarsOf(const v1::OpDesc& op, const v1::VarDesc& param,
                                                                     absl::Span<const int64_t> dims,
                                                                     double grad_rows) const {
  const auto set_rows = [&](v1::VarDesc* piece) {
    piece->clear_dims();
    piece->add_dims(std::max<int64_t>(1, std::llround(grad_rows)));
    piece->add_dims(WidthOf(dims));
  };
  std::map<std::string, v1::VarDesc, std::less<>> vars;
  const auto add = [&](const std::string& name) {
    const v1::VarDesc* whole = SingleVar(name);
    if (whole == nullptr) return;
    v1::VarDesc piece = *whole;
    const bool of_gradient = std::any_of(op.param_grads().begin(), op.param_grads().end(),
                                         [&](const v1::ParamGrad& pair) { return pair.grad() == name; });
    if (of_gradient && grad_rows >= 0) {
      set_rows(&piece);
    } else if (SameDims(*whole, param) && param.kind() != v1::TABLE) {
      piece.mutable_dims()->Clear();
      piece.mutable_dims()->Add(dims.begin(), dims.end());
    }
    if (param.kind() == v1::TABLE && name == param.name()) {
      piece.set_kind(v1::DENSE);
      set_rows(&piece);
    }
    vars[name] = std::move(piece);
  };
  ForEachVar(op.inputs(), add);
  ForEachVar(op.outputs(), add);
  return vars;
}

int64_t ClusterModel::StateBytes(const Update& update, const v1::VarDesc& param, absl::Span<const int64_t> dims) const {
  int64_t bytes = 0;
  for (const StateDef& def : update.def->state) {
    const v1::VarDesc* whole = SingleVar(InputOf(update.op, def.slot));
    if (whole == nullptr) continue;
    int64_t elements = 1;
    for (const int64_t d : whole->dims()) elements *= d;
    if (SameDims(*whole, param)) {
      elements = Elements(dims);
    } else if (def.like == StateDef::kCount && param.dims_size() > 0 && whole->dims_size() == 1 &&
               whole->dims(0) == param.dims(0) && whole->dims(0) > 1) {
      elements = dims[0];
    }
    bytes += elements * static_cast<int64_t>(DTypeSize(whole->dtype()));
  }
  return bytes;
}

double ClusterModel::GradientRows(const v1::PlacedBlock& placed) const {
  const auto updated = updated_.find(placed.parameter());
  if (!placed.sparse_gradient() || updated == updated_.end()) return -1;
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_));
  const auto own = updated_blocks_.find(placed.name());
  if (own != updated_blocks_.end()) return own->second / steps;
  int64_t on_server = 0;
  for (const v1::PlacedBlock& other : plan().blocks()) {
    if (other.parameter() == placed.parameter() && other.server() == placed.server())
      on_server += other.element_count();
  }
  return updated->second[OwnerIndex(placed.server())] / steps * static_cast<double>(placed.element_count()) /
         static_cast<double>(std::max<int64_t>(1, on_server));
}

size_t ClusterModel::OwnerIndex(int server) const {
  return server == kEveryTrainer ? server_flows_.size() : static_cast<size_t>(server);
}

std::vector<v1::ExplainedServer> ClusterModel::Servers() const {
  std::vector<v1::ExplainedServer> servers = Owners();
  servers.pop_back();
  return servers;
}

std::vector<v1::ExplainedServer> ClusterModel::Owners() const {
  std::vector<v1::ExplainedServer> servers(server_flows_.size() + 1);
  std::vector<std::set<std::string>> rates(servers.size());
  std::vector<double> flops(servers.size(), 0), touched(servers.size(), 0), rows(servers.size(), 0);
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_));
  const auto add_rates = [&](const std::string& parameter, size_t server) {
    const auto found = updates_.find(parameter);
    if (found == updates_.end()) return;
    for (const Update& update : found->second) rates[server].insert(InputOf(update.op, "LearningRate"));
  };
  for (const v1::PlacedBlock& placed : plan().blocks()) {
    const size_t s = OwnerIndex(placed.server());
    v1::ExplainedServer& server = servers[s];
    const double grad_rows = GradientRows(placed);
    const BlockState state = UpdatesOf(placed.parameter(), DimsOf(placed), grad_rows);
    v1::ExplainedBlock* block = server.add_block();
    block->set_name(placed.name());
    block->set_parameter(placed.parameter());
    *block->mutable_dims() = placed.dims();
    block->set_bytes(placed.element_count() * kFloatBytes);
    block->set_state_bytes(state.bytes);
    block->set_sparse_gradient(placed.sparse_gradient());
    if (placed.has_trainer()) block->set_trainer(placed.trainer());
    server.set_parameters(server.parameters() + placed.element_count());
    server.set_bytes_at_rest(server.bytes_at_rest() + block->bytes() + (placed.has_trainer() ? 0 : state.bytes));
    flops[s] += state.flops;
    touched[s] += state.touched;
    if (grad_rows > 0) rows[s] += grad_rows;
    if (!placed.has_trainer()) add_rates(placed.parameter(), s);
  }
  for (const v1::PlacedTable& table : plan().tables()) {
    const auto updated = updated_.find(table.name());
    for (size_t s = 0; s < server_flows_.size(); ++s) {
      add_rates(table.name(), s);
      if (updated == updated_.end()) continue;
      const double count = updated->second[s] / steps;
      const BlockState state = UpdatesOf(table.name(), {1, table.width()}, count);
      flops[s] += state.flops;
      touched[s] += state.touched;
      rows[s] += count;
    }
  }
  for (size_t s = 0; s < servers.size(); ++s) {
    servers[s].set_index(s < server_flows_.size() ? static_cast<int>(s) : kEveryTrainer);
    rates[s].erase("");
    servers[s].set_bytes_at_rest(servers[s].bytes_at_rest() + kFloatBytes * static_cast<int64_t>(rates[s].size()));
    if (s < server_flows_.size()) *servers[s].mutable_step() = ToProto(server_flows_[s].Times(1 / steps));
    servers[s].set_flops(flops[s]);
    servers[s].set_update_bytes(touched[s]);
    servers[s].set_rows_updated(rows[s]);
  }
  return servers;
}

v1::Balance ClusterModel::BalanceOf(const std::vector<v1::ExplainedServer>& servers) const {
  std::vector<double> bytes, load;
  int idle = 0;
  for (const v1::ExplainedServer& server : servers) {
    bytes.push_back(static_cast<double>(server.bytes_at_rest()));
    load.push_back(server.step().total().bytes_out() + server.step().total().bytes_in() + server.update_bytes() +
                   server.flops());
    idle += server.block().empty() && all_reduce_ == nullptr ? 1 : 0;
  }
  v1::Balance balance;
  balance.set_bytes(MaxOverMean(bytes));
  balance.set_load(MaxOverMean(load));
  balance.set_idle(idle);
  return balance;
}

int64_t ClusterModel::IdsBytes(const Group& group, const v1::VarDesc& var) const {
  const auto sampled = group.id_bytes.find(var.name());
  if (sampled != group.id_bytes.end()) return sampled->second;
  const int64_t batch = LaneBatch(plan()), slots = var.dims_size() > 1 ? var.dims(1) : 1;
  return group.lanes * (8 * batch * slots + 8 * (batch * slots + 1));
}

int64_t ClusterModel::IndexBytes(const Group& group, const std::string& ids) const {
  const auto sampled = group.id_bytes.find(ids + "@INDEX");
  if (sampled != group.id_bytes.end()) return sampled->second;
  const v1::VarDesc* of = trainer_index_.Find(0, ids);
  return group.lanes * 4 * LaneBatch(plan()) * (of != nullptr && of->dims_size() > 1 ? of->dims(1) : 1);
}

int64_t ClusterModel::AheadBytes(const Group& group) const {
  int64_t bytes = 0;
  std::set<std::string> seen;
  for (const v1::OpDesc& op : trainer_.main.blocks(0).ops()) {
    if (op.type() != "prefetch") continue;
    for (const v1::OpSlot& slot : op.inputs()) {
      for (const std::string& ids : slot.vars()) {
        bytes += IndexBytes(group, ids);
        if (const v1::VarDesc* var = trainer_index_.Find(0, ids); var != nullptr && seen.insert(ids).second) {
          bytes += IdsBytes(group, *var);
        }
      }
    }
  }
  return bytes;
}

int64_t ClusterModel::LanesBytes(const Group& group, const std::map<std::string, int64_t, std::less<>>& shared) const {
  const v1::BlockDesc& block = trainer_.main.blocks(0);
  const int64_t batch = LaneBatch(plan());
  std::set<std::string> seen;
  std::map<int64_t, int64_t> buffers;
  int64_t bytes = 0;
  StepOutputs of_step;
  std::set<std::string> written;
  for (const v1::OpDesc& op : block.ops()) {
    const OpDef* def = OpRegistry::Global().Find(op.type());
    if (def == nullptr) continue;
    if (def->scope == OpScope::kStep) NoteOutputs(op, *def, group, &of_step);
    const bool views = op.type() == "split_byref" || GivesView(op, *def, written, shared);
    ForEachVar(op.outputs(), [&](const std::string& name) { written.insert(name); });
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      ForEachVar(*slots, [&](const std::string& name) {
        const v1::VarDesc* var = trainer_index_.Find(0, name);
        if (var == nullptr || var->persistable() || of_step.once.contains(name) || !seen.insert(name).second) return;
        if (views && slots == &op.outputs()) return;
        if (var->kind() == v1::IDS) {
          bytes += IdsBytes(group, *var);
        } else if (const auto index = of_step.index_bytes.find(name); index != of_step.index_bytes.end()) {
          bytes += index->second;
        } else if (var->kind() == v1::SELECTED_ROWS) {
          bytes += GradientBytes(group, name);
        } else if (const auto buffer = shared.find(name); buffer != shared.end()) {
          buffers[buffer->second] = std::max(buffers[buffer->second], group.lanes * DenseBytes(*var, batch));
        } else {
          bytes += group.lanes * DenseBytes(*var, batch);
        }
      });
    }
  }
  for (const auto& [buffer, size] : buffers) bytes += size;
  return bytes;
}

void ClusterModel::NoteOutputs(const v1::OpDesc& op, const OpDef& def, const Group& group, StepOutputs* outputs) const {
  std::vector<std::string> ids;
  ForEachVar(op.inputs(), [&](const std::string& name) { ids.push_back(name); });
  for (const v1::OpSlot& slot : op.outputs()) {
    const int i = def.OutputIndex(slot.name());
    const bool per_lane = i >= 0 && def.outputs[static_cast<size_t>(i)].per_lane;
    for (int v = 0; v < slot.vars_size(); ++v) {
      if (!per_lane) outputs->once.insert(slot.vars(v));
      if (!per_lane || v >= static_cast<int>(ids.size())) continue;
      // One number for each id.
      outputs->index_bytes[slot.vars(v)] = IndexBytes(group, ids[static_cast<size_t>(v)]);
    }
  }
}

int64_t ClusterModel::GradientBytes(const Group& group, const std::string& name) const {
  int64_t bytes = 0;
  for (const SparseTarget& target : traffic_.targets()) {
    double part = target.gradient == name || name.starts_with(target.gradient + "@") ? 1 : 0;
    for (size_t b = 0; part == 0 && b < target.blocks.size(); ++b) {
      const SparseTarget::Block& of = target.blocks[b];
      if (name == target.gradient + of.name.substr(std::min(of.name.size(), target.parameter.size()))) {
        part = static_cast<double>(of.row_end - of.row_begin) / static_cast<double>(std::max<int64_t>(1, target.rows));
      }
    }
    if (part == 0) continue;
    double rows = 0;
    const auto peak = group.peak.find(target.parameter);
    if (peak != group.peak.end()) {
      for (const double lane : peak->second.lane_rows) rows += lane;
    }
    bytes += std::llround(part * rows *
                          static_cast<double>(8 + (target.with_step_rows ? 4 : 0) + kFloatBytes * target.width));
  }
  return bytes;
}

v1::TrainerMemory ClusterModel::MemoryOf(const Group& group) const {
  v1::TrainerMemory memory;
  const v1::BlockDesc& block = trainer_.main.blocks(0);
  int64_t step = 0, parameters = 0;
  std::set<std::string> seen;
  for (const v1::OpDesc& op : block.ops()) {
    const OpDef* def = OpRegistry::Global().Find(op.type());
    for (const auto* slots : {&op.inputs(), &op.outputs()}) {
      for (const v1::OpSlot& slot : *slots) {
        for (const std::string& name : slot.vars()) {
          const v1::VarDesc* var = trainer_index_.Find(0, name);
          if (var == nullptr) continue;
          if (var->persistable()) {
            if (seen.insert(name).second) parameters += DenseBytes(*var, 1);
            continue;
          }
          if (def == nullptr || def->scope != OpScope::kStep || slots != &op.outputs() ||
              var->kind() != v1::SELECTED_ROWS)
            continue;
          for (const SparseTarget& target : traffic_.targets()) {
            if (name != target.parameter + "@ROWS" || !seen.insert(name).second) continue;
            const auto peak = group.peak.find(target.parameter);
            const double rows = peak == group.peak.end() ? 0 : peak->second.distinct;
            step += std::llround(rows * static_cast<double>(8 + kFloatBytes * target.width));
          }
        }
      }
    }
  }
  // Computes memory with shared buffers too, even if the job has not chosen them.
  const auto said = ReadSharedBuffers(trainer_.main, 0);
  SharedBuffers shared = said.ok() ? *said : SharedBuffers();
  if (shared.empty()) {
    Job job;
    job.config = job_;
    job.config.mutable_distribute()->set_memory_optimize(true);
    Programs copy = trainer_;
    if (ShareBuffers(job, &copy).ok()) {
      const auto read = ReadSharedBuffers(copy.main, 0);
      if (read.ok()) shared = *read;
    }
  }
  if (job_.distribute().prefetch_rows()) step = 2 * step + AheadBytes(group);
  memory.set_lanes_apart(LanesBytes(group, {}));
  memory.set_lanes_shared(LanesBytes(group, shared));
  memory.set_lanes(job_.distribute().memory_optimize() ? memory.lanes_shared() : memory.lanes_apart());
  memory.set_step(step);
  memory.set_parameters(parameters);
  memory.set_total(memory.lanes() + step + parameters);
  return memory;
}

std::vector<std::set<std::string>> ClusterModel::NormRounds(const std::string& parameter) const {
  std::vector<std::set<std::string>> rounds;
  const auto found = updates_.find(parameter);
  if (found == updates_.end()) return rounds;
  bool before = false;
  for (const Update& update : found->second) {
    const bool norm = update.op.type() == "whole_norm";
    if (norm && !before) rounds.emplace_back();
    before = norm;
    if (!norm) continue;
    const v1::OpAttr* const name = FindAttr(update.op, "name");
    rounds.back().insert(name == nullptr ? "" : name->s());
  }
  return rounds;
}

FlowSum ClusterModel::Norms() const {
  FlowSum sum;
  if (plan().servers() < 2 && NormsWithTables(trainer_.main).empty()) return sum;
  // names[server][round]: norms whose sums the server contributes in that round.
  std::vector<std::vector<std::set<std::string>>> names(static_cast<size_t>(plan().servers()));
  const auto add = [&](const std::string& parameter, size_t server) {
    const std::vector<std::set<std::string>> rounds = NormRounds(parameter);
    if (names[server].size() < rounds.size()) names[server].resize(rounds.size());
    for (size_t r = 0; r < rounds.size(); ++r) names[server][r].insert(rounds[r].begin(), rounds[r].end());
  };
  for (const v1::PlacedBlock& block : plan().blocks()) {
    // A trainer's own parts of a norm are there already.
    if (block.server() != kEveryTrainer) add(block.parameter(), static_cast<size_t>(block.server()));
  }
  for (const v1::PlacedTable& table : plan().tables()) {
    for (size_t s = 0; s < names.size(); ++s) add(table.name(), s);
  }
  for (size_t s = 0; s < names.size(); ++s) {
    // Such jobs are sync, so trainer 0 brings the norms; its own server is in the same process.
    if (TrainerAround(plan(), static_cast<int>(s)) == 0) continue;
    const std::vector<std::set<std::string>>& rounds = names[s];
    // The call of a round delivers the norms of the round before and takes the sums of its own; the last one only
    // delivers.
    for (size_t r = 0; !rounds.empty() && r <= rounds.size(); ++r) {
      // Sizes of the messages of proto/parameter_server.proto: caller, step, round and wait; a name and a double for
      // each norm; a name and 21 words for each sum.
      sum.messages += 1;
      sum.bytes_out += 29.5 + static_cast<double>(job_.name().size());  // a session takes 9 bytes or 10
      sum.bytes_in += 2;
      if (r > 0) {
        for (const std::string& name : rounds[r - 1]) sum.bytes_out += 13 + static_cast<double>(name.size());
      }
      if (r == rounds.size()) continue;
      for (const std::string& name : rounds[r]) sum.bytes_in += 176 + static_cast<double>(name.size());
    }
  }
  return sum;
}

std::vector<v1::ExplainedTrainer> ClusterModel::Trainers() const {
  std::vector<v1::ExplainedTrainer> trainers;
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_));
  for (const Group& group : groups_) {
    v1::ExplainedTrainer trainer;
    trainer.set_first(group.first);
    trainer.set_count(group.count);
    trainer.set_lanes(group.lanes);
    trainer.set_lane_batch(LaneBatch(plan()));
    const ServerFlows flows = group.flows.Times(1 / (steps * group.count));
    *trainer.mutable_step() = ToProto(flows);
    *trainer.mutable_startup() = ToProto(flows.pull_blocks);
    double flops = 0;
    for (const v1::OpDesc& op : trainer_.main.blocks(0).ops()) {
      const OpDef* def = OpRegistry::Global().Find(op.type());
      if (def == nullptr) continue;
      const Cost cost = CostOf(op, *def, trainer_index_.Lookup(0), LaneBatch(plan()));
      flops += cost.flops * (def->scope == OpScope::kLane && op.role() != v1::DIST ? group.lanes : 1);
    }
    trainer.set_flops(flops * std::max(1, job_.train().accumulate_steps()));
    *trainer.mutable_memory() = MemoryOf(group);
    if (all_reduce_ != nullptr) *trainer.mutable_exchange() = ExchangeOf(group);
    trainers.push_back(std::move(trainer));
  }
  return trainers;
}

v1::TrainerExchange ClusterModel::ExchangeOf(const Group& group) const {
  if (sharded_ != nullptr) {
    const auto sent = [this](int t) { return sharded_->FlowsOf(t).Total().bytes_out; };
    int most = group.first;
    for (int t = group.first + 1; t < group.first + group.count; ++t) {
      if (sent(t) > sent(most)) most = t;
    }
    return sharded_->ExchangeOf(most, link_);
  }
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_));
  const double others = plan().trainers() - 1;
  FlowSum all_rows;  // that every trainer sends one other
  for (const Group& each : groups_) all_rows += each.row_exchange.Times(1 / steps);
  const FlowSum own_rows = group.row_exchange.Times(1 / (steps * group.count));
  // Slices differ by a few bytes, and those of a small bucket may be empty.
  FlowSum dense;
  double messages = 0;
  for (int t = group.first; t < group.first + group.count; ++t) {
    const FlowSum other = all_reduce_->Dense(t);
    messages += other.messages / group.count;
    if (other.bytes_out >= dense.bytes_out) dense = other;
  }
  dense.messages = messages;
  const FlowSum rows = {.messages = others * own_rows.messages,
                        .bytes_out = others * own_rows.bytes_out,
                        .bytes_in = all_rows.bytes_out - own_rows.bytes_out};
  FlowSum total = dense;
  total += rows;
  total += all_reduce_->Headers();
  FlowSum norms;
  for (int t = group.first; t < group.first + group.count; ++t) norms += all_reduce_->Norms(t).Times(1.0 / group.count);
  total += norms;
  v1::TrainerExchange exchange;
  exchange.set_nodes(all_reduce_->nodes(group.first));
  exchange.set_direct_bytes(all_reduce_->DirectBytes(group.first));
  exchange.set_ring_bytes(all_reduce_->RingBytes());
  exchange.set_direct_seconds(all_reduce_->DirectSeconds(group.first, link_));
  exchange.set_ring_seconds(all_reduce_->RingSeconds(link_));
  *exchange.mutable_dense() = ToProto(dense);
  *exchange.mutable_rows() = ToProto(rows);
  *exchange.mutable_headers() = ToProto(all_reduce_->Headers());
  if (norms.messages > 0) *exchange.mutable_norms() = ToProto(norms);
  *exchange.mutable_total() = ToProto(total);
  // Rows of all trainers are there until the update.
  exchange.set_buffer_bytes(all_reduce_->BufferBytes(group.first) + std::llround(all_rows.bytes_out));
  *exchange.mutable_check() = ToProto(all_reduce_->Check());
  return exchange;
}

std::optional<v1::MergedHosts> ClusterModel::Merged() const {
  if (hosts_.empty()) return std::nullopt;
  const double steps = static_cast<double>(std::max<int64_t>(1, steps_));
  v1::MergedHosts merged;
  merged.set_trainers_per_host(merging_.servers);
  double bytes = 0, apart = 0;
  for (const HostGroup& group : hosts_) {
    v1::MergedHost* const host = merged.add_host();
    host->set_first(group.first);
    host->set_count(group.count);
    host->set_first_trainer(group.trainers.first);
    host->set_trainers(group.trainers.count);
    host->set_nodes(static_cast<int32_t>(AlignedNodes(group.lanes).size()));
    *host->mutable_step() = ToProto(group.flows.Times(1 / (steps * group.count)));
    merged.set_hosts(merged.hosts() + group.count);
    bytes += group.flows.Total().bytes_out + group.flows.Total().bytes_in;
  }
  for (const Group& group : groups_) apart += group.flows.Total().bytes_out + group.flows.Total().bytes_in;
  merged.set_bytes(bytes / steps);
  merged.set_bytes_apart(apart / steps);
  return merged;
}

std::optional<v1::AddedOnHosts> ClusterModel::AddedOnHosts() const {
  if (merging_.trainers < 2) return std::nullopt;
  const std::vector<TrainerRange> hosts = HostsOf(plan(), merging_.trainers);
  std::vector<int> host, nodes;
  for (size_t h = 0; h < hosts.size(); ++h) {
    host.insert(host.end(), static_cast<size_t>(hosts[h].count), static_cast<int>(h));
    nodes.push_back(static_cast<int>(AlignedNodes(LanesOf(plan(), hosts[h])).size()));
  }
  const std::optional<AllReduceTraffic::BetweenHosts> between = all_reduce_->DenseBetweenHosts(host, nodes);
  if (!between.has_value()) return std::nullopt;
  v1::AddedOnHosts added;
  added.set_hosts(static_cast<int32_t>(hosts.size()));
  added.set_trainers_per_host(merging_.trainers);
  added.set_bytes(between->merged);
  added.set_bytes_apart(between->apart);
  return added;
}

std::optional<v1::AllReduced> ClusterModel::AllReduces() const {
  if (all_reduce_ == nullptr) return std::nullopt;
  v1::AllReduced all;
  all.set_dense_bytes(all_reduce_->dense_bytes());
  all.set_link_gbit(link_.gbit);
  all.set_link_us(link_.us);
  all.set_average_every_steps(all_reduce_->average_every_steps());
  *all.mutable_replica() = Owners().back();
  const double trainer_steps = static_cast<double>(std::max<int64_t>(1, steps_) * plan().trainers());
  for (const AllReduceTraffic::Bucket& bucket : all_reduce_->buckets()) {
    v1::ExplainedBucket* const to = all.add_bucket();
    for (const std::string& parameter : bucket.parameters) to->add_parameters(parameter);
    to->set_row_width(bucket.width);
    if (sharded_ != nullptr) to->mutable_blocks()->Add(bucket.blocks.begin(), bucket.blocks.end());
    const auto rows = row_bytes_.find(bucket.parameters[0]);
    if (bucket.width == 0) {
      to->set_bytes(static_cast<double>(bucket.elements * static_cast<int64_t>(all_reduce_->value_bytes())));
    } else if (sharded_ != nullptr) {
      to->set_bytes(sharded_->RowBytes(bucket.parameters[0]));
    } else if (rows != row_bytes_.end()) {
      to->set_bytes(rows->second / trainer_steps);
    }
  }
  for (v1::UpdateShare& share : Shares(all.replica())) *all.add_share() = std::move(share);
  if (std::optional<v1::AddedOnHosts> added = AddedOnHosts(); added.has_value()) {
    *all.mutable_added_on_hosts() = *std::move(added);
  }
  const auto sent = [&](int t) {
    return sharded_ == nullptr ? all_reduce_->DirectBytes(t) : all.share(t).step().bytes_out();
  };
  for (int t = 1; t < plan().trainers(); ++t) {
    if (sent(t) > sent(all.largest_trainer())) all.set_largest_trainer(t);
  }
  return all;
}

std::vector<v1::UpdateShare> ClusterModel::Shares(const v1::ExplainedServer& replica) const {
  std::vector<v1::UpdateShare> shares;
  if (sharded_ == nullptr) return shares;
  shares.resize(static_cast<size_t>(plan().trainers()));
  std::vector<std::set<std::string>> rates(shares.size());
  for (int b = 0; b < replica.block_size(); ++b) {
    const v1::ExplainedBlock& block = replica.block(b);
    const auto t = static_cast<size_t>(block.trainer());
    v1::UpdateShare& share = shares[t];
    share.set_blocks(share.blocks() + 1);
    share.set_value_bytes(share.value_bytes() + block.bytes());
    share.set_state_bytes(share.state_bytes() + block.state_bytes());
    const auto rows = updated_blocks_.find(block.name());
    const double changed =
        rows == updated_blocks_.end() ? -1 : rows->second / static_cast<double>(std::max<int64_t>(1, steps_));
    if (changed > 0) share.set_rows_updated(share.rows_updated() + changed);
    const absl::Span<const int64_t> dims(block.dims().data(), static_cast<size_t>(block.dims_size()));
    share.set_flops(share.flops() + UpdatesOf(block.parameter(), dims, changed).flops);
    const auto updates = updates_.find(block.parameter());
    if (updates == updates_.end()) continue;
    for (const Update& update : updates->second) rates[t].insert(InputOf(update.op, "LearningRate"));
  }
  for (size_t t = 0; t < shares.size(); ++t) {
    rates[t].erase("");
    const int64_t own =
        shares[t].value_bytes() + shares[t].state_bytes() + kFloatBytes * static_cast<int64_t>(rates[t].size());
    shares[t].set_bytes_at_rest(own + replica.bytes_at_rest());
    sharded_->FillShare(static_cast<int>(t), &shares[t]);
  }
  return shares;
}

}  // namespace weir
