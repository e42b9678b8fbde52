#include "pserver/channels/row_cache.h"

#include <map>
#include <random>
#include <string>
#include <vector>

#include "framework/runtime/param_channel.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

v1::RowCache Settings(int64_t rows, int64_t max_steps) {
  v1::RowCache settings;
  settings.set_rows(rows);
  settings.set_max_steps(max_steps);
  return settings;
}

// Servers whose row of an id at step s is {id, s}. Counts what it is asked for.
class Servers : public RowSource {
 public:
  absl::Status BeginStep(int64_t step, bool read_only) override {
    step_ = step;
    read_only_ = read_only;
    return absl::OkStatus();
  }
  absl::Status PullRows(absl::Span<const TableRows> tables) override {
    for (const TableRows& table : tables) {
      for (size_t i = 0; i < table.ids->size(); ++i) {
        if (table.there != nullptr && table.there[i] != 0) continue;
        ++asked[table.table];
        table.rows[2 * i] = static_cast<float>((*table.ids)[i]);
        table.rows[2 * i + 1] = static_cast<float>(step_);
      }
    }
    return absl::OkStatus();
  }

  std::map<std::string, int64_t> asked;

 private:
  int64_t step_ = 0;
  bool read_only_ = false;
};

// Steps at which the rows of `ids` were read.
std::vector<float> Pull(CachedRowSource& cache, int64_t step, const std::vector<int64_t>& ids, bool read_only = false,
                        const std::string& table = "t") {
  std::vector<float> rows(2 * ids.size(), -1);
  const ParamChannel::TableRows pull{.table = table, .width = 2, .ids = &ids, .rows = rows.data()};
  EXPECT_TRUE(cache.BeginStep(step, read_only).ok());
  EXPECT_TRUE(cache.PullRows(absl::MakeConstSpan(&pull, 1)).ok());
  std::vector<float> steps;
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(rows[2 * i], static_cast<float>(ids[i]));
    steps.push_back(rows[2 * i + 1]);
  }
  return steps;
}

TEST(RowCacheTest, ARowServesAsManyStepsAsTheJobSays) {
  Servers servers;
  CachedRowSource cache({{"t", Settings(10, 2)}}, &servers, /*ahead=*/false);
  EXPECT_EQ(Pull(cache, 5, {1, 2}), (std::vector<float>{5, 5}));
  EXPECT_EQ(Pull(cache, 6, {2, 3}), (std::vector<float>{5, 6}));
  EXPECT_EQ(Pull(cache, 7, {1, 2, 3}), (std::vector<float>{5, 5, 6}));
  // Being used does not make a row newer.
  EXPECT_EQ(Pull(cache, 8, {1, 2, 3}), (std::vector<float>{8, 8, 6}));
  EXPECT_EQ(servers.asked["t"], 2 + 1 + 2);
}

TEST(RowCacheTest, ARowPulledAheadIsAStepOlderThanTheStepItIsFor) {
  Servers servers;
  CachedRowSource cache({{"t", Settings(10, 2)}}, &servers, /*ahead=*/true);
  EXPECT_EQ(Pull(cache, 5, {1, 2}), (std::vector<float>{5, 5}));
  // Read during step 4: it serves steps 5 and 6.
  EXPECT_EQ(Pull(cache, 6, {1}), (std::vector<float>{5}));
  EXPECT_EQ(Pull(cache, 7, {1, 2}), (std::vector<float>{7, 7}));
}

TEST(RowCacheTest, EvaluationAndOtherTablesGoPastIt) {
  Servers servers;
  CachedRowSource cache({{"t", Settings(10, 100)}}, &servers, /*ahead=*/false);
  Pull(cache, 1, {1, 2});
  EXPECT_EQ(Pull(cache, 2, {1, 2}, /*read_only=*/true), (std::vector<float>{2, 2}));
  EXPECT_EQ(Pull(cache, 3, {1, 2}), (std::vector<float>{1, 1}));
  Pull(cache, 4, {1, 2}, false, "u");
  EXPECT_EQ(Pull(cache, 5, {1, 2}, false, "u"), (std::vector<float>{5, 5}));
}

TEST(RowCacheTest, NoMoreRowsAreKeptThanTheJobSaysAndThoseOfTheStepStay) {
  CachedRows rows(Settings(3, 10), 1);
  const float value = 1;
  float out = 0;
  for (int64_t id = 0; id < 5; ++id) rows.Keep(id, 1, 1, &value);
  EXPECT_EQ(rows.size(), 3);
  int there = 0;
  for (int64_t id = 0; id < 5; ++id) there += rows.Take(id, 1, &out);
  EXPECT_EQ(there, 3);
  // In another step the oldest goes.
  EXPECT_TRUE(rows.Take(1, 2, &out));
  EXPECT_TRUE(rows.Take(2, 2, &out));
  rows.Keep(7, 3, 3, &value);
  EXPECT_EQ(rows.size(), 3);
  EXPECT_FALSE(rows.Take(0, 3, &out));
  EXPECT_TRUE(rows.Take(1, 3, &out));
  EXPECT_TRUE(rows.Take(2, 3, &out));
  EXPECT_TRUE(rows.Take(7, 3, &out));
}

// Whatever is asked for in whatever order: nothing is older than the bound, and what is asked for anew is kept.
TEST(RowCacheTest, NothingIsEverOlderThanItsBound) {
  std::mt19937_64 random(3);
  Servers servers;
  CachedRowSource cache({{"t", Settings(50, 3)}}, &servers, /*ahead=*/false);
  int64_t pulled = 0;
  for (int64_t step = 0; step < 5000; ++step) {
    std::vector<int64_t> ids;
    for (int64_t id = 0; id < 120; ++id) {
      if (random() % (2 + static_cast<uint64_t>(id)) == 0) ids.push_back(id * 1000003 - 17);
    }
    pulled += static_cast<int64_t>(ids.size());
    // Ids beyond 2^24 are no floats: compare the step alone.
    std::vector<float> rows(2 * ids.size());
    const ParamChannel::TableRows pull{.table = "t", .width = 2, .ids = &ids, .rows = rows.data()};
    ASSERT_TRUE(cache.BeginStep(step, false).ok());
    ASSERT_TRUE(cache.PullRows(absl::MakeConstSpan(&pull, 1)).ok());
    for (size_t i = 0; i < ids.size(); ++i) {
      ASSERT_EQ(rows[2 * i], static_cast<float>(ids[i]));
      ASSERT_GE(rows[2 * i + 1], static_cast<float>(step - 3));
    }
  }
  EXPECT_LT(servers.asked["t"], pulled * 9 / 10);
}

}  // namespace
}  // namespace weir
