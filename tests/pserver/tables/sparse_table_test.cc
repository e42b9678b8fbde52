#include "pserver/tables/sparse_table.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/stable_hash.h"
#include "framework/runtime/row_values.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// State: number of updates. Values: value - rate * gradient / divisor.
class CountingSgd : public RowRule {
 public:
  std::vector<State> states(int) const override { return {{"count", 1}}; }
  void InitState(int, float* state) const override { *state = 0; }
  void Update(int width, float rate, float divisor, int64_t n, float* const* rows,
              const float* const* grads) const override {
    for (int64_t i = 0; i < n; ++i) {
      for (int j = 0; j < width; ++j) rows[i][j] -= rate * (grads[i][j] / divisor);
      rows[i][width] += 1;
    }
  }
};

RowInitializer Constant(double value) {
  v1::Initializer init;
  init.mutable_constant()->set_value(value);
  return RowInitializer(init, 1, "t");
}
RowInitializer Uniform(v1::DType values = v1::FLOAT32) {
  v1::Initializer init;
  init.mutable_uniform()->set_min(-1);
  init.mutable_uniform()->set_max(1);
  return RowInitializer(init, 1, "t", values);
}

struct TableSetup {
  int width = 1;
  uint32_t shards = 4096, begin = 0, end = 4096;
  int64_t capacity = 0;
  int stripes = 16;
  RowInitializer initializer = Constant(0.5);
  bool rule = true;
  v1::DType values = v1::FLOAT32;
};
std::unique_ptr<SparseTable> MakeTable(TableSetup setup = {}) {
  SparseTableOptions options{.name = "t",
                             .width = setup.width,
                             .logical_shards = setup.shards,
                             .shard_begin = setup.begin,
                             .shard_end = setup.end,
                             .capacity = setup.capacity,
                             .stripes = setup.stripes,
                             .values = setup.values,
                             .initializer = setup.initializer};
  if (setup.rule) options.rule = std::make_unique<CountingSgd>();
  auto table = SparseTable::Create(std::move(options));
  EXPECT_TRUE(table.ok()) << table.status();
  return std::move(*table);
}

std::vector<float> Pull(SparseTable& table, const std::vector<int64_t>& ids, bool create = true) {
  std::vector<float> out(ids.size() * static_cast<size_t>(table.width()));
  const absl::Status status = table.Pull(ids, create, out.data(), nullptr);
  EXPECT_TRUE(status.ok()) << status;
  return out;
}

TEST(SparseTableTest, RowsAreMadeOnFirstUseWithTheirInitialValues) {
  auto table = MakeTable();
  EXPECT_EQ(table->size(), 0);
  EXPECT_THAT(Pull(*table, {7, 8, 7}), ElementsAre(0.5f, 0.5f, 0.5f));
  EXPECT_EQ(table->size(), 2);
}

// An update takes the places of rows from the pulls before it; what it does may not depend on that.
TEST(SparseTableTest, ZeroColumnsTakeThePlaceOfInitialValues) {
  for (const v1::DType values : {v1::FLOAT32, v1::BFLOAT16}) {
    auto table = MakeTable({.width = 4, .initializer = Uniform(values), .values = values});
    const std::vector<float> whole = Pull(*table, {7, 8}, /*create=*/false);
    table->SetZeroColumns(1, 3);
    for (const bool create : {false, true, false}) {
      EXPECT_THAT(Pull(*table, {7, 8}, create), ElementsAre(whole[0], 0, 0, whole[3], whole[4], 0, 0, whole[7]));
    }
    // Columns 2 and 3 of rows of 5 floats.
    const std::vector<int64_t> ids = {8, 7};
    std::vector<float> rows(10, -1);
    table->InitialValues(ids, 2, 4, rows.data() + 2, 5);
    EXPECT_THAT(rows, ElementsAre(-1, -1, 0, whole[7], -1, -1, -1, 0, whole[3], -1));
    EXPECT_THAT(table->InitialState(), ElementsAre(0));
    // Rows that exist stay.
    table->SetZeroColumns(0, 0);
    EXPECT_EQ(Pull(*table, {7}), (std::vector<float>{whole[0], 0, 0, whole[3]}));
    EXPECT_NE(Pull(*table, {9})[1], 0);
  }
}

TEST(SparseTableTest, UpdatesAreTheSameWhateverWasReadBefore) {
  std::mt19937_64 random(9);
  auto read = MakeTable({.width = 3}), unread = MakeTable({.width = 3});
  const auto by_key = [](int64_t a, int64_t b) {
    return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b));
  };
  const auto some_ids = [&](size_t n) {
    std::vector<int64_t> ids(n);
    for (int64_t& id : ids) id = static_cast<int64_t>(random() % 3000) - 1500;
    std::sort(ids.begin(), ids.end(), by_key);
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
  };
  for (int step = 0; step < 300; ++step) {
    const std::vector<int64_t> ids = some_ids(random() % 900);
    // None, all in two calls, a part, or those of somebody else.
    if (step % 4 == 1) {
      const size_t cut = ids.size() / 2;
      Pull(*read, {ids.begin(), ids.begin() + static_cast<ptrdiff_t>(cut)}, /*create=*/false);
      Pull(*read, {ids.begin() + static_cast<ptrdiff_t>(cut), ids.end()}, /*create=*/false);
    } else if (step % 4 == 2) {
      std::vector<int64_t> part;
      for (int64_t id : ids) {
        if (random() % 2 == 0) part.push_back(id);
      }
      Pull(*read, part, /*create=*/false);
    } else if (step % 4 == 3) {
      Pull(*read, some_ids(700), /*create=*/false);
      Pull(*read, some_ids(700), /*create=*/false);
    }
    std::vector<float> grads(ids.size() * 3);
    for (float& g : grads) g = static_cast<float>(random() % 100);
    for (SparseTable* table : {read.get(), unread.get()}) {
      ASSERT_TRUE(table->Update(ids, grads.data(), 2, 0.25f, nullptr).ok());
    }
  }
  for (int s = 0; s < read->stripes(); ++s) {
    std::vector<int64_t> ids, other_ids;
    std::vector<float> rows, other_rows;
    ASSERT_TRUE(read->CopyStripe(s, &ids, &rows).ok());
    ASSERT_TRUE(unread->CopyStripe(s, &other_ids, &other_rows).ok());
    EXPECT_EQ(ids, other_ids);
    EXPECT_EQ(rows, other_rows);
  }
}

TEST(SparseTableTest, ReadingWithoutCreatingLeavesNoRow) {
  auto table = MakeTable();
  EXPECT_THAT(Pull(*table, {7}, /*create=*/false), ElementsAre(0.5f));
  EXPECT_EQ(table->size(), 0);
}

TEST(SparseTableTest, AnUpdateDividesTheSumBySamples) {
  auto table = MakeTable({.width = 2});
  const std::vector<int64_t> ids = {3};
  const std::vector<float> grads = {4, 8};
  ASSERT_TRUE(table->Update(ids, grads.data(), /*divisor=*/4, /*learning_rate=*/0.25f, nullptr).ok());
  EXPECT_THAT(Pull(*table, {3}), ElementsAre(0.25f, 0.0f));  // 0.5 - 0.25 * 4/4, 0.5 - 0.25 * 8/4
}

TEST(SparseTableTest, AValueThatIsNotFiniteIsAnErrorWithItsRow) {
  auto table = MakeTable({.width = 5});
  const std::vector<int64_t> ids = {3, -4, 9};
  std::vector<float> grads(15, 1);
  grads[9] = 3e38f;
  ASSERT_TRUE(table->Update(ids, grads.data(), /*divisor=*/1, /*learning_rate=*/1, nullptr).ok());
  const absl::Status status = table->Update(ids, grads.data(), /*divisor=*/1, /*learning_rate=*/1, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table t: row -4 is -inf after its update"));
}

TEST(SparseTableTest, EveryInt64IsAnId) {
  auto table = MakeTable();
  const std::vector<int64_t> ids = {0, -1, 1, kMin, kMax, kMin + 1};
  std::vector<float> grads = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(table->Update(ids, grads.data(), 1, 1, nullptr).ok());
  EXPECT_THAT(Pull(*table, ids), ElementsAre(-0.5f, -1.5f, -2.5f, -3.5f, -4.5f, -5.5f));
  EXPECT_EQ(table->size(), 6);
}

TEST(SparseTableTest, ValuesOfARowDependOnItsIdAlone) {
  auto one = MakeTable({.width = 8, .stripes = 16, .initializer = Uniform()});
  auto other = MakeTable({.width = 8, .stripes = 4, .initializer = Uniform()});
  std::vector<int64_t> ids(1000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i * 977);
  const std::vector<float> forward = Pull(*one, ids);
  std::reverse(ids.begin(), ids.end());
  std::vector<float> backward = Pull(*other, ids);
  for (size_t i = 0; i < ids.size(); ++i) {
    for (int j = 0; j < 8; ++j) EXPECT_EQ(forward[i * 8 + j], backward[(ids.size() - 1 - i) * 8 + j]);
  }
}

TEST(SparseTableTest, AnIdOfAnotherServerIsRefusedByName) {
  auto table = MakeTable({.shards = 4, .begin = 0, .end = 2});
  int64_t foreign = 0;
  while (LogicalShard(foreign, 4) < 2) ++foreign;
  EXPECT_FALSE(table->Owns(foreign));
  float out;
  const absl::Status status = table->Pull({foreign}, true, &out, nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("logical shard"));
  EXPECT_EQ(table->size(), 0);
}

TEST(SparseTableTest, OverCapacityNamesTableCapacityAndTheWayOut) {
  auto table = MakeTable({.capacity = 100});
  std::vector<int64_t> ids(101);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<float> out(101);
  ASSERT_TRUE(table->Pull(absl::MakeSpan(ids).first(100), true, out.data(), nullptr).ok());
  const absl::Status status = table->Pull(ids, true, out.data(), nullptr);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table t is full"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("capacity 100"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("dict_size"));
  EXPECT_EQ(table->size(), 100);
  // Rows that exist are still served.
  EXPECT_TRUE(table->Pull(absl::MakeSpan(ids).first(100), true, out.data(), nullptr).ok());
}

TEST(SparseTableTest, ATableThatFitsIsNeverRefusedOnSeveralServers) {
  for (int64_t rows : {1, 10, 1000, 20000}) {
    auto left = MakeTable({.begin = 0, .end = 1365, .capacity = rows});
    auto middle = MakeTable({.begin = 1365, .end = 4096, .capacity = rows});
    for (int64_t id = 0; id < rows; ++id) Pull(left->Owns(id) ? *left : *middle, {id});
    EXPECT_EQ(left->size() + middle->size(), rows);
    EXPECT_LE(left->limit(), rows);
  }
}

TEST(SparseTableTest, ATableWithoutOptimizerReadsButIsNotUpdated) {
  auto table = MakeTable({.rule = false});
  EXPECT_THAT(Pull(*table, {1}), ElementsAre(0.5f));
  const float grad = 1;
  EXPECT_EQ(table->Update({1}, &grad, 1, 1, nullptr).code(), absl::StatusCode::kFailedPrecondition);
}

TEST(SparseTableTest, WrongSettingsAreRefused) {
  for (const TableSetup& setup : {TableSetup{.width = 0}, TableSetup{.shards = 1000, .end = 1000},
                                  TableSetup{.shards = 4, .end = 5}, TableSetup{.capacity = -1}}) {
    EXPECT_EQ(SparseTable::Create({.name = "t",
                                   .width = setup.width,
                                   .logical_shards = setup.shards,
                                   .shard_begin = setup.begin,
                                   .shard_end = setup.end,
                                   .capacity = setup.capacity,
                                   .initializer = setup.initializer})
                  .status()
                  .code(),
              absl::StatusCode::kInvalidArgument);
  }
}

TEST(SparseTableTest, CopiesComeByShardThenIdWhateverTheStripes) {
  std::vector<int64_t> first;
  for (int stripes : {1, 8, 64}) {
    auto table = MakeTable({.stripes = stripes});
    for (int64_t id = -500; id < 500; ++id) Pull(*table, {id * 1000003});
    std::vector<int64_t> all;
    std::vector<float> floats;
    for (int s = 0; s < table->stripes(); ++s) {
      std::vector<int64_t> ids;
      std::vector<float> rows;
      ASSERT_TRUE(table->CopyStripe(s, &ids, &rows).ok());
      ASSERT_EQ(rows.size(), ids.size() * 2);
      for (int64_t id : ids) EXPECT_GE(MixId(static_cast<uint64_t>(id)), table->StripeBegin(s));
      all.insert(all.end(), ids.begin(), ids.end());
    }
    ASSERT_EQ(all.size(), 1000u);
    EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](int64_t a, int64_t b) {
      const uint32_t x = LogicalShard(a, 4096), y = LogicalShard(b, 4096);
      return x != y ? x < y : a < b;
    }));
    if (first.empty()) first = all;
    EXPECT_EQ(all, first);
  }
}

TEST(SparseTableTest, ChangesAddToValuesOfRowsThatExistAndLeaveTheirState) {
  auto table = MakeTable({.width = 2});
  const std::vector<int64_t> ids = {kMax, -3, kMin};
  ASSERT_TRUE(table->SetRows(ids, std::vector<float>{1, 2, 9, 3, 4, 8, 5, 6, 7}.data()).ok());
  ASSERT_TRUE(table->AddToValues({kMin, kMax}, std::vector<float>{0.5, -1, 10, 20}.data()).ok());
  std::vector<float> values(6);
  ASSERT_TRUE(table->Pull(ids, /*create=*/false, values.data(), nullptr).ok());
  EXPECT_EQ(values, (std::vector<float>{11, 22, 3, 4, 5.5, 5}));
  for (int s = 0; s < table->stripes(); ++s) {
    const absl::Status visited = table->VisitStripe(s, [](int64_t id, const float* row) {
      EXPECT_EQ(row[2], id == kMax ? 9 : id == kMin ? 7 : 8);
    });
    EXPECT_TRUE(visited.ok());
  }
  const absl::Status missing = table->AddToValues({12}, std::vector<float>{1, 1}.data());
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound) << missing;
  EXPECT_NE(missing.message().find("has no row 12"), absl::string_view::npos) << missing;
  EXPECT_EQ(table->size(), 3);
}

TEST(SparseTableTest, WholeRowsAreSetAndCleared) {
  auto table = MakeTable();
  const std::vector<int64_t> ids = {5, -5};
  const std::vector<float> rows = {1, 10, 2, 20};
  ASSERT_TRUE(table->SetRows(ids, rows.data()).ok());
  std::map<int64_t, std::vector<float>> seen;
  for (int s = 0; s < table->stripes(); ++s) {
    EXPECT_TRUE(table->VisitStripe(s, [&](int64_t id, const float* row) { seen[id] = {row[0], row[1]}; }).ok());
  }
  EXPECT_THAT(seen[5], ElementsAre(1, 10));
  EXPECT_THAT(seen[-5], ElementsAre(2, 20));
  EXPECT_TRUE(table->Clear().ok());
  EXPECT_EQ(table->size(), 0);
  EXPECT_THAT(Pull(*table, {5}), ElementsAre(0.5f));
}

// Millions of random row operations against std::map, with growth, in batches of every shape.
TEST(SparseTableTest, BehavesAsAMapUnderRandomOperations) {
  std::mt19937_64 random(11);
  for (uint32_t shards : {1u, 64u, 4096u}) {
    auto table = MakeTable({.width = 3, .shards = shards, .end = shards, .initializer = Uniform()});
    ThreadPool pool("test", 2);
    std::map<int64_t, std::vector<float>> model;
    const auto model_row = [&](int64_t id, bool create) {
      auto found = model.find(id);
      if (found != model.end()) return found->second;
      std::vector<float> row(4, 0);
      Uniform().Fill(id, absl::MakeSpan(row).first(3));
      if (create) model[id] = row;
      return row;
    };
    for (int round = 0; round < 300; ++round) {
      const size_t n = random() % 10 == 0 ? 8000 : random() % 300;
      std::vector<int64_t> ids(n);
      for (int64_t& id : ids) {
        id = random() % 3 == 0 ? static_cast<int64_t>(random()) : static_cast<int64_t>(random() % 20000) - 10000;
      }
      const auto by_hash = [](int64_t a, int64_t b) {
        return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b));
      };
      if (random() % 2 == 0) std::sort(ids.begin(), ids.end(), by_hash);
      ThreadPool* const maybe_pool = random() % 2 == 0 ? &pool : nullptr;
      if (random() % 2 == 0) {
        const bool create = random() % 2 == 0;
        std::vector<float> out(n * 3);
        ASSERT_TRUE(table->Pull(ids, create, out.data(), maybe_pool).ok());
        for (size_t i = 0; i < n; ++i) {
          const std::vector<float> row = model_row(ids[i], create);
          for (size_t j = 0; j < 3; ++j) ASSERT_EQ(out[i * 3 + j], row[j]);
        }
      } else {
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        if (random() % 2 == 0) std::sort(ids.begin(), ids.end(), by_hash);
        std::vector<float> grads(ids.size() * 3);
        for (float& g : grads) g = static_cast<float>(random() % 1000) / 100;
        ASSERT_TRUE(table->Update(ids, grads.data(), 3, 0.1f, maybe_pool).ok());
        for (size_t i = 0; i < ids.size(); ++i) {
          model_row(ids[i], true);
          std::vector<float>& row = model[ids[i]];
          for (size_t j = 0; j < 3; ++j) row[j] -= 0.1f * (grads[i * 3 + j] / 3);
          row[3] += 1;
        }
      }
      ASSERT_EQ(table->size(), static_cast<int64_t>(model.size()));
    }
    int64_t seen = 0;
    for (int s = 0; s < table->stripes(); ++s) {
      const absl::Status visited = table->VisitStripe(s, [&](int64_t id, const float* row) {
        const std::vector<float>& expected = model.at(id);
        for (size_t j = 0; j < 4; ++j) EXPECT_EQ(row[j], expected[j]);
        ++seen;
      });
      EXPECT_TRUE(visited.ok());
    }
    EXPECT_EQ(seen, static_cast<int64_t>(model.size()));
  }
}

class SixteenBitTableTest : public ::testing::TestWithParam<v1::DType> {};
INSTANTIATE_TEST_SUITE_P(Types, SixteenBitTableTest, ::testing::Values(v1::FLOAT16, v1::BFLOAT16),
                         [](const auto& type) { return v1::DType_Name(type.param); });

// Whatever the stripes, threads and order: the row of an id is what the plain form makes of it, step by step.
TEST_P(SixteenBitTableTest, RowsAreUpdatedAsFloatsAndRoundedByIdAndStep) {
  const RowValues plain(GetParam(), 1, "t");
  for (int width : {1, 5, 16}) {
    const size_t w = static_cast<size_t>(width);
    for (int stripes : {1, 16}) {
      auto table =
          MakeTable({.width = width, .stripes = stripes, .initializer = Uniform(GetParam()), .values = GetParam()});
      ThreadPool pool("test", 2);
      std::map<int64_t, std::vector<float>> model;
      std::mt19937_64 random(11);
      for (int64_t step = 0; step < 40; ++step) {
        std::vector<int64_t> ids(step % 10 == 0 ? 6000 : 200);
        for (int64_t& id : ids) id = static_cast<int64_t>(random() % 8000) - 4000;
        std::sort(ids.begin(), ids.end());
        ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
        std::shuffle(ids.begin(), ids.end(), random);
        std::vector<float> grads(ids.size() * w);
        for (float& g : grads) g = static_cast<float>(random() % 1000) / 1000 - 0.5f;
        ASSERT_TRUE(table->Update(ids, grads.data(), 3, 0.01f, step % 2 == 0 ? &pool : nullptr, {.step = step}).ok());
        for (size_t i = 0; i < ids.size(); ++i) {
          auto [row, fresh] = model.try_emplace(ids[i], w + 1, 0.0f);
          if (fresh) Uniform(GetParam()).Fill(ids[i], absl::MakeSpan(row->second).first(w));
          for (size_t j = 0; j < w; ++j) row->second[j] -= 0.01f * (grads[i * w + j] / 3);
          row->second[w] += 1;
          plain.Round(step, ids[i], absl::MakeSpan(row->second).first(w));
        }
      }
      // Pulled, copied and visited.
      std::vector<int64_t> ids;
      for (const auto& [id, row] : model) ids.push_back(id);
      std::vector<float> pulled = Pull(*table, ids, /*create=*/false);
      size_t at = 0;
      for (const auto& [id, row] : model) {
        for (size_t j = 0; j < w; ++j) ASSERT_EQ(pulled[at++], row[j]) << id << " " << j;
      }
      size_t copied = 0, visited = 0;
      for (int s = 0; s < table->stripes(); ++s) {
        std::vector<float> rows;
        ASSERT_TRUE(table->CopyStripe(s, &ids, &rows).ok());
        for (size_t i = 0; i < ids.size(); ++i, ++copied) {
          ASSERT_EQ(std::vector<float>(rows.begin() + static_cast<ptrdiff_t>(i * (w + 1)),
                                       rows.begin() + static_cast<ptrdiff_t>((i + 1) * (w + 1))),
                    model.at(ids[i]));
        }
        ASSERT_TRUE(table
                        ->VisitStripe(s,
                                      [&](int64_t id, const float* row) {
                                        EXPECT_EQ(std::vector<float>(row, row + w + 1), model.at(id));
                                        ++visited;
                                      })
                        .ok());
      }
      EXPECT_EQ(copied, model.size());
      EXPECT_EQ(visited, model.size());
    }
  }
}

TEST_P(SixteenBitTableTest, RowsTakeHalfTheBytesOfTheirValues) {
  std::vector<int64_t> ids(200000);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  const auto bytes = [&](v1::DType values) {
    auto table = MakeTable({.width = 32, .stripes = 1, .initializer = Uniform(values), .values = values});
    Pull(*table, ids);
    return static_cast<double>(table->bytes()) / static_cast<double>(ids.size());
  };
  // Chunks are not full to the last byte.
  EXPECT_NEAR(bytes(v1::FLOAT32) - bytes(GetParam()), 64, 4);
}

TEST_P(SixteenBitTableTest, RowsThatAreSetGoToTheNearestAndReadBackAsTheyAre) {
  auto table = MakeTable({.width = 3, .values = GetParam()});
  ASSERT_TRUE(table->SetRows({5, 6}, std::vector<float>{0.1f, 0.5f, -0.0f, 7.1f, 1, 2, 3, 8.2f}.data()).ok());
  const float tenth = GetParam() == v1::FLOAT16 ? 0.0999755859375f : 0.10009765625f;
  EXPECT_THAT(Pull(*table, {5, 6}), ElementsAre(tenth, 0.5f, -0.0f, 1, 2, 3));
  // State is not rounded.
  std::vector<float> states;
  for (int s = 0; s < table->stripes(); ++s) {
    EXPECT_TRUE(table->VisitStripe(s, [&](int64_t, const float* row) { states.push_back(row[3]); }).ok());
  }
  std::sort(states.begin(), states.end());
  EXPECT_THAT(states, ElementsAre(7.1f, 8.2f));
  // Initial values likewise: 0.3 is none of either type.
  EXPECT_NE(ToNearest(GetParam(), 0.3f), 0.3f);
  v1::Initializer init;
  init.mutable_constant()->set_value(0.3);
  auto other = MakeTable({.initializer = RowInitializer(init, 1, "t", GetParam()), .values = GetParam()});
  EXPECT_THAT(Pull(*other, {1}, /*create=*/false), ElementsAre(ToNearest(GetParam(), 0.3f)));
  EXPECT_THAT(Pull(*other, {1}), ElementsAre(ToNearest(GetParam(), 0.3f)));
}

TEST_P(SixteenBitTableTest, DifferencesAreNotAdded) {
  auto table = MakeTable({.values = GetParam()});
  Pull(*table, {5});
  const float change = 1;
  const absl::Status status = table->AddToValues({5}, &change);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("table t has " + v1::DType_Name(GetParam()) + " values"));
}

TEST(SparseTableTest, OtherTypesOfValuesAreRefused) {
  const auto table = SparseTable::Create({.name = "t", .width = 1, .values = v1::INT64, .initializer = Constant(0)});
  EXPECT_EQ(table.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(table.status().message()), HasSubstr("values are INT64"));
}

// A row is read under its stripe's lock: all its floats come from the same update, whoever else writes.
TEST(SparseTableTest, ChangedRowsAreFoundWhateverChangedThem) {
  auto table = MakeTable({.stripes = 8});
  std::vector<int64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  std::vector<int64_t> sorted = ids;
  std::sort(sorted.begin(), sorted.end(),
            [](int64_t a, int64_t b) { return MixId(static_cast<uint64_t>(a)) < MixId(static_cast<uint64_t>(b)); });
  const auto changed = [&](const std::vector<int64_t>& of) {
    std::vector<uint32_t> positions;
    std::vector<float> rows;
    EXPECT_TRUE(table->PullChanged(of, &positions, &rows).ok());
    std::vector<int64_t> found;
    for (size_t k = 0; k < positions.size(); ++k) {
      found.push_back(of[positions[k]]);
      EXPECT_EQ(rows[k], Pull(*table, {found.back()}, /*create=*/false)[0]);
    }
    std::sort(found.begin(), found.end());
    return found;
  };
  // Nothing is recorded.
  EXPECT_EQ(changed(sorted), ids);
  table->BeginChanges(/*record=*/false);
  EXPECT_EQ(changed(ids), ids);
  table->BeginChanges(/*record=*/true);
  EXPECT_THAT(changed(ids), ElementsAre());
  const std::vector<float> grads(3, 1.0f);
  ASSERT_TRUE(table->Update({5, 150, 77}, grads.data(), 1, 0.1f, nullptr).ok());
  for (const auto& of : {ids, sorted}) EXPECT_THAT(changed(of), ElementsAre(5, 77, 150));
  Pull(*table, {1, 2, 3});  // reading changes nothing
  const std::vector<float> change = {0.25f};
  ASSERT_TRUE(table->AddToValues({2}, change.data()).ok());
  const std::vector<float> row = {1.0f, 2.0f};
  ASSERT_TRUE(table->SetRows({9}, row.data()).ok());
  EXPECT_THAT(changed(sorted), ElementsAre(2, 5, 9, 77, 150));
  table->BeginChanges(/*record=*/true);
  EXPECT_THAT(changed(sorted), ElementsAre());
  ASSERT_TRUE(table->Clear().ok());
  EXPECT_EQ(changed(sorted), ids);
  table->BeginChanges(/*record=*/true);
  EXPECT_THAT(changed(sorted), ElementsAre());
  table->BeginChanges(/*record=*/false);
  EXPECT_EQ(changed(sorted), ids);
}

TEST(SparseTableTest, ConcurrentReadersNeverSeeHalfAnUpdate) {
  auto table = MakeTable({.width = 16, .initializer = Constant(0)});
  std::vector<int64_t> ids(200);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i);
  constexpr int kRounds = 200;
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      std::vector<float> grads(ids.size() * 16, -1);
      for (int i = 0; i < kRounds; ++i) EXPECT_TRUE(table->Update(ids, grads.data(), 1, 1, nullptr).ok());
    });
    threads.emplace_back([&, t] {
      std::vector<float> out(ids.size() * 16);
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_TRUE(table->Pull(ids, t == 0, out.data(), nullptr).ok());
        for (size_t r = 0; r < ids.size(); ++r) {
          for (size_t j = 1; j < 16; ++j) torn += out[r * 16 + j] != out[r * 16];
        }
        // Growth goes on meanwhile.
        const std::vector<int64_t> fresh = {1000 + i * 2 + t, -1000 - i * 2 - t};
        Pull(*table, fresh);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_THAT(Pull(*table, {0, 199})[0], 2 * kRounds);
}

}  // namespace
}  // namespace weir
