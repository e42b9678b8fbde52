#include "transpiler/explain/traffic.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "framework/base/stable_hash.h"
#include "framework/wire/codecs.h"
#include "framework/wire/frame.h"
#include "framework/wire/transfer.h"
#include "proto/parameter_server.pb.h"
#include "transpiler/base/programs.h"
#include "transpiler/passes/share_buffers.h"

namespace weir {
namespace {

// Step and version, which take a byte more from 128 on.
constexpr int64_t kSomeStep = 100;

size_t Rounded(double rows) { return static_cast<size_t>(std::llround(std::max(0.0, rows))); }

std::vector<std::string> Strings(const v1::OpDesc& op, std::string_view name) {
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? std::vector<std::string>()
                         : std::vector<std::string>(attr->strings().v().begin(), attr->strings().v().end());
}
std::vector<int64_t> Ints(const v1::OpDesc& op, std::string_view name) {
  const v1::OpAttr* attr = FindAttr(op, name);
  return attr == nullptr ? std::vector<int64_t>()
                         : std::vector<int64_t>(attr->ints().v().begin(), attr->ints().v().end());
}

size_t FrameBytes(const google::protobuf::MessageLite& header, size_t payload) {
  Slices slices;
  if (payload > 0) slices.push_back({nullptr, payload, nullptr});
  return TotalSize(EncodeFrame(header.SerializeAsString(), slices));
}

v1::Caller SomeCaller(const v1::JobConfig& job, int trainer) {
  v1::Caller caller;
  caller.set_job_id(job.name());
  caller.set_trainer(trainer);
  caller.set_session(uint64_t{1} << 63);
  return caller;
}

v1::PullReply SomePullReply(const v1::Plan& plan) {
  v1::PullReply reply;
  reply.set_ready(true);
  reply.set_version(kSomeStep);
  reply.set_skipped(false);
  reply.set_stop(false);
  reply.set_samples(plan.batch_size());
  reply.set_checksum(1);
  return reply;
}

// The parts of a step for one server, as pserver/client/push_builder.h makes them.
class Parts {
 public:
  struct Tensor {
    v1::PushItem item;
    size_t bytes = 0;
  };
  Parts(const v1::JobConfig& job, int trainer, FlowSum* flow) : caller_(SomeCaller(job, trainer)), flow_(flow) {
    v1::PushReply reply;
    reply.set_version(kSomeStep);
    reply_bytes_ = FrameBytes(reply, 0);
  }

  void Add(const std::vector<Tensor>& tensors) {
    size_t total = 0;
    for (const Tensor& tensor : tensors) total += AlignUp(tensor.bytes);
    if (total == 0) return;
    if (total >= kGatherBytes) {
      Part large;
      for (const Tensor& tensor : tensors) Put(tensor, &large);
      return Send({}, large, /*last=*/false);
    }
    if (small_.used + total > kGatherBytes) {
      Send({}, small_, /*last=*/false);
      small_ = Part();
    }
    for (const Tensor& tensor : tensors) Put(tensor, &small_);
  }

  void Finish(const v1::Plan& plan) {
    v1::PushRequest header;
    header.set_samples(std::max<int64_t>(1, plan.batch_size() / std::max(1, plan.trainers())));
    header.set_verdict(v1::APPLY);
    header.set_stop_requested(false);
    Send(std::move(header), small_, /*last=*/true);
  }

 private:
  struct Part {
    size_t used = 0;
    std::vector<v1::PushItem> items;
  };
  static void Put(const Tensor& tensor, Part* part) {
    part->items.push_back(tensor.item);
    part->items.back().set_offset(static_cast<int64_t>(part->used));
    part->used += AlignUp(tensor.bytes);
  }
  void Send(v1::PushRequest header, const Part& part, bool last) {
    for (const v1::PushItem& item : part.items) *header.add_items() = item;
    header.set_part(next_part_++);
    if (last) header.set_part_count(next_part_);
    header.set_checksum(1);
    *header.mutable_caller() = caller_;
    header.set_step(kSomeStep);
    header.set_read_version(kSomeStep);
    flow_->messages += 1;
    flow_->bytes_out += static_cast<double>(FrameBytes(header, part.used));
    flow_->bytes_in += static_cast<double>(reply_bytes_);
  }

  const v1::Caller caller_;
  FlowSum* const flow_;
  size_t reply_bytes_ = 0;
  Part small_;
  int next_part_ = 0;
};

// One pull after the other, cut where the client cuts.
class Pulls {
 public:
  Pulls(const v1::JobConfig& job, const v1::Plan& plan, int trainer, bool rows, FlowSum* flow)
      : plan_(plan), rows_(rows), flow_(flow) {
    *header_.mutable_caller() = SomeCaller(job, trainer);
    header_.set_version(plan.sync() ? kSomeStep : 0);
    header_.set_wait_s(1);
  }

  // What one call asks for: bytes of its tensors as floats, of each in the answer, and of the ids in the request that
  // they have in common.
  struct Tensor {
    v1::PullItem item;
    size_t in;
  };
  void Add(std::vector<Tensor> tensors, size_t floats, size_t out) {
    if (floats_ > 0 && floats_ + floats > (rows_ ? kRowBytesPerCall : kBytesPerCall)) Send();
    for (Tensor& tensor : tensors) {
      if (rows_) tensor.item.set_offset(static_cast<int64_t>(ids_));
      *header_.add_items() = std::move(tensor.item);
      bytes_ += AlignUp(tensor.in);
    }
    floats_ += rows_ ? AlignUp(floats) : floats;
    ids_ += AlignUp(out);
  }

  void Send() {
    flow_->messages += 1;
    flow_->bytes_out += static_cast<double>(FrameBytes(header_, ids_));
    flow_->bytes_in += static_cast<double>(FrameBytes(SomePullReply(plan_), bytes_));
    header_.clear_items();
    floats_ = bytes_ = ids_ = 0;
  }
  bool empty() const { return header_.items_size() == 0; }

 private:
  const v1::Plan& plan_;
  const bool rows_;
  FlowSum* const flow_;
  v1::PullRequest header_;
  size_t floats_ = 0, bytes_ = 0, ids_ = 0;
};

void SortUnique(std::vector<int64_t>* ids) {
  std::sort(ids->begin(), ids->end());
  ids->erase(std::unique(ids->begin(), ids->end()), ids->end());
}

void Append(const LaneInput& lane, const std::vector<SparseTarget::Source>& sources, std::vector<int64_t>* ids) {
  for (const SparseTarget::Source& source : sources) {
    const auto found = lane.ids.find(source.ids);
    if (found == lane.ids.end()) continue;
    const std::vector<int64_t>& values = found->second->values;
    ForSelectedIds(*found->second, source.selection(), [&](int64_t begin, int64_t end) {
      ids->insert(ids->end(), values.begin() + begin, values.begin() + end);
    });
  }
}

// Server (of a table) or block of a row.
size_t PlaceOf(const SparseTarget& target, int servers, int64_t id) {
  if (target.table) return static_cast<size_t>(ShardServer(LogicalShard(id, target.shards), target.shards, servers));
  for (size_t b = 0; b < target.blocks.size(); ++b) {
    if (id < target.blocks[b].row_end) return b;
  }
  return target.blocks.size() - 1;
}

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

FlowSum& FlowSum::operator+=(const FlowSum& other) {
  messages += other.messages;
  bytes_out += other.bytes_out;
  bytes_in += other.bytes_in;
  rows += other.rows;
  return *this;
}
FlowSum FlowSum::Times(double factor) const {
  return {messages * factor, bytes_out * factor, bytes_in * factor, rows * factor};
}
ServerFlows& ServerFlows::operator+=(const ServerFlows& other) {
  pull_rows += other.pull_rows;
  push += other.push;
  pull_blocks += other.pull_blocks;
  return *this;
}
ServerFlows ServerFlows::Times(double factor) const {
  return {pull_rows.Times(factor), push.Times(factor), pull_blocks.Times(factor)};
}
FlowSum ServerFlows::Total() const {
  FlowSum sum = pull_rows;
  sum += push;
  sum += pull_blocks;
  return sum;
}

const v1::Wire& Traffic::WireOf(const SparseTarget& target) const {
  for (const v1::PlacedTable& table : plan_.tables()) {
    if (table.name() == target.parameter) return table.wire();
  }
  return plan_.wire();
}

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
    if (op.type() != "send" || width == nullptr || width->i() == 0 || op.param_grads().empty()) continue;
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

StepRows Traffic::RowsAtMost(int trainer) const {
  const LaneRange lanes = LanesOfTrainer(plan_.lanes(), plan_.trainers(), trainer);
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

StepRows Traffic::RowsOf(int trainer, const StepInput& step) const {
  const LaneRange lanes = LanesOfTrainer(plan_.lanes(), plan_.trainers(), trainer);
  const std::vector<LaneRange> nodes = AlignedNodes(lanes);
  const int servers = plan_.servers();
  StepRows rows;
  for (const SparseTarget& target : targets_) {
    TargetRows& of = rows[target.parameter];
    const size_t places = Places(target, servers);
    of.pulled.assign(step.size(), std::vector<double>(places, 0));
    of.pushed.assign(places, std::vector<double>(nodes.size(), 0));
    for (size_t b = 0; b < step.size(); ++b) {
      std::vector<int64_t> all;
      for (int l = lanes.begin; l < lanes.begin + lanes.count; ++l) {
        Append(step[b][static_cast<size_t>(l)], target.pulled_by, &all);
      }
      SortUnique(&all);
      of.distinct = std::max(of.distinct, static_cast<double>(all.size()));
      for (const int64_t id : all) of.pulled[b][PlaceOf(target, servers, id)] += 1;
    }
    std::vector<int64_t> pushed;
    for (size_t n = 0; n < nodes.size(); ++n) {
      std::vector<int64_t> of_node;
      for (int l = nodes[n].begin; l < nodes[n].begin + nodes[n].count; ++l) {
        double most = 0;  // of one batch: what the lane's variable holds
        for (const BatchInput& batch : step) {
          std::vector<int64_t> of_lane;
          Append(batch[static_cast<size_t>(l)], target.pushed_by, &of_lane);
          SortUnique(&of_lane);
          most = std::max(most, static_cast<double>(of_lane.size()));
          of_node.insert(of_node.end(), of_lane.begin(), of_lane.end());
        }
        of.lane_rows.push_back(most);
      }
      SortUnique(&of_node);
      for (const int64_t id : of_node) of.pushed[PlaceOf(target, servers, id)][n] += 1;
      pushed.insert(pushed.end(), of_node.begin(), of_node.end());
    }
    if (target.pulled_by.empty()) {
      SortUnique(&pushed);
      of.distinct = static_cast<double>(pushed.size());
    }
  }
  return rows;
}

std::vector<double> Traffic::UpdatedRows(const SparseTarget& target, const StepInput* step) const {
  const int servers = plan_.servers();
  std::vector<double> updated(static_cast<size_t>(servers), 0);
  const auto server_of = [&](size_t place) {
    return target.table ? place : static_cast<size_t>(target.blocks[place].server);
  };
  if (step == nullptr) {
    const int lanes = std::max(1, plan_.lanes() == 0 ? plan_.trainers() : plan_.lanes());
    const double all = Limit(target, static_cast<double>(LaneIds(target.pushed_by)) * lanes * batches());
    for (size_t p = 0; p < Places(target, servers); ++p) updated[server_of(p)] += all * Share(target, servers, p);
    return updated;
  }
  std::vector<int64_t> all;
  for (const BatchInput& batch : *step) {
    for (const LaneInput& lane : batch) Append(lane, target.pushed_by, &all);
  }
  SortUnique(&all);
  for (const int64_t id : all) updated[server_of(PlaceOf(target, servers, id))] += 1;
  return updated;
}

std::vector<ServerFlows> Traffic::Step(int trainer, const StepRows& rows) const {
  const std::vector<LaneRange> nodes = AlignedNodes(LanesOfTrainer(plan_.lanes(), plan_.trainers(), trainer));
  const size_t servers = static_cast<size_t>(plan_.servers());
  std::vector<ServerFlows> flows(servers);
  std::map<std::string, const SparseTarget*> sparse;
  for (const SparseTarget& target : targets_) sparse[target.parameter] = &target;
  std::map<std::string, const v1::PlacedBlock*> placed;
  for (const v1::PlacedBlock& block : plan_.blocks()) placed[block.name()] = &block;

  std::vector<std::unique_ptr<Parts>> parts;
  std::vector<std::unique_ptr<Pulls>> blocks;
  for (ServerFlows& of : flows) {
    parts.push_back(std::make_unique<Parts>(job_, trainer, &of.push));
    blocks.push_back(std::make_unique<Pulls>(job_, plan_, trainer, /*rows=*/false, &of.pull_blocks));
  }

  // Rows of one block, or of tables that are asked for the same ids.
  const auto pull = [&](const std::vector<std::pair<const SparseTarget*, std::string>>& from, size_t count,
                        Pulls* pulls, ServerFlows* flow) {
    size_t row_bytes = 0;
    for (const auto& [target, name] : from) row_bytes += static_cast<size_t>(target->width) * sizeof(float);
    const size_t per_call = RowsPerCall(count, row_bytes, kRowBytesPerCall);
    flow->pull_rows.rows += static_cast<double>(count * from.size());
    for (size_t begin = 0; begin < count; begin += per_call) {
      const size_t n = std::min(per_call, count - begin);
      std::vector<Pulls::Tensor> tensors;
      for (const auto& [target, name] : from) {
        v1::PullItem item;
        item.set_name(name);
        item.set_count(static_cast<int64_t>(n));
        item.set_width(static_cast<int32_t>(target->width));
        const size_t width = static_cast<size_t>(target->width);
        const v1::WireFormat format = WireOf(*target).pull();
        if (format != v1::WIRE_FLOAT32) item.set_format(format);
        tensors.push_back({std::move(item), EncodedBytes(format, n * width, width)});
      }
      pulls->Add(std::move(tensors), n * row_bytes, n * sizeof(int64_t));
    }
  };
  const auto pull_rows = [&](const v1::OpDesc& op, size_t batch) {
    const std::vector<std::string> tables = Strings(op, "row_tables");
    for (size_t s = 0; s < servers; ++s) {
      Pulls pulls(job_, plan_, trainer, /*rows=*/true, &flows[s].pull_rows);
      std::set<std::string> asked;
      for (const std::string& table : tables) {
        const SparseTarget& target = *sparse.at(table);
        const std::vector<double>& pulled = rows.at(table).pulled[batch];
        if (target.table) {
          if (!asked.insert(table).second) continue;
          std::vector<std::pair<const SparseTarget*, std::string>> together = {{&target, table}};
          for (const std::string& other : tables) {
            const SparseTarget& with = *sparse.at(other);
            if (asked.contains(other) || !with.table || with.shards != target.shards ||
                with.pulled_by != target.pulled_by || Rounded(rows.at(other).pulled[batch][s]) != Rounded(pulled[s])) {
              continue;
            }
            asked.insert(other);
            together.emplace_back(&with, other);
          }
          pull(together, Rounded(pulled[s]), &pulls, &flows[s]);
          continue;
        }
        for (size_t place = 0; place < pulled.size(); ++place) {
          const SparseTarget::Block& block = target.blocks[place];
          if (static_cast<size_t>(block.server) == s)
            pull({{&target, block.name}}, Rounded(pulled[place]), &pulls, &flows[s]);
        }
      }
      if (!pulls.empty()) pulls.Send();
    }
  };
  const auto node_item = [&](const std::string& name, size_t node) {
    v1::PushItem item;
    item.set_name(name);
    item.set_lane(nodes[node].begin);
    item.set_lanes(nodes[node].count);
    return item;
  };
  const auto send_dense = [&](const std::string& name, size_t server) {
    const auto found = placed.find(name);
    if (found == placed.end()) return;
    const int64_t piece =
        static_cast<int64_t>(kBytesOfOneTensor / nodes.size() / kAlignment * kAlignment / sizeof(float));
    for (int64_t begin = 0; begin < found->second->element_count(); begin += piece) {
      const int64_t n = std::min(piece, found->second->element_count() - begin);
      std::vector<Parts::Tensor> tensors;
      for (size_t node = 0; node < nodes.size(); ++node) {
        v1::PushItem item = node_item(name, node);
        item.set_begin(begin);
        item.set_count(n);
        const v1::WireFormat format = plan_.wire().push();
        if (format != v1::WIRE_FLOAT32) item.set_format(format);
        tensors.push_back({std::move(item), EncodedBytes(format, static_cast<size_t>(n), kDenseGroup)});
      }
      parts[server]->Add(tensors);
    }
  };
  const auto send_rows = [&](const std::string& name, size_t server, int64_t width, v1::WireFormat format, bool counts,
                             const std::vector<double>& by_node) {
    const size_t row_bytes = sizeof(int64_t) + static_cast<size_t>(width + (counts ? 2 : 0)) * sizeof(float);
    const size_t per_piece = std::max<size_t>(1, kRowBytesPerCall / row_bytes / nodes.size());
    const double most = by_node.empty() ? 0 : *std::max_element(by_node.begin(), by_node.end());
    const size_t pieces = std::max<size_t>(1, (Rounded(most) + per_piece - 1) / per_piece);
    for (size_t p = 0; p < pieces; ++p) {
      std::vector<Parts::Tensor> tensors;
      for (size_t node = 0; node < nodes.size(); ++node) {
        const size_t all = Rounded(by_node[node]), n = all * (p + 1) / pieces - all * p / pieces;
        if (n == 0) continue;
        v1::PushItem item = node_item(name, node);
        item.set_count(static_cast<int64_t>(n));
        item.set_width(static_cast<int32_t>(width));
        if (format != v1::WIRE_FLOAT32) item.set_format(format);
        const size_t w = static_cast<size_t>(width);
        size_t bytes = AlignUp(n * sizeof(int64_t)) + EncodedBytes(format, n * w, w);
        if (counts) {
          item.set_shows_and_clicks(true);
          bytes = AlignUp(bytes) + n * 2 * sizeof(float);
        }
        tensors.push_back({std::move(item), bytes});
        flows[server].push.rows += static_cast<double>(n);
      }
      parts[server]->Add(tensors);
    }
  };

  for (const v1::OpDesc& op : main_.blocks(0).ops()) {
    // Of each batch by itself; sums of gradients leave once.
    for (size_t batch = 0; op.type() == "prefetch" && batch < static_cast<size_t>(batches()); ++batch)
      pull_rows(op, batch);
    if (op.type() == "send") {
      const std::vector<std::string> names = Strings(op, "blocks");
      const std::vector<int64_t> to = Ints(op, "servers");
      const v1::OpAttr* width = FindAttr(op, "width");
      for (size_t i = 0; i < names.size() && i < to.size(); ++i) {
        if (width == nullptr || width->i() == 0) {
          send_dense(names[i], static_cast<size_t>(to[i]));
          continue;
        }
        const bool counts = !InputOf(op, "Counts").empty();
        const TargetRows& of = rows.at(op.param_grads(0).param());
        if (to[i] >= 0) {
          send_rows(names[i], static_cast<size_t>(to[i]), width->i(), plan_.wire().push(), counts, of.pushed[i]);
          continue;
        }
        const v1::WireFormat format = WireOf(*sparse.at(op.param_grads(0).param())).push();
        for (size_t s = 0; s < servers; ++s) send_rows(names[i], s, width->i(), format, counts, of.pushed[s]);
      }
    }
    if (op.type() == "send_barrier") {
      for (const auto& each : parts) each->Finish(plan_);
    }
    if (op.type() == "recv") {
      const std::vector<std::string> names = Strings(op, "blocks");
      const std::vector<int64_t> from = Ints(op, "servers");
      for (size_t i = 0; i < names.size() && i < from.size(); ++i) {
        const auto found = placed.find(names[i]);
        if (found == placed.end()) continue;
        const int64_t per_call = static_cast<int64_t>(kBytesPerCall / sizeof(float));
        for (int64_t begin = 0; begin < found->second->element_count(); begin += per_call) {
          const int64_t n = std::min(per_call, found->second->element_count() - begin);
          v1::PullItem item;
          item.set_name(names[i]);
          item.set_begin(begin);
          item.set_count(n);
          const v1::WireFormat format = plan_.wire().pull();
          if (format != v1::WIRE_FLOAT32) item.set_format(format);
          const size_t floats = static_cast<size_t>(n);
          blocks[static_cast<size_t>(from[i])]->Add({{std::move(item), EncodedBytes(format, floats, kDenseGroup)}},
                                                    floats * sizeof(float), 0);
        }
      }
    }
    if (op.type() == "fetch_barrier") {
      for (size_t s = 0; s < servers; ++s) {
        if (plan_.sync() || s == 0 || !blocks[s]->empty()) blocks[s]->Send();
      }
    }
  }
  return flows;
}

}  // namespace weir
