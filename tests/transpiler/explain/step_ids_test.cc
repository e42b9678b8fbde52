// Counts of a step's ids beside those of plain sets.

#include "transpiler/explain/step_ids.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/runtime/lane_tree.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using Ids = std::set<int64_t>;

// A step of random ids in two variables; some lanes have none.
struct Drawn {
  explicit Drawn(int seed, int lanes, int batches) {
    std::mt19937 draw(static_cast<uint32_t>(seed));
    for (int b = 0; b < batches; ++b) {
      step.emplace_back();
      for (int l = 0; l < lanes; ++l) {
        LaneInput& lane = step.back().emplace_back();
        for (const std::string name : {"a", "b"}) {
          if (draw() % 5 == 0) continue;
          auto ids = std::make_unique<IdBatch>();
          ids->offsets = {0};
          for (int example = 0; example < 4; ++example) {
            for (uint32_t n = draw() % 4; n > 0; --n) ids->values.push_back(static_cast<int64_t>(draw() % 40) - 5);
            ids->offsets.push_back(static_cast<int64_t>(ids->values.size()));
          }
          lane.ids[name] = ids.get();
          owned.push_back(std::move(ids));
        }
      }
    }
  }
  StepInput step;
  std::vector<std::unique_ptr<IdBatch>> owned;
};

// The ids of one lane that a source takes, one by one.
void AddTo(const LaneInput& lane, const std::vector<SparseTarget::Source>& sources, Ids* all) {
  for (const SparseTarget::Source& source : sources) {
    const auto found = lane.ids.find(source.ids);
    if (found == lane.ids.end()) continue;
    const IdBatch& ids = *found->second;
    for (size_t e = 0; e + 1 < ids.offsets.size(); ++e) {
      for (int64_t i = ids.offsets[e]; i < ids.offsets[e + 1]; ++i) {
        const int64_t id = ids.values[static_cast<size_t>(i)];
        if (source.has_padding && id == source.padding) continue;
        if (source.sequence > 0 && i < ids.offsets[e + 1] - source.sequence) continue;
        all->insert(id);
      }
    }
  }
}

void ExpectSame(const DistinctIds& counted, const Ids& all, const SparseTarget& target) {
  EXPECT_EQ(counted.count, static_cast<int64_t>(all.size()));
  for (const int servers : {1, 3, 7}) {
    std::vector<double> expected(target.table ? static_cast<size_t>(servers) : target.blocks.size(), 0);
    for (const int64_t id : all) {
      size_t place = 0;
      if (target.table) {
        place = static_cast<size_t>(ShardServer(LogicalShard(id, target.shards), target.shards, servers));
      } else {
        while (place + 1 < target.blocks.size() && id >= target.blocks[place].row_end) ++place;
      }
      expected[place] += 1;
    }
    std::vector<double> got = counted.ByPlace(target, servers);
    EXPECT_EQ(got, expected);
  }
}

// Returns the ids that the sender with these lanes pushes.
Ids CheckSender(const StepInput& step, const SparseTarget& target, const LaneRange& own,
                const StepIds::OfSender& sender) {
  EXPECT_EQ(sender.pulled.size(), step.size());
  for (size_t b = 0; b < step.size() && b < sender.pulled.size(); ++b) {
    Ids pulled;
    for (int l = own.begin; l < own.begin + own.count; ++l) {
      AddTo(step[b][static_cast<size_t>(l)], target.pulled_by, &pulled);
    }
    ExpectSame(sender.pulled[b], pulled, target);
  }
  Ids of_sender;
  const std::vector<LaneRange> nodes = AlignedNodes(own);
  EXPECT_EQ(sender.pushed.size(), nodes.size());
  for (size_t n = 0; n < nodes.size() && n < sender.pushed.size(); ++n) {
    Ids of_node;
    for (int l = nodes[n].begin; l < nodes[n].begin + nodes[n].count; ++l) {
      size_t most = 0;
      for (const BatchInput& batch : step) {
        Ids of_lane;
        AddTo(batch[static_cast<size_t>(l)], target.pushed_by, &of_lane);
        most = std::max(most, of_lane.size());
        of_node.merge(of_lane);
      }
      EXPECT_EQ(sender.lane_rows[static_cast<size_t>(l - own.begin)], static_cast<double>(most)) << "lane " << l;
    }
    ExpectSame(sender.pushed[n], of_node, target);
    of_sender.merge(of_node);
  }
  EXPECT_EQ(sender.distinct_pushed, static_cast<int64_t>(of_sender.size()));
  return of_sender;
}

void Check(const StepInput& step, const SparseTarget& target, int trainers, int lanes) {
  v1::Plan plan;
  plan.set_trainers(trainers);
  plan.set_lanes(lanes);
  for (const int trainers_per_host : {1, 2, 3}) {
    const StepIds ids(step, {target}, plan, trainers_per_host);
    Ids updated;
    for (const TrainerRange& trainer : HostsOf(plan, 1)) {
      SCOPED_TRACE("trainer " + std::to_string(trainer.first) + " of " + std::to_string(trainers));
      updated.merge(CheckSender(step, target, LanesOfTrainer(lanes, trainers, trainer.first), ids.Of(target, trainer)));
    }
    for (const TrainerRange& host : HostsOf(plan, trainers_per_host)) {
      SCOPED_TRACE("host with trainer " + std::to_string(host.first) + " of " + std::to_string(trainers));
      LaneRange own = LanesOfTrainer(lanes, trainers, host.first);
      for (int t = 1; t < host.count; ++t) own.count += LanesOfTrainer(lanes, trainers, host.first + t).count;
      CheckSender(step, target, own, ids.Of(target, host));
    }
    ExpectSame(ids.Of(target).updated, updated, target);
  }
}

TEST(StepIdsTest, CountsAreThoseOfPlainSets) {
  const SparseTarget::Source a = {.ids = "a"}, b = {.ids = "b", .has_padding = true, .padding = 3},
                             last = {.ids = "a", .sequence = 2};
  SparseTarget table = {.parameter = "t", .table = true, .shards = 16, .pulled_by = {a, b}, .pushed_by = {a, b}};
  SparseTarget apart = table;
  apart.pulled_by = {a, {.ids = "b"}};
  apart.pushed_by = {last, b};
  SparseTarget blocks = {.parameter = "m", .rows = 30, .pulled_by = {}, .pushed_by = {b}};
  blocks.blocks = {{"m.0", 0, 0, 7}, {"m.1", 1, 7, 30}};
  for (int seed = 0; seed < 6; ++seed) {
    const int batches = 1 + seed % 2;
    const Drawn drawn(seed, /*lanes=*/8, batches);
    for (const SparseTarget& target : {table, apart, blocks}) {
      for (const int trainers : {1, 2, 3, 5, 8}) Check(drawn.step, target, trainers, /*lanes=*/8);
    }
  }
}

TEST(StepIdsTest, BytesOfIdsAreTheMostOfABatch) {
  const Drawn drawn(1, /*lanes=*/4, /*batches=*/2);
  v1::Plan plan;
  plan.set_trainers(2);
  plan.set_lanes(4);
  const StepIds ids(drawn.step, {}, plan);
  for (int t = 0; t < 2; ++t) {
    int64_t bytes = 0;
    for (const size_t l : {size_t{0}, size_t{1}}) {
      int64_t most = 0;
      for (const BatchInput& batch : drawn.step) {
        const auto found = batch[2 * static_cast<size_t>(t) + l].ids.find("a");
        if (found == batch[2 * static_cast<size_t>(t) + l].ids.end()) continue;
        most = std::max(most, static_cast<int64_t>(8 * (found->second->values.size() + found->second->offsets.size())));
      }
      bytes += most;
    }
    const auto& of_trainer = ids.id_bytes(t);
    EXPECT_EQ(of_trainer.contains("a") ? of_trainer.at("a") : 0, bytes);
  }
}

}  // namespace
}  // namespace weir
