// Values of other examples: the same whatever trainer has read them, and of all the input.

#include "trainer/predict/drawn_values.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<Column> Columns() {
  return {{.name = "x", .width = 2},
          {.name = "unread"},
          {.name = "ids", .kind = v1::IDS, .width = 2, .slot_names = {"a", "b"}}};
}
const std::vector<size_t> kRead = {0, 2};

// Example n, at offset n of file 0: x = n, n + 0.5; slot a has n % 3 ids, slot b the id -n.
LaneBatch Examples(int64_t begin, int64_t end) {
  LaneBatch batch{.examples = end - begin};
  Tensor x(v1::FLOAT32, {batch.examples, 2}), unread(v1::FLOAT32, {batch.examples, 1});
  IdBatch ids{.slots = 2, .offsets = {0}};
  for (int64_t n = begin; n < end; ++n) {
    x.data<float>()[(n - begin) * 2] = static_cast<float>(n);
    x.data<float>()[(n - begin) * 2 + 1] = static_cast<float>(n) + 0.5f;
    unread.data<float>()[n - begin] = 1;
    for (int64_t k = 0; k < n % 3; ++k) ids.values.push_back(n * 10 + k);
    ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
    ids.values.push_back(-n);
    ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
    batch.positions.push_back({.file = 0, .offset = n});
  }
  batch.vars = {std::move(x), std::move(unread), std::move(ids)};
  return batch;
}

// What a trainer that reads these ranges of examples draws.
std::string Drawn(uint64_t seed, const std::vector<std::pair<int64_t, int64_t>>& ranges) {
  ExampleDraw draw(seed, Columns(), kRead);
  for (const auto& [begin, end] : ranges) draw.Add(Examples(begin, end));
  return draw.Serialize();
}

DrawnValues Merged(uint64_t seed, const std::vector<std::string>& drawn) {
  auto merged = DrawnValues::Merge(seed, Columns(), kRead, drawn);
  EXPECT_TRUE(merged.ok()) << merged.status();
  return *std::move(merged);
}

std::vector<float> XOf(const DrawnValues& drawn, int repeat, const LaneBatch& batch) {
  Tensor copy(v1::FLOAT32, {batch.examples, 2});
  copy.CopyFrom(std::get<Tensor>(batch.vars[0]));
  std::vector<Variable> vars = {copy, Tensor(), batch.vars[2]};
  drawn.Replace({.column = 0, .at = 0}, repeat, batch, &vars);
  const float* const x = std::get<Tensor>(vars[0]).data<float>();
  return {x, x + batch.examples * 2};
}

TEST(DrawnValuesTest, AreTheSameHoweverTrainersShareTheExamples) {
  const LaneBatch batch = Examples(0, 200);
  const std::vector<float> alone = XOf(Merged(7, {Drawn(7, {{0, 70000}})}), 0, batch);
  const std::vector<float> shared =
      XOf(Merged(7, {Drawn(7, {{50000, 70000}, {10, 20}}), Drawn(7, {{20, 50000}, {0, 10}}), Drawn(7, {})}), 0, batch);
  EXPECT_EQ(alone, shared);
  EXPECT_NE(alone, XOf(Merged(7, {Drawn(7, {{0, 70000}})}), 1, batch)) << "a repeat draws anew";
  EXPECT_NE(alone, XOf(Merged(8, {Drawn(8, {{0, 70000}})}), 0, batch)) << "so does a seed";
}

TEST(DrawnValuesTest, AreOfAllTheInput) {
  // 70,000 examples in the order of their values.
  const DrawnValues drawn = Merged(3, {Drawn(3, {{0, 70000}})});
  EXPECT_EQ(drawn.examples(), static_cast<int64_t>(ExampleDraw::kMostExamples));
  double sum = 0;
  std::set<float> different;
  const std::vector<float> x = XOf(drawn, 0, Examples(0, 5000));
  for (size_t i = 0; i < x.size(); i += 2) {
    sum += x[i];
    different.insert(x[i]);
    EXPECT_EQ(x[i + 1], static_cast<float>(i / 2) + 0.5f) << "the value beside it stays";
  }
  // The mean of 5,000 numbers from 0 to 70,000 has a deviation of 286.
  EXPECT_NEAR(sum / 5000, 35000, 1430);
  EXPECT_GT(different.size(), 4400u);
}

TEST(DrawnValuesTest, ASlotGetsAllIdsOfAnotherExample) {
  const DrawnValues drawn = Merged(1, {Drawn(1, {{100, 103}})});
  const LaneBatch batch = Examples(0, 300);
  std::vector<Variable> vars = batch.vars;
  drawn.Replace({.column = 2, .at = 0}, 0, batch, &vars);
  const IdBatch& ids = std::get<IdBatch>(vars[2]);
  std::set<std::vector<int64_t>> seen;
  for (int64_t n = 0; n < 300; ++n) {
    const auto* const values = ids.values.data();
    seen.insert({values + ids.offsets[2 * n], values + ids.offsets[2 * n + 1]});
    ASSERT_EQ(ids.offsets[2 * n + 2] - ids.offsets[2 * n + 1], 1);
    EXPECT_EQ(values[ids.offsets[2 * n + 1]], -n) << "the slot beside it stays";
  }
  EXPECT_EQ(seen, (std::set<std::vector<int64_t>>{{1000}, {1010, 1011}, {}}));
}

TEST(DrawnValuesTest, ABlankSlotIsThatOfAnExampleWithoutIt) {
  const LaneBatch batch = Examples(4, 6);
  std::vector<Variable> vars = batch.vars;
  Blank({.column = 2, .at = 0, .missing_id = 99}, /*missing_id=*/true, &vars);
  Blank({.column = 0, .at = 1}, /*missing_id=*/true, &vars);
  EXPECT_THAT(std::get<IdBatch>(vars[2]).values, ElementsAre(99, -4, 99, -5));
  EXPECT_THAT(std::get<IdBatch>(vars[2]).offsets, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(std::vector<float>(std::get<Tensor>(vars[0]).data<float>(), std::get<Tensor>(vars[0]).data<float>() + 4),
              ElementsAre(4, 0, 5, 0));
  Blank({.column = 2, .at = 1, .missing_id = 98}, /*missing_id=*/false, &vars);
  EXPECT_THAT(std::get<IdBatch>(vars[2]).values, ElementsAre(99, 99));
  EXPECT_THAT(std::get<IdBatch>(vars[2]).offsets, ElementsAre(0, 1, 1, 2, 2));
}

TEST(DrawnValuesTest, WeightsGoWithTheirIds) {
  LaneBatch batch = Examples(0, 3);
  std::get<IdBatch>(batch.vars[2]).weights = {0.25f, 0.5f, 2, 3, 4, 5};
  ExampleDraw draw(1, Columns(), kRead);
  draw.Add(batch);
  const DrawnValues drawn = Merged(1, {draw.Serialize()});
  const LaneBatch others = Examples(3, 40);
  std::vector<Variable> vars = others.vars;
  drawn.Replace({.column = 2, .at = 1}, 0, others, &vars);
  const IdBatch& ids = std::get<IdBatch>(vars[2]);
  ASSERT_EQ(ids.weights.size(), ids.values.size());
  for (int64_t n = 0; n < 37; ++n) {
    const auto at = static_cast<size_t>(ids.offsets[static_cast<size_t>(2 * n + 1)]);
    const float weight = ids.values[at] == 0 ? 0.25f : ids.values[at] == -1 ? 2.0f : 5.0f;
    EXPECT_EQ(ids.weights[at], weight) << ids.values[at];
    for (auto k = static_cast<size_t>(ids.offsets[static_cast<size_t>(2 * n)]); k < at; ++k) {
      EXPECT_EQ(ids.weights[k], 1.0f);
    }
  }
}

TEST(DrawnValuesTest, BytesThatMakeNoSenseAreRefused) {
  const std::string good = Drawn(1, {{0, 5}});
  for (const std::string& bytes : {std::string(), std::string("-\xff\xff"), good.substr(0, good.size() - 3)}) {
    EXPECT_EQ(DrawnValues::Merge(1, Columns(), kRead, {good, bytes}).status().code(), absl::StatusCode::kDataLoss);
  }
  // Examples of other columns.
  EXPECT_EQ(DrawnValues::Merge(1, Columns(), {0}, {good}).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(DrawnValues::Merge(1, Columns(), kRead, {Drawn(1, {})}).status().message(), HasSubstr("no examples"));
}

}  // namespace
}  // namespace weir
