#include "transpiler/explain/step_ids.h"

#include <algorithm>
#include <utility>

#include "framework/base/stable_hash.h"
#include "framework/runtime/lane_tree.h"
#include "glog/logging.h"

namespace weir {
namespace {

// Ids, each with the number of the last list that had it. Keeps its memory.
class IdSet {
 public:
  void Clear() {
    std::fill(slots_.begin(), slots_.end(), Slot());
    size_ = 0;
  }
  // `list` is above 0. Sets `fresh`: the id is new; returns whether it is new to the list.
  bool Add(int64_t id, uint32_t list, bool* fresh) {
    if (2 * size_ >= slots_.size()) Grow();
    Slot& slot = Find(id);
    *fresh = slot.list == 0;
    size_ += *fresh ? 1 : 0;
    slot.id = id;
    return std::exchange(slot.list, list) != list;
  }

 private:
  struct Slot {
    int64_t id = 0;
    uint32_t list = 0;  // 0: none
  };
  Slot& Find(int64_t id) {
    const size_t mask = slots_.size() - 1;
    for (size_t at = MixId(static_cast<uint64_t>(id)) & mask;; at = (at + 1) & mask) {
      if (slots_[at].list == 0 || slots_[at].id == id) return slots_[at];
    }
  }
  void Grow() {
    std::vector<Slot> old(std::max<size_t>(1024, 2 * slots_.size()));
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.list != 0) Find(slot.id) = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

template <typename Fn>
void ForEachId(const LaneInput& lane, const std::vector<SparseTarget::Source>& sources, Fn fn) {
  for (const SparseTarget::Source& source : sources) {
    const auto found = lane.ids.find(source.ids);
    if (found == lane.ids.end()) continue;
    const std::vector<int64_t>& values = found->second->values;
    ForSelectedIds(*found->second, source.selection(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) fn(values[static_cast<size_t>(i)]);
    });
  }
}

// Adds an id that the set does not have.
void Count(int64_t id, uint32_t shards, DistinctIds* to) {
  ++to->count;
  if (shards == 0) {
    to->ids.push_back(id);
    return;
  }
  to->by_shard.resize(shards);
  ++to->by_shard[LogicalShard(id, shards)];
}

void Sort(DistinctIds* ids) { std::sort(ids->ids.begin(), ids->ids.end()); }

// Sets of one target, trainer by trainer or host by host. Sets of one size use the same memory.
struct Counter {
  const StepInput& step;
  const SparseTarget& target;
  const uint32_t shards;
  IdSet of_lanes, of_sender, of_all;

  void AddPushed(const LaneRange& lanes, StepIds::OfSender* to, DistinctIds* updated) {
    const std::vector<LaneRange> nodes = AlignedNodes(lanes);
    if (nodes.size() > 1) of_sender.Clear();
    for (const LaneRange& node : nodes) {
      DistinctIds& of_node = to->pushed.emplace_back();
      of_lanes.Clear();
      uint32_t list = 0;
      for (int l = node.begin; l < node.begin + node.count; ++l) {
        int64_t most = 0;  // of one batch: what the lane's variable holds
        for (const BatchInput& batch : step) {
          int64_t of_lane = 0;
          ++list;
          ForEachId(batch[static_cast<size_t>(l)], target.pushed_by, [&](int64_t id) {
            bool fresh = false;
            of_lane += of_lanes.Add(id, list, &fresh) ? 1 : 0;
            if (!fresh) return;
            Count(id, shards, &of_node);
            bool first = nodes.size() == 1;
            if (!first) of_sender.Add(id, 1, &first);
            to->distinct_pushed += first ? 1 : 0;
            of_all.Add(id, 1, &first);
            if (first) Count(id, shards, updated);
          });
          most = std::max(most, of_lane);
        }
        to->lane_rows.push_back(static_cast<double>(most));
      }
      Sort(&of_node);
    }
  }

  void AddPulled(const LaneRange& lanes, StepIds::OfSender* to) {
    if (step.size() == 1 && to->pushed.size() == 1 && target.pulled_by == target.pushed_by) {
      to->pulled = to->pushed;
      return;
    }
    for (const BatchInput& batch : step) {
      DistinctIds& of_batch = to->pulled.emplace_back();
      of_lanes.Clear();
      for (int l = lanes.begin; l < lanes.begin + lanes.count; ++l) {
        ForEachId(batch[static_cast<size_t>(l)], target.pulled_by, [&](int64_t id) {
          bool fresh = false;
          of_lanes.Add(id, 1, &fresh);
          if (fresh) Count(id, shards, &of_batch);
        });
      }
      Sort(&of_batch);
    }
  }
};

std::map<std::string, int64_t> IdBytes(const StepInput& step, const LaneRange& lanes) {
  std::map<std::string, int64_t> all;
  for (int l = lanes.begin; l < lanes.begin + lanes.count; ++l) {
    std::map<std::string, int64_t> of_lane;  // maximum over batches
    for (const BatchInput& batch : step) {
      for (const auto& [name, ids] : batch[static_cast<size_t>(l)].ids) {
        const size_t bytes = 8 * (ids->values.size() + ids->offsets.size()) + 4 * ids->weights.size();
        of_lane[name] = std::max(of_lane[name], static_cast<int64_t>(bytes));
        of_lane[name + "@INDEX"] = std::max(of_lane[name + "@INDEX"], static_cast<int64_t>(4 * ids->values.size()));
      }
    }
    for (const auto& [name, bytes] : of_lane) all[name] += bytes;
  }
  return all;
}

}  // namespace

std::vector<double> DistinctIds::ByPlace(const SparseTarget& target, int servers) const {
  if (target.table) {
    std::vector<double> rows(static_cast<size_t>(servers), 0);
    for (uint32_t s = 0; s < by_shard.size(); ++s) {
      rows[static_cast<size_t>(ShardServer(s, target.shards, servers))] += by_shard[s];
    }
    return rows;
  }
  std::vector<double> rows(target.blocks.size(), 0);
  size_t b = 0;
  for (const int64_t id : ids) {
    while (b + 1 < target.blocks.size() && id >= target.blocks[b].row_end) ++b;
    rows[b] += 1;
  }
  return rows;
}

StepIds::Key StepIds::KeyOf(const SparseTarget& target) {
  return {target.pulled_by, target.pushed_by, target.table ? target.shards : 0};
}

StepIds::StepIds(const StepInput& step, const std::vector<SparseTarget>& targets, const v1::Plan& plan,
                 int trainers_per_host)
    : trainers_per_host_(trainers_per_host) {
  for (const SparseTarget& target : targets) {
    const Key key = KeyOf(target);
    const auto [at, fresh] = targets_.try_emplace(key);
    if (!fresh) continue;
    OfTarget& of = at->second;
    Counter counter = {.step = step, .target = target, .shards = key.shards};
    const auto count = [&](const TrainerRange& trainers, std::vector<OfSender>* senders) {
      const LaneRange lanes = LanesOf(plan, trainers);
      OfSender& of_sender = senders->emplace_back();
      counter.AddPushed(lanes, &of_sender, &of.updated);
      counter.AddPulled(lanes, &of_sender);
    };
    for (const TrainerRange& trainer : HostsOf(plan, 1)) count(trainer, &of.trainers);
    if (trainers_per_host > 1) {
      for (const TrainerRange& host : HostsOf(plan, trainers_per_host)) count(host, &of.hosts);
    }
    Sort(&of.updated);
  }
  for (int t = 0; t < plan.trainers(); ++t) {
    id_bytes_.push_back(IdBytes(step, LanesOfTrainer(plan.lanes(), plan.trainers(), t)));
  }
}

const StepIds::OfTarget& StepIds::Of(const SparseTarget& target) const {
  const auto found = targets_.find(KeyOf(target));
  CHECK(found != targets_.end()) << target.parameter << ": its ids were not counted";
  return found->second;
}

const StepIds::OfSender& StepIds::Of(const SparseTarget& target, const TrainerRange& trainers) const {
  const OfTarget& of = Of(target);
  if (trainers.count == 1) return of.trainers[static_cast<size_t>(trainers.first)];
  CHECK(trainers.first % trainers_per_host_ == 0 && !of.hosts.empty()) << "the ids of this host were not counted";
  return of.hosts[static_cast<size_t>(trainers.first / trainers_per_host_)];
}

}  // namespace weir
