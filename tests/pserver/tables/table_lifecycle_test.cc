// Rows that come and go, against a plain model that keeps them in maps.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "framework/base/stable_hash.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "pserver/tables/sparse_table.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

// Values: value - rate * gradient / divisor; no state.
class PlainSgd : public RowRule {
 public:
  std::vector<State> states(int) const override { return {}; }
  void InitState(int, float*) const override {}
  void Update(int width, float rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    for (int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < width; ++j) rows[i][j] -= rate * (grads[i][j] / divisor);
    }
  }
};

v1::Lifecycle Lifecycle(const std::string& text) {
  v1::Lifecycle lifecycle;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &lifecycle)) << text;
  return lifecycle;
}

struct TableSettings {
  std::string lifecycle;
  int64_t capacity = 0;
  uint32_t shards = 16;
  uint32_t begin = 0, end = 16;
  int stripes = 4;
};
std::unique_ptr<SparseTable> MakeTable(const TableSettings& setup) {
  auto table = SparseTable::Create({.name = "t",
                                    .width = 1,
                                    .logical_shards = setup.shards,
                                    .shard_begin = setup.begin,
                                    .shard_end = setup.end,
                                    .capacity = setup.capacity,
                                    .stripes = setup.stripes,
                                    .initializer = RowInitializer(v1::Initializer(), 1, "t"),
                                    .rule = std::make_unique<PlainSgd>(),
                                    .lifecycle = Lifecycle(setup.lifecycle),
                                    .seed = 7});
  EXPECT_TRUE(table.ok()) << table.status();
  return *std::move(table);
}

// Made-up shows and clicks of an id in a step.
std::pair<float, float> ShownIn(int64_t id, int64_t step) {
  const uint64_t h = MixId(static_cast<uint64_t>(id) * 31 + static_cast<uint64_t>(step));
  return {static_cast<float>(1 + h % 3), h % 5 == 0 ? 0.75f : 0};
}

// Reads every other id, in the order in which a client asks. The table remembers where rows were until its next update.
void ReadSome(SparseTable& table, std::vector<int64_t> ids) {
  std::sort(ids.begin(), ids.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  size_t n = 0;
  for (size_t i = 0; i < ids.size(); i += 2) ids[n++] = ids[i];
  ids.resize(n);
  std::vector<float> out(n * static_cast<size_t>(table.width()));
  EXPECT_TRUE(table.Pull(ids, /*create=*/false, out.data(), nullptr).ok());
}

void Step(SparseTable& table, const std::vector<int64_t>& ids, const RowTime& time, ThreadPool* pool = nullptr) {
  const std::vector<float> grads(ids.size(), 1);
  std::vector<float> shows;
  for (size_t i = 0; table.lifecycle().scores() && i < ids.size(); ++i) {
    const auto [shown, clicked] = ShownIn(ids[i], time.step);
    shows.insert(shows.end(), {shown, clicked});
  }
  const absl::Status status = table.Update(ids, grads.data(), 1, 1, pool, time, shows.empty() ? nullptr : shows.data());
  ASSERT_TRUE(status.ok()) << status;
  // Rows that are read here and go at the border may not be updated by the next step where they were.
  ReadSome(table, ids);
  for (int s = 0; s < table.stripes(); ++s) EXPECT_TRUE(table.EndStep(s, time).ok());
}
void Step(SparseTable& table, const std::vector<int64_t>& ids, int64_t step) { Step(table, ids, {.step = step}); }

std::set<int64_t> Rows(const SparseTable& table) {
  std::set<int64_t> rows;
  for (int s = 0; s < table.stripes(); ++s) {
    EXPECT_TRUE(
        table.VisitStripe(s, [&](int64_t id, const float*) { EXPECT_TRUE(rows.insert(id).second) << id; }).ok());
  }
  return rows;
}

float Value(SparseTable& table, int64_t id) {
  float value = 0;
  EXPECT_TRUE(table.Pull({id}, /*create=*/false, &value, nullptr).ok());
  return value;
}

TEST(TableLifecycleTest, ARowExistsFromTheStepInWhichItsCountIsReached) {
  auto table = MakeTable({.lifecycle = "admit_after: 3"});
  Step(*table, {5, 6}, 0);
  Step(*table, {5}, 1);
  EXPECT_EQ(table->size(), 0);
  EXPECT_EQ(Value(*table, 5), 0);
  EXPECT_EQ(table->counts().candidates, 2);
  EXPECT_EQ(table->counts().dropped, 3);
  Step(*table, {5, 6}, 2);
  EXPECT_THAT(Rows(*table), UnorderedElementsAre(5));
  EXPECT_EQ(Value(*table, 5), -1);  // the step's own update is the first
  EXPECT_EQ(table->counts().candidates, 1);
  Step(*table, {5, 6}, 3);
  EXPECT_EQ(Value(*table, 5), -2);
  EXPECT_EQ(Value(*table, 6), -1);
}

// --------------------------------------------------------------------------------------------------------- changed
// rows

// Rows that a reader ahead of a step must read again: those that read otherwise behind it.
TEST(TableLifecycleTest, RowsThatAStepUpdatesOrItsBorderRemovesCountAsChanged) {
  for (const auto& [lifecycle, capacity] :
       {std::pair{"ttl_steps: 3", 0}, std::pair{"admit_after: 2 ttl_steps: 4 tombstones: true", 0},
        std::pair{"when_full: EVICT_LEAST_RECENT", 48}, std::pair{"when_full: EVICT_LEAST_FREQUENT", 48},
        std::pair{"click: \"label\" decay_every_steps: 1 decay: 0.5 min_score: 0.08", 0}}) {
    auto table = MakeTable({.lifecycle = lifecycle, .capacity = capacity});
    std::vector<int64_t> all(200);
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int64_t>(i);
    std::mt19937 random(3);
    int64_t removed = 0;
    for (int64_t step = 0; step < 60; ++step) {
      std::vector<float> before(all.size());
      ASSERT_TRUE(table->Pull(all, /*create=*/false, before.data(), nullptr).ok());
      std::set<int64_t> updated;
      while (updated.size() < 9) updated.insert(static_cast<int64_t>(random() % all.size()));
      table->BeginChanges(/*record=*/true);
      Step(*table, {updated.begin(), updated.end()}, step);
      std::vector<uint32_t> positions;
      std::vector<float> rows;
      ASSERT_TRUE(table->PullChanged(all, &positions, &rows).ok());
      const std::set<uint32_t> changed(positions.begin(), positions.end());
      for (const int64_t id : all) {
        const float now = Value(*table, id), then = before[static_cast<size_t>(id)];
        if (now == then) continue;
        EXPECT_TRUE(changed.contains(static_cast<uint32_t>(id))) << lifecycle << ", step " << step << ", id " << id;
        removed += updated.contains(id) ? 0 : 1;
      }
      EXPECT_LE(changed.size(), 40u) << lifecycle;
      for (size_t k = 0; k < positions.size(); ++k) EXPECT_EQ(rows[k], Value(*table, positions[k]));
    }
    EXPECT_GT(removed, 20) << lifecycle;
  }
}

// ------------------------------------------------------------------------------------------------------------- scores

// One shard, so that it decays behind the steps 0, n, 2 n, ...
std::unique_ptr<SparseTable> ScoredTable(const std::string& lifecycle, int64_t capacity = 0) {
  return MakeTable({.lifecycle = "click: \"label\" show_coefficient: 0.5 click_coefficient: 2 " + lifecycle,
                    .capacity = capacity,
                    .shards = 1,
                    .end = 1,
                    .stripes = 1});
}
// Ids with their shows and clicks.
void Show(SparseTable& table, const std::vector<std::tuple<int64_t, float, float>>& shown, int64_t step) {
  std::vector<int64_t> ids;
  std::vector<float> shows;
  for (const auto& [id, show, click] : shown) {
    ids.push_back(id);
    shows.insert(shows.end(), {show, click});
  }
  const std::vector<float> grads(ids.size(), 1);
  const RowTime time = {.step = step};
  const absl::Status status = table.Update(ids, grads.data(), 1, 1, nullptr, time, shows.data());
  ASSERT_TRUE(status.ok()) << status;
  for (int s = 0; s < table.stripes(); ++s) EXPECT_TRUE(table.EndStep(s, time).ok());
}
std::map<int64_t, std::pair<float, float>> Shown(const SparseTable& table) {
  std::map<int64_t, std::pair<float, float>> shown;
  for (int s = 0; s < table.stripes(); ++s) {
    const absl::Status visited = table.VisitStripe(s, [&](int64_t id, const float* row) {
      const size_t at = static_cast<size_t>(table.width() + table.state_width()) - 2;
      shown[id] = {row[at], row[at + 1]};
    });
    EXPECT_TRUE(visited.ok());
  }
  return shown;
}
using Counted = std::map<int64_t, std::pair<float, float>>;

TEST(TableScoresTest, ShowsAndClicksAreCountedBesideARow) {
  auto table = ScoredTable("");
  std::vector<std::string> names;
  for (const RowRule::State& state : table->states()) names.push_back(state.name);
  EXPECT_THAT(names, ElementsAre("lifecycle.shows", "lifecycle.clicks"));
  Show(*table, {{5, 3, 1}, {6, 1, 0}}, 0);
  Show(*table, {{5, 2, 0.5f}}, 1);
  EXPECT_EQ(Shown(*table), (Counted{{5, {5, 1.5f}}, {6, {1, 0}}}));
}

TEST(TableScoresTest, ARowExistsOnceItsScoreIsReached) {
  auto table = ScoredTable("admit_score: 3");
  Show(*table, {{5, 3, 0}, {6, 2, 1}}, 0);  // 1.5, and 0.5 + 2
  EXPECT_EQ(table->size(), 0);
  EXPECT_EQ(table->counts().candidates, 2);
  EXPECT_EQ(table->counts().dropped, 2);
  Show(*table, {{5, 2, 0}, {6, 1, 0}}, 1);  // 2.5, 3
  EXPECT_EQ(Shown(*table), (Counted{{6, {3, 1}}})) << "what a candidate was shown counts";
  EXPECT_EQ(Value(*table, 6), -1);
  EXPECT_EQ(table->counts().candidates, 1);
}

TEST(TableScoresTest, ScoresDecayAndRowsThatFadeGo) {
  auto table = ScoredTable("decay_every_steps: 2 decay: 0.5 min_score: 1 tombstones: true");
  Show(*table, {{5, 4, 1}, {6, 3, 0}, {7, 4, 0}}, 1);
  EXPECT_EQ(table->size(), 3) << "the border of step 1 is none";
  Show(*table, {}, 2);
  // 0.5 * 1.5 + 2 * 0.5; 0.75 goes; 1 stays.
  EXPECT_EQ(Shown(*table), (Counted{{5, {2, 0.5f}}, {7, {2, 0}}}));
  EXPECT_EQ(table->counts().faded, 1);
  EXPECT_EQ(table->counts().tombstones, 1);
  Show(*table, {}, 3);
  Show(*table, {{7, 2, 0}}, 4);
  EXPECT_EQ(Shown(*table), (Counted{{7, {2, 0}}})) << "0.375 + 0.5 is too little";
}

TEST(TableScoresTest, EachShardDecaysAtABorderOfItsOwn) {
  auto table = MakeTable({.lifecycle = "click: \"label\" decay_every_steps: 3 decay: 0.5"});
  std::vector<std::tuple<int64_t, float, float>> all;
  for (int64_t id = 0; id < 100; ++id) all.emplace_back(id, 1, 0);
  Show(*table, all, 0);
  for (int64_t step = 1; step < 7; ++step) Show(*table, {}, step);
  for (const auto& [id, counted] : Shown(*table)) {
    // Borders of the steps 0 to 6: three for every third shard, two for the others.
    EXPECT_EQ(counted.first, LogicalShard(id, 16) % 3 == 0 ? 0.125f : 0.25f) << id;
  }
}

TEST(TableScoresTest, TheLowestScoresAreEvicted) {
  auto table = ScoredTable("when_full: EVICT_LEAST_FREQUENT", /*capacity=*/2);
  Show(*table, {{5, 9, 0}, {6, 2, 2}, {7, 8, 0}}, 0);  // 4.5, 4, 4
  EXPECT_EQ(Shown(*table), (Counted{{5, {9, 0}}, {7, {8, 0}}})) << "of the same score and step the lower id goes";
  EXPECT_EQ(table->counts().evicted, 1);
}

TEST(TableLifecycleTest, ReadingNeitherCountsNorKeepsARow) {
  auto table = MakeTable({.lifecycle = "admit_after: 2 ttl_steps: 3"});
  Step(*table, {5}, 0);
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Value(*table, 5), 0);
  EXPECT_EQ(table->size(), 0);
  Step(*table, {5}, 1);
  EXPECT_EQ(table->size(), 1);
  for (int64_t step = 2; step < 4; ++step) {
    Step(*table, {}, step);
    EXPECT_EQ(Value(*table, 5), -1) << step;
  }
  Step(*table, {}, 4);  // the third without it
  EXPECT_EQ(table->size(), 0);
  EXPECT_EQ(Value(*table, 5), 0);
}

TEST(TableLifecycleTest, ChanceAdmitsItsShareAsAFunctionOfIdAndStep) {
  auto table = MakeTable({.lifecycle = "admit_probability: 0.25"});
  auto other = MakeTable({.lifecycle = "admit_probability: 0.25", .stripes = 16});
  std::vector<int64_t> ids(20'000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  Step(*table, ids, 3);
  EXPECT_NEAR(static_cast<double>(table->size()), 5000, 4 * 61);  // sqrt(20000 * 0.25 * 0.75)
  Step(*table, ids, 4);
  EXPECT_NEAR(static_cast<double>(table->size()), 8750, 4 * 70);
  std::reverse(ids.begin(), ids.end());
  Step(*other, ids, 3);
  Step(*other, ids, 4);
  EXPECT_EQ(Rows(*table), Rows(*other));
}

TEST(TableLifecycleTest, RowsGoBetweenOneAndOneAndAQuarterOfTheirTime) {
  auto table = MakeTable({.lifecycle = "ttl_steps: 20"});  // every shard each fifth step
  std::vector<int64_t> ids(500);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  Step(*table, ids, 100);
  for (int64_t step = 101; step < 130; ++step) {
    Step(*table, {}, step);
    if (step < 120) {
      EXPECT_EQ(table->size(), 500) << step;
    } else if (step >= 125) {
      EXPECT_EQ(table->size(), 0) << step;
    }
  }
  EXPECT_EQ(table->counts().expired, 500);
}

// Beside a row stand the low 32 bits of the step.
TEST(TableLifecycleTest, AgesGoOnOverTheEndOf32Bits) {
  const int64_t end = int64_t{1} << 32;
  auto table = MakeTable({.lifecycle = "ttl_steps: 8"});
  Step(*table, {1, 2}, end - 3);
  for (int64_t step = end - 2; step < end + 3; ++step) Step(*table, {2}, step);
  EXPECT_THAT(Rows(*table), UnorderedElementsAre(1, 2));
  for (int64_t step = end + 3; step < end + 8; ++step) Step(*table, {2}, step);
  EXPECT_THAT(Rows(*table), UnorderedElementsAre(2));
}

TEST(TableLifecycleTest, ByTheClockRowsGoWhenItHasMovedFarEnough) {
  auto table = MakeTable({.lifecycle = "ttl_seconds: 100"});
  const double start = 1'000'000'000;
  Step(*table, {1, 2, 3}, {.step = 0, .seconds = start});
  Step(*table, {3}, {.step = 1, .seconds = start + 90});
  EXPECT_EQ(table->size(), 3);
  Step(*table, {}, {.step = 2, .seconds = start + 126});
  EXPECT_THAT(Rows(*table), ElementsAre(3));
  // A clock that stood still for long looks at everything at once.
  Step(*table, {}, {.step = 3, .seconds = start + 1'000'000});
  EXPECT_EQ(table->size(), 0);
}

// One shard, limit 16: 17 rows make it 15.
TEST(TableLifecycleTest, TheLeastRecentRowsGoAndTheLowerIdOfTwo) {
  auto table =
      MakeTable({.lifecycle = "when_full: EVICT_LEAST_RECENT", .capacity = 16, .shards = 1, .end = 1, .stripes = 1});
  for (int64_t id = 0; id < 16; ++id) Step(*table, {id}, id);
  EXPECT_EQ(table->size(), 16);
  Step(*table, {0, 20, 21}, 16);
  // 18 rows, 15 stay: 1, 2 and 3 go.
  EXPECT_THAT(Rows(*table), UnorderedElementsAre(0, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 20, 21));
  EXPECT_EQ(table->counts().evicted, 3);
  Step(*table, {30, 31}, 17);
  // 4 and 5 are the oldest.
  EXPECT_FALSE(Rows(*table).contains(4));
  EXPECT_FALSE(Rows(*table).contains(5));
  EXPECT_TRUE(Rows(*table).contains(30));
}

TEST(TableLifecycleTest, TheLeastFrequentRowsGo) {
  auto table =
      MakeTable({.lifecycle = "when_full: EVICT_LEAST_FREQUENT", .capacity = 3, .shards = 1, .end = 1, .stripes = 1});
  Step(*table, {1, 2, 3}, 0);
  Step(*table, {1, 2, 3}, 1);
  Step(*table, {1, 2}, 2);
  Step(*table, {4}, 3);  // in one step, the others in two and three
  EXPECT_THAT(Rows(*table), ElementsAre(1, 2, 3));
  Step(*table, {3, 4}, 4);
  Step(*table, {3, 5}, 5);
  EXPECT_THAT(Rows(*table), ElementsAre(1, 2, 3));
}

TEST(TableLifecycleTest, TombstonesNameRowsThatWentAndTheStepUntilTheyComeBack) {
  auto table = MakeTable({.lifecycle = "ttl_steps: 2 tombstones: true"});
  Step(*table, {8, 9}, 0);
  Step(*table, {9}, 1);
  Step(*table, {9}, 2);
  std::vector<int64_t> ids, all;
  std::vector<float> words;
  for (int s = 0; s < table->stripes(); ++s) {
    table->CopyMemory(SparseTable::kTombstones, s, &ids, &words);
    for (float word : words) EXPECT_EQ(std::bit_cast<uint32_t>(word), 2u);
    all.insert(all.end(), ids.begin(), ids.end());
  }
  EXPECT_THAT(all, ElementsAre(8));
  Step(*table, {8}, 3);
  EXPECT_EQ(table->counts().tombstones, 0);
}

TEST(TableLifecycleTest, SettingsThatNoJobMayHaveAreRefused) {
  for (const char* lifecycle :
       {"admit_after: 0", "admit_probability: 0", "admit_probability: nan", "ttl_steps: -1", "ttl_seconds: 0.5",
        "ttl_seconds: nan", "ttl_seconds: 1e300", "admit_score: 1", "click: \"c\" decay: 2", "decay_every_steps: 5"}) {
    EXPECT_EQ(SparseTable::Create({.name = "t",
                                   .width = 1,
                                   .initializer = RowInitializer(v1::Initializer(), 1, "t"),
                                   .lifecycle = Lifecycle(lifecycle)})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument)
        << lifecycle;
  }
}

// -------------------------------------------------------------------------------------------------------------- model

// The rules of docs/tables.md, id by id.
struct Model {
  v1::Lifecycle settings;
  int64_t capacity = 0;
  int64_t shards = 1;
  LifecycleRules rules;  // for chance alone
  struct Seen {
    int64_t count = 0, step = 0;
    float value = 0, shows = 0, clicks = 0;
  };
  double Score(const Seen& seen) const {
    return settings.show_coefficient() * (static_cast<double>(seen.shows) - seen.clicks) +
           settings.click_coefficient() * seen.clicks;
  }
  void Count(int64_t id, int64_t step, Seen* seen) const {
    ++seen->count;
    seen->step = step;
    if (!settings.has_click()) return;
    seen->shows += ShownIn(id, step).first;
    seen->clicks += ShownIn(id, step).second;
  }
  std::map<int64_t, Seen> rows, candidates;
  std::set<int64_t> tombstones;
  int64_t dropped = 0, gone_by_time = 0, evicted = 0, faded = 0;

  int64_t Shard(int64_t id) const { return LogicalShard(id, static_cast<uint32_t>(shards)); }
  void Update(int64_t id, float gradient, int64_t step) {
    if (!rows.contains(id)) {
      Seen seen;
      if (settings.admit_after() > 1 || settings.has_admit_score()) {
        Seen& candidate = candidates[id];
        seen = candidate;
        Count(id, step, &candidate);
        if (settings.has_admit_score() ? Score(candidate) < settings.admit_score()
                                       : candidate.count < settings.admit_after()) {
          ++dropped;
          return;
        }
        candidates.erase(id);
      } else if (settings.has_admit_probability() && !rules.AdmittedByChance(id, step)) {
        ++dropped;
        return;
      }
      tombstones.erase(id);
      rows[id] = seen;
    }
    Seen& row = rows[id];
    Count(id, step, &row);
    row.value -= gradient;
  }
  void Go(int64_t id) {
    rows.erase(id);
    if (settings.tombstones()) tombstones.insert(id);
  }
  void EndStep(int64_t step) {
    const int64_t ttl = settings.ttl_steps(), period = std::clamp<int64_t>(ttl / 4, 1, shards);
    const auto expired = [&](int64_t id, const Seen& seen) {
      return ttl > 0 && Shard(id) % period == step % period && step - seen.step >= ttl;
    };
    for (const auto& [id, seen] : std::map(rows)) {
      if (!expired(id, seen)) continue;
      Go(id);
      ++gone_by_time;
    }
    std::erase_if(candidates, [&](const auto& each) { return expired(each.first, each.second); });
    if (const int64_t every = settings.decay_every_steps(); every > 0) {
      const auto fades = [&](int64_t id, Seen* seen) {
        if (Shard(id) % every != step % every) return false;
        seen->shows *= static_cast<float>(settings.decay());
        seen->clicks *= static_cast<float>(settings.decay());
        return Score(*seen) < settings.min_score();
      };
      std::vector<int64_t> gone;
      for (auto& [id, seen] : rows) {
        if (fades(id, &seen)) gone.push_back(id);
      }
      for (int64_t id : gone) Go(id);
      faded += static_cast<int64_t>(gone.size());
      gone.clear();
      for (auto& [id, seen] : candidates) {
        if (fades(id, &seen)) gone.push_back(id);
      }
      for (int64_t id : gone) candidates.erase(id);
    }
    if (capacity == 0 || settings.when_full() == v1::Lifecycle::REFUSE) return;
    const int64_t most = capacity / shards;
    const bool frequent = settings.when_full() == v1::Lifecycle::EVICT_LEAST_FREQUENT;
    for (const bool of_rows : {true, false}) {
      std::map<int64_t, std::set<std::tuple<double, int64_t, int64_t>>> by_shard;
      for (const auto& [id, seen] : of_rows ? rows : candidates) {
        const double rank = !frequent              ? 0
                            : settings.has_click() ? static_cast<double>(static_cast<float>(Score(seen)))
                                                   : static_cast<double>(seen.count);
        by_shard[Shard(id)].insert({rank, seen.step, id});
      }
      for (auto& [shard, all] : by_shard) {
        if (static_cast<int64_t>(all.size()) <= most) continue;
        while (static_cast<int64_t>(all.size()) > most - most / 16) {
          const int64_t id = std::get<2>(*all.begin());
          all.erase(all.begin());
          if (of_rows) {
            Go(id);
            ++evicted;
          } else {
            candidates.erase(id);
          }
        }
      }
    }
  }
};

const TableSettings kSetups[] = {
    {.lifecycle = ""},
    {.lifecycle = "admit_after: 3"},
    {.lifecycle = "admit_probability: 0.3"},
    {.lifecycle = "ttl_steps: 1 tombstones: true"},
    {.lifecycle = "ttl_steps: 30"},
    {.lifecycle = "ttl_steps: 100 admit_after: 4"},
    {.lifecycle = "when_full: EVICT_LEAST_RECENT tombstones: true", .capacity = 3000},
    {.lifecycle = "when_full: EVICT_LEAST_FREQUENT", .capacity = 2000},
    {.lifecycle = "when_full: EVICT_LEAST_RECENT admit_after: 2 ttl_steps: 9", .capacity = 16},
    {.lifecycle = "when_full: EVICT_LEAST_FREQUENT admit_after: 2 ttl_steps: 40 tombstones: true", .capacity = 1000},
    {.lifecycle = "when_full: EVICT_LEAST_FREQUENT admit_probability: 0.5 tombstones: true", .capacity = 700},
    {.lifecycle = "when_full: EVICT_LEAST_RECENT ttl_steps: 12", .capacity = 5000, .shards = 4096},
    {.lifecycle = "click: \"c\" admit_score: 0.5"},
    {.lifecycle = "click: \"c\" decay_every_steps: 7 decay: 0.8 min_score: 0.3 tombstones: true"},
    {.lifecycle = "click: \"c\" admit_after: 2 decay_every_steps: 40 decay: 0.5 min_score: 0.4", .shards = 64},
    {.lifecycle = "click: \"c\" show_coefficient: -0.5 when_full: EVICT_LEAST_FREQUENT tombstones: true",
     .capacity = 1500},
    {.lifecycle =
         "click: \"c\" admit_score: 0.4 decay_every_steps: 3 decay: 0.9 min_score: 0.2 ttl_steps: 50 when_full: "
         "EVICT_LEAST_FREQUENT",
     .capacity = 900},
};

#ifdef WEIR_TSAN
constexpr int64_t kSteps = 70;  // maps are slow there
#else
constexpr int64_t kSteps = 300;
#endif

// Millions of updates under every policy, on one server and cut over three with other stripes and threads; now and then
// everything is saved, forgotten and loaded.
TEST(TableLifecycleTest, BehavesAsTheModelUnderEveryPolicyHoweverItIsCut) {
  ThreadPool pool("test", 2);
  std::mt19937_64 random(3);
  int64_t updates = 0;
  for (TableSettings setup : kSetups) {
    Model model{.settings = Lifecycle(setup.lifecycle),
                .capacity = setup.capacity,
                .shards = setup.shards,
                .rules = LifecycleRules(Lifecycle(setup.lifecycle), 7, "t", setup.capacity, setup.shards)};
    // [0]: alone. [1..3]: three servers.
    std::vector<std::unique_ptr<SparseTable>> tables;
    setup.end = setup.shards;
    tables.push_back(MakeTable(setup));
    for (uint32_t s = 0; s < 3; ++s) {
      setup.begin = s * setup.shards / 3;
      setup.end = (s + 1) * setup.shards / 3;
      setup.stripes = 1 << s;
      tables.push_back(MakeTable(setup));
    }
    for (int64_t step = 0; step < kSteps; ++step) {
      std::set<int64_t> distinct;
      const size_t n = step % 50 == 7 ? 6000 : random() % 1200;
      while (distinct.size() < n) {
        const uint64_t any = random();
        distinct.insert(any % 4 == 0 ? static_cast<int64_t>(any) : static_cast<int64_t>(any % 9001) - 4500);
      }
      std::vector<int64_t> ids(distinct.begin(), distinct.end());
      std::shuffle(ids.begin(), ids.end(), random);
      updates += static_cast<int64_t>(ids.size());
      for (int64_t id : ids) model.Update(id, 1, step);
      model.EndStep(step);
      Step(*tables[0], ids, {.step = step}, step % 2 == 0 ? &pool : nullptr);
      for (size_t s = 1; s < 4; ++s) {
        std::vector<int64_t> own;
        for (int64_t id : ids) {
          if (tables[s]->Owns(id)) own.push_back(id);
        }
        Step(*tables[s], own, {.step = step}, step % 3 == 0 ? &pool : nullptr);
      }
      if (step % 60 == 59) {
        for (auto& table : tables) {
          std::vector<int64_t> row_ids, memory_ids[2], some;
          std::vector<float> row_floats, memory_words[2], floats;
          for (int s = 0; s < table->stripes(); ++s) {
            ASSERT_TRUE(table->CopyStripe(s, &some, &floats).ok());
            row_ids.insert(row_ids.end(), some.begin(), some.end());
            row_floats.insert(row_floats.end(), floats.begin(), floats.end());
            for (auto memory : {SparseTable::kCandidates, SparseTable::kTombstones}) {
              if (table->words(memory).empty()) continue;
              table->CopyMemory(memory, s, &some, &floats);
              memory_ids[memory].insert(memory_ids[memory].end(), some.begin(), some.end());
              memory_words[memory].insert(memory_words[memory].end(), floats.begin(), floats.end());
            }
          }
          ASSERT_TRUE(table->Clear().ok());
          ASSERT_EQ(table->size(), 0);
          ASSERT_TRUE(table->SetRows(row_ids, row_floats.data()).ok());
          for (auto memory : {SparseTable::kCandidates, SparseTable::kTombstones}) {
            if (table->words(memory).empty()) continue;
            ASSERT_TRUE(table->SetMemory(memory, memory_ids[memory], memory_words[memory].data()).ok());
          }
        }
      }
      SparseTable::Counts cut;
      for (size_t s = 1; s < 4; ++s) {
        const SparseTable::Counts counts = tables[s]->counts();
        cut.rows += counts.rows;
        cut.expired += counts.expired;
        cut.evicted += counts.evicted;
        cut.faded += counts.faded;
        cut.dropped += counts.dropped;
        cut.candidates += counts.candidates;
        cut.tombstones += counts.tombstones;
      }
      const SparseTable::Counts both[] = {tables[0]->counts(), cut};
      for (const SparseTable::Counts& counts : both) {
        ASSERT_EQ(counts.rows, static_cast<int64_t>(model.rows.size())) << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.expired, model.gone_by_time) << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.evicted, model.evicted) << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.faded, model.faded) << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.dropped, model.dropped) << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.candidates, static_cast<int64_t>(model.candidates.size()))
            << setup.lifecycle << " step " << step;
        ASSERT_EQ(counts.tombstones, static_cast<int64_t>(model.tombstones.size()))
            << setup.lifecycle << " step " << step;
      }
    }
    std::map<int64_t, float> alone, cut;
    for (size_t t = 0; t < 4; ++t) {
      for (int s = 0; s < tables[t]->stripes(); ++s) {
        const auto see = [&](int64_t id, const float* row) { (t == 0 ? alone : cut)[id] = row[0]; };
        EXPECT_TRUE(tables[t]->VisitStripe(s, see).ok());
      }
    }
    std::map<int64_t, float> expected;
    for (const auto& [id, row] : model.rows) expected[id] = row.value;
    EXPECT_EQ(alone, expected) << setup.lifecycle;
    EXPECT_EQ(cut, expected) << setup.lifecycle;
    if (!model.settings.has_click()) continue;
    Counted counted;
    for (const auto& [id, row] : model.rows) counted[id] = {row.shows, row.clicks};
    EXPECT_EQ(Shown(*tables[0]), counted) << setup.lifecycle;
  }
  EXPECT_GT(updates, 17 * 550 * kSteps);
}

// Pulls, updates and borders from several threads: no row is half of one update and half of another, and nothing is
// lost count of.
TEST(TableLifecycleTest, PullsUpdatesAndBordersMayMeet) {
  auto created =
      SparseTable::Create({.name = "t",
                           .width = 16,
                           .logical_shards = 64,
                           .shard_end = 64,
                           .capacity = 640,
                           .stripes = 8,
                           .initializer = RowInitializer(v1::Initializer(), 1, "t"),
                           .rule = std::make_unique<PlainSgd>(),
                           .lifecycle = Lifecycle("admit_after: 2 ttl_steps: 5 when_full: EVICT_LEAST_RECENT "
                                                  "tombstones: true")});
  ASSERT_TRUE(created.ok()) << created.status();
  SparseTable& table = **created;
  std::atomic<int64_t> step{0};
  std::atomic<int> torn{0}, done{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(t));
      for (int i = 0; i < 150; ++i) {
        std::set<int64_t> distinct;
        while (distinct.size() < 200) distinct.insert(static_cast<int64_t>(random() % 2000));
        const std::vector<int64_t> ids(distinct.begin(), distinct.end());
        const std::vector<float> grads(ids.size() * 16, 1);
        const RowTime time{.step = step.fetch_add(1)};
        EXPECT_TRUE(table.Update(ids, grads.data(), 1, 1, nullptr, time).ok());
        for (int s = 0; s < table.stripes(); ++s) EXPECT_TRUE(table.EndStep(s, time).ok());
      }
      ++done;
    });
    threads.emplace_back([&, t] {
      std::mt19937_64 random(static_cast<uint64_t>(10 + t));
      while (done < 2) {
        std::vector<int64_t> ids(300);
        for (int64_t& id : ids) id = static_cast<int64_t>(random() % 2000);
        std::vector<float> out(ids.size() * 16);
        EXPECT_TRUE(table.Pull(ids, /*create=*/false, out.data(), nullptr).ok());
        for (size_t r = 0; r < ids.size(); ++r) {
          for (size_t j = 1; j < 16; ++j) torn += out[r * 16 + j] != out[r * 16];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  const SparseTable::Counts counts = table.counts();
  EXPECT_EQ(counts.rows, counts.made - counts.expired - counts.evicted);
  EXPECT_EQ(counts.rows, static_cast<int64_t>(Rows(table).size()));
  EXPECT_EQ(counts.rows, table.size());
}

}  // namespace
}  // namespace weir
