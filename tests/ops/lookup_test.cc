#include <cstring>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Values;

IdBatch MakeIds(int64_t slots, const std::vector<std::vector<int64_t>>& by_slot, std::vector<float> weights = {}) {
  IdBatch ids;
  ids.slots = slots;
  ids.offsets.push_back(0);
  for (const std::vector<int64_t>& slot : by_slot) {
    ids.values.insert(ids.values.end(), slot.begin(), slot.end());
    ids.offsets.push_back(static_cast<int64_t>(ids.values.size()));
  }
  ids.weights = std::move(weights);
  return ids;
}

// Row r is [10 r + 1, 10 r + 2, ...].
std::vector<float> Table(int64_t rows, int64_t width) {
  std::vector<float> values;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t j = 0; j < width; ++j) values.push_back(static_cast<float>(10 * r + j + 1));
  }
  return values;
}

v1::OpAttr Pool(std::string_view pooling) { return AttrS("pooling", pooling); }

TEST(LookupTableTest, OneIdASlotIsAGather) {
  OpTest t("lookup_table");
  t.Ids("Ids", MakeIds(2, {{3}, {0}, {1}, {1}})).Fixed("W", {4, 2}, Table(4, 2));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 2}, {31, 32, 1, 2, 11, 12, 11, 12}, 0);
}

class GatherWidthTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Widths, GatherWidthTest, Values(1, 3, 8, 16, 17));

TEST_P(GatherWidthTest, EveryRowStandsAtItsId) {
  const int64_t width = GetParam(), n = 50;
  std::vector<std::vector<int64_t>> slots;
  std::vector<float> expected;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = i * 37 % 29;
    slots.push_back({id});
    for (int64_t j = 0; j < width; ++j) expected.push_back(static_cast<float>(10 * id + j + 1));
  }
  for (std::string_view pooling : {"none", "sum"}) {
    OpTest t("lookup_table", {Pool(pooling), AttrB("per_slot", true)});
    t.Ids("Ids", MakeIds(5, slots)).Fixed("W", {29, width}, Table(29, width));
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {10, 5, width}, expected, 0);
  }
}

TEST(LookupTableTest, SumTakesAllIdsOfAnExample) {
  OpTest t("lookup_table", {Pool("sum")});
  t.Ids("Ids", MakeIds(2, {{0, 1}, {2}, {}, {}})).Fixed("W", {3, 2}, Table(3, 2));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {1 + 11 + 21, 2 + 12 + 22, 0, 0}, 0);
}

TEST(LookupTableTest, PerSlotPoolsEachSlotByItself) {
  OpTest t("lookup_table", {Pool("mean"), AttrB("per_slot", true)});
  t.Ids("Ids", MakeIds(2, {{0, 1}, {2}, {}, {1}})).Fixed("W", {3, 1}, Table(3, 1));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 1}, {(1 + 11) / 2.0f, 21, 0, 11}, 0);
}

TEST(LookupTableTest, WeightsMultiplyRowsAndDivideMeans) {
  for (const auto& [pooling, expected] : std::vector<std::pair<std::string, float>>{
           {"sum", 3 * 1 + 4 * 11}, {"mean", (3 * 1 + 4 * 11) / 7.0f}, {"sqrt_n", (3 * 1 + 4 * 11) / 5.0f}}) {
    OpTest t("lookup_table", {Pool(pooling)});
    t.Ids("Ids", MakeIds(1, {{0, 1}}, {3, 4})).Fixed("W", {2, 1}, Table(2, 1));
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {1, 1}, {expected}, 1e-6);
  }
}

TEST(LookupTableTest, SqrtNDividesByTheRootOfTheCount) {
  OpTest t("lookup_table", {Pool("sqrt_n")});
  t.Ids("Ids", MakeIds(1, {{0, 0, 1, 1}})).Fixed("W", {2, 1}, Table(2, 1));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {24 / 2.0f}, 0);
}

TEST(LookupTableTest, WeightsThatCancelGiveZero) {
  OpTest t("lookup_table", {Pool("mean")});
  t.Ids("Ids", MakeIds(1, {{0, 1}}, {1, -1})).Fixed("W", {2, 1}, Table(2, 1));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {0}, 0);
}

TEST(LookupTableTest, PaddingCountsAsAbsent) {
  OpTest mean("lookup_table", {Pool("mean"), AttrB("has_padding", true), AttrI("padding_id", 1)});
  mean.Ids("Ids", MakeIds(1, {{0, 1, 2}, {1}})).Fixed("W", {3, 1}, Table(3, 1));
  ASSERT_OK(mean.Run());
  mean.ExpectOutput("Out", {2, 1}, {(1 + 21) / 2.0f, 0}, 0);

  OpTest none("lookup_table", {AttrB("has_padding", true), AttrI("padding_id", -1)});  // need not be a row
  none.Ids("Ids", MakeIds(2, {{0}, {-1}})).Fixed("W", {3, 1}, Table(3, 1));
  ASSERT_OK(none.Run());
  none.ExpectOutput("Out", {1, 2, 1}, {1, 0}, 0);
}

TEST(LookupTableTest, ASequenceHasTheLastIdsFromTheLeft) {
  OpTest t("lookup_table", {AttrI("sequence", 3)});
  t.Ids("Ids", MakeIds(1, {{0, 1, 2, 3}, {}, {2}, {1, 1}})).Fixed("W", {4, 2}, Table(4, 2));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {4, 3, 2}, {11, 12, 21, 22, 31, 32, 0, 0, 0, 0, 0, 0, 21, 22, 0, 0, 0, 0, 11, 12, 11, 12, 0, 0},
                 0);
}

TEST(LookupTableTest, ASequenceDoesNotCountPadding) {
  OpTest t("lookup_table", {AttrI("sequence", 2), AttrB("has_padding", true), AttrI("padding_id", -1)});
  t.Ids("Ids", MakeIds(1, {{-1, 0, 1, -1, 2, -1}, {-1}})).Fixed("W", {3, 1}, Table(3, 1));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 1}, {11, 21, 0, 0}, 0);
}

TEST(LookupTableTest, WeightsMultiplyTheRowsOfASequence) {
  OpTest t("lookup_table", {AttrI("sequence", 2)});
  t.Ids("Ids", MakeIds(1, {{0, 1, 2}}, {5, 3, 2})).Fixed("W", {3, 1}, Table(3, 1));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2, 1}, {33, 42}, 0);
}

TEST(LookupTableTest, WhatASequenceDoesNotReadHasNoGradientRow) {
  for (const bool padding : {false, true}) {
    OpTest t("lookup_table",
             {AttrB("is_sparse", true), AttrI("sequence", 2), AttrB("has_padding", padding), AttrI("padding_id", 3)});
    t.Ids("Ids", MakeIds(1, {{0, 1, 2}, {}, {2, 3}})).Fixed("W", {4, 1}, Table(4, 1));
    ASSERT_OK(t.Run());
    absl::StatusOr<Variable> grad = t.Gradient("W", 0, {{"Out", Tensor::Of<float>({3, 2, 1}, {1, 2, 100, 100, 4, 8})}});
    ASSERT_OK(grad.status());
    const SelectedRows& rows = std::get<SelectedRows>(*grad);
    if (padding) {
      EXPECT_THAT(rows.ids, ElementsAre(1, 2));
      EXPECT_THAT(rows.values.span<float>(), ElementsAre(1, 2 + 4));
    } else {
      EXPECT_THAT(rows.ids, ElementsAre(1, 2, 3));
      EXPECT_THAT(rows.values.span<float>(), ElementsAre(1, 2 + 4, 8));
    }
  }
}

TEST(LookupTableTest, WrongSequencesAreRefused) {
  OpTest slots("lookup_table", {AttrI("sequence", 2)});
  slots.Ids("Ids", MakeIds(2, {{0}, {1}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(slots.InferShapes().message()), HasSubstr("a sequence is of one slot, Ids has 2"));
  OpTest pooled("lookup_table", {AttrI("sequence", 2), Pool("sum")});
  pooled.Ids("Ids", MakeIds(1, {{0}, {1}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(pooled.InferShapes().message()), HasSubstr("a sequence has pooling none, got 'sum'"));
  OpTest negative("lookup_table", {AttrI("sequence", -2)});
  negative.Ids("Ids", MakeIds(1, {{0}, {1}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(negative.InferShapes().message()),
              HasSubstr("sequence must be 0 (none) or in [1, 1048576], got -2"));
}

TEST(SequenceLengthTest, CountsWhatTheSequenceHolds) {
  OpTest t("sequence_length", {AttrI("sequence", 3)});
  t.Ids("Ids", MakeIds(1, {{0, 1, 2, 3}, {}, {2}, {1, 1, 1}}));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {4, 1}, {3, 0, 1, 3}, 0);
  OpTest padded("sequence_length", {AttrI("sequence", 2), AttrB("has_padding", true), AttrI("padding_id", -1)});
  padded.Ids("Ids", MakeIds(1, {{-1, 0, 1, -1, 2, -1}, {-1}, {-1, 5}}));
  ASSERT_OK(padded.Run());
  padded.ExpectOutput("Out", {3, 1}, {2, 0, 1}, 0);
}

TEST(SequenceLengthTest, NeedsOneSlotAndALength) {
  OpTest slots("sequence_length", {AttrI("sequence", 3)});
  slots.Ids("Ids", MakeIds(2, {{0}, {1}}));
  EXPECT_THAT(std::string(slots.InferShapes().message()), HasSubstr("Ids must be [batch, 1], got [-1, 2]"));
  OpTest none("sequence_length", {AttrI("sequence", 0)});
  none.Ids("Ids", MakeIds(1, {{0}, {1}}));
  EXPECT_THAT(std::string(none.InferShapes().message()), HasSubstr("sequence must be in [1, 1048576], got 0"));
}

struct GradientCase {
  std::string pooling;
  bool per_slot;
  bool weights;
  bool is_sparse;
  bool padding;
  int64_t sequence = 0;
};

IdBatch IdsOf(const GradientCase& c) {
  if (c.sequence > 0) return MakeIds(1, {{0, 4, 4}, {2}, {}, {4, 2}, {0, 2, 0, 3}, {3}});
  if (c.pooling == "none") return MakeIds(3, {{0}, {2}, {4}, {4}, {0}, {0}});
  return MakeIds(3, {{0, 4, 4}, {2}, {}, {4, 2}, {0, 0}, {3}});
}

class LookupGradientTest : public ::testing::TestWithParam<GradientCase> {};
INSTANTIATE_TEST_SUITE_P(
    Cases, LookupGradientTest,
    Values(GradientCase{"none", false, false, false, false}, GradientCase{"none", false, true, true, true},
           GradientCase{"none", false, false, true, false}, GradientCase{"sum", false, false, false, true},
           GradientCase{"sum", true, true, true, false}, GradientCase{"mean", false, true, true, true},
           GradientCase{"mean", true, false, false, false}, GradientCase{"sqrt_n", false, false, true, true},
           GradientCase{"sqrt_n", true, true, false, true}, GradientCase{"none", false, false, true, false, 2},
           GradientCase{"none", false, true, false, true, 2}, GradientCase{"none", false, false, false, false, 5},
           GradientCase{"none", false, true, true, true, 3}));

TEST_P(LookupGradientTest, AgreesWithDifferences) {
  const GradientCase& c = GetParam();
  std::vector<v1::OpAttr> attrs = {Pool(c.pooling), AttrB("per_slot", c.per_slot), AttrB("is_sparse", c.is_sparse),
                                   AttrI("sequence", c.sequence)};
  if (c.padding) {
    attrs.push_back(AttrB("has_padding", true));
    attrs.push_back(AttrI("padding_id", 2));
  }
  for (int64_t width : {1, 3, 8, 16}) {
    IdBatch ids = IdsOf(c);
    if (c.weights) {
      for (size_t i = 0; i < ids.values.size(); ++i) ids.weights.push_back(0.5f + 0.25f * static_cast<float>(i));
    }
    OpTest t("lookup_table", attrs);
    std::vector<float> w = Table(5, width);
    for (float& v : w) v /= 50;
    t.Ids("Ids", ids).Fixed("W", {5, width}, w);
    t.CheckGradient({.inputs = {"W"}});
    t.CheckBatchZero();
  }
}

TEST(LookupTableTest, SparseGradientIsMergedInOrderOfFirstAppearance) {
  OpTest t("lookup_table", {AttrB("is_sparse", true)});
  t.Ids("Ids", MakeIds(1, {{3}, {0}, {3}, {1}})).Fixed("W", {4, 2}, Table(4, 2));
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> grad =
      t.Gradient("W", 0, {{"Out", Tensor::Of<float>({4, 1, 2}, {1, 2, 3, 4, 10, 20, 5, 6})}});
  ASSERT_OK(grad.status());
  const SelectedRows& rows = std::get<SelectedRows>(*grad);
  EXPECT_THAT(rows.ids, ElementsAre(3, 0, 1));
  EXPECT_THAT(rows.values.span<float>(), ElementsAre(11, 22, 3, 4, 5, 6));
  EXPECT_EQ(rows.height, 4);
  EXPECT_TRUE(rows.merged);
  EXPECT_TRUE(rows.present);
  EXPECT_THAT(rows.step_rows, IsEmpty());
}

TEST(LookupTableTest, PaddingHasNoGradientRow) {
  OpTest t("lookup_table", {AttrB("is_sparse", true), AttrB("has_padding", true), AttrI("padding_id", 3)});
  t.Ids("Ids", MakeIds(1, {{3}, {0}, {3}})).Fixed("W", {4, 1}, Table(4, 1));
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> grad = t.Gradient("W", 0, {{"Out", Tensor::Of<float>({3, 1, 1}, {1, 2, 3})}});
  ASSERT_OK(grad.status());
  EXPECT_THAT(std::get<SelectedRows>(*grad).ids, ElementsAre(0));
}

TEST(LookupTableTest, AGradientStartsFromItsFirstTermNotFromZero) {
  // -0.0 + 0 would be +0.0.
  OpTest t("lookup_table", {AttrB("is_sparse", true)});
  t.Ids("Ids", MakeIds(1, {{1}})).Fixed("W", {2, 1}, Table(2, 1));
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> grad = t.Gradient("W", 0, {{"Out", Tensor::Of<float>({1, 1, 1}, {-0.0f})}});
  ASSERT_OK(grad.status());
  EXPECT_TRUE(std::signbit(std::get<SelectedRows>(*grad).values.span<float>()[0]));
}

TEST(LookupTableTest, AnIdOutsideTheTableIsNamed) {
  OpTest t("lookup_table");
  t.Ids("Ids", MakeIds(2, {{0}, {1}, {2}, {7}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("id 7 in example 1, slot 1; the table has rows 0 to 3"));
  OpTest negative("lookup_table", {Pool("sum")});
  negative.Ids("Ids", MakeIds(1, {{}, {0, -5}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(negative.Run().message()), HasSubstr("id -5 in example 1, slot 0"));
}

TEST(LookupTableTest, PoolingNoneNeedsOneIdASlot) {
  OpTest t("lookup_table");
  t.Ids("Ids", MakeIds(2, {{0}, {1}, {2, 3}, {}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("exactly one id a slot; example 1 has 2 in slot 0"));
}

TEST(LookupTableTest, BrokenIdsAreRefused) {
  IdBatch weights = MakeIds(1, {{0, 1}}, {1});
  OpTest t("lookup_table", {Pool("sum")});
  t.Ids("Ids", weights).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("2 ids have 1 weights"));
  IdBatch offsets = MakeIds(1, {{0}, {1}});
  offsets.offsets = {0, 3, 2};
  OpTest u("lookup_table", {Pool("sum")});
  u.Ids("Ids", offsets).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(u.Run().message()), HasSubstr("offsets do not rise"));
}

TEST(LookupTableTest, WrongDescriptionsAreRefused) {
  OpTest pooling("lookup_table", {Pool("max")});
  pooling.Ids("Ids", MakeIds(1, {{0}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(pooling.InferShapes().message()), HasSubstr("none, sum, mean or sqrt_n, got 'max'"));
  OpTest rank("lookup_table");
  rank.Ids("Ids", MakeIds(1, {{0}})).Fixed("W", {4}, Table(4, 1));
  EXPECT_THAT(std::string(rank.InferShapes().message()), HasSubstr("W must be FLOAT32 [rows, width], got FLOAT32 [4]"));
  OpTest distributed("lookup_table", {AttrB("is_distributed", true)});
  distributed.Ids("Ids", MakeIds(1, {{0}})).Fixed("W", {4, 1}, Table(4, 1));
  EXPECT_THAT(std::string(distributed.InferShapes().message()), HasSubstr("is_distributed needs is_sparse"));
}

// lookup_rows, beside lookup_table on a matrix of the same rows.

struct Prefetched {
  Tensor index;
  SelectedRows rows;
};

// Returns rows and index as prefetch makes them, with a row of another lane in front.
Prefetched Prefetch(const IdBatch& ids, const std::vector<float>& table, int64_t width) {
  Prefetched p;
  p.rows.ids = {1};
  p.index.Resize(v1::INT32, {static_cast<int64_t>(ids.values.size())});
  for (size_t i = 0; i < ids.values.size(); ++i) {
    const auto it = std::find(p.rows.ids.begin(), p.rows.ids.end(), ids.values[i]);
    p.index.data<int32_t>()[i] = static_cast<int32_t>(it - p.rows.ids.begin());
    if (it == p.rows.ids.end()) p.rows.ids.push_back(ids.values[i]);
  }
  p.rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(p.rows.ids.size()), width});
  for (size_t r = 0; r < p.rows.ids.size(); ++r) {
    std::copy_n(table.begin() + p.rows.ids[r] * width, width,
                p.rows.values.data<float>() + static_cast<int64_t>(r) * width);
  }
  p.rows.merged = true;
  p.rows.present = true;
  return p;
}

TEST_P(LookupGradientTest, PrefetchedRowsGiveTheBitsOfAMatrix) {
  const GradientCase& c = GetParam();
  if (!c.is_sparse) return;
  std::vector<v1::OpAttr> attrs = {Pool(c.pooling), AttrB("per_slot", c.per_slot), AttrB("has_padding", c.padding),
                                   AttrI("padding_id", 2), AttrI("sequence", c.sequence)};
  const int64_t width = 8;
  IdBatch ids = IdsOf(c);
  if (c.weights) {
    for (size_t i = 0; i < ids.values.size(); ++i) ids.weights.push_back(0.3f + 0.7f * static_cast<float>(i));
  }
  std::vector<float> w = Table(5, width);
  for (float& v : w) v /= 7;
  const Prefetched p = Prefetch(ids, w, width);

  OpTest rows("lookup_rows", attrs);
  rows.Ids("Ids", ids).Fixed("Index", p.index).Rows("Rows", p.rows, width);
  ASSERT_OK(rows.Run());
  attrs.push_back(AttrB("is_sparse", true));
  OpTest matrix("lookup_table", attrs);
  matrix.Ids("Ids", ids).Fixed("W", {5, width}, w);
  ASSERT_OK(matrix.Run());
  const Tensor& out = rows.Output("Out");
  ASSERT_EQ(out.dims(), matrix.Output("Out").dims());
  EXPECT_EQ(std::memcmp(out.raw(), matrix.Output("Out").raw(), out.bytes()), 0);

  Tensor out_grad(v1::FLOAT32, out.dims());
  for (int64_t i = 0; i < out_grad.size(); ++i) out_grad.data<float>()[i] = 0.1f * static_cast<float>(i % 13) - 0.5f;
  absl::StatusOr<Variable> a = rows.Gradient("Rows", 0, {{"Out", out_grad}});
  absl::StatusOr<Variable> b = matrix.Gradient("W", 0, {{"Out", out_grad}});
  ASSERT_OK(a.status());
  ASSERT_OK(b.status());
  const SelectedRows& x = std::get<SelectedRows>(*a);
  const SelectedRows& y = std::get<SelectedRows>(*b);
  EXPECT_EQ(x.ids, y.ids);
  ASSERT_EQ(x.values.dims(), y.values.dims());
  EXPECT_EQ(std::memcmp(x.values.raw(), y.values.raw(), x.values.bytes()), 0);
  EXPECT_TRUE(x.merged && x.present);
  ASSERT_EQ(x.step_rows.size(), x.ids.size());
  for (size_t i = 0; i < x.ids.size(); ++i) EXPECT_EQ(p.rows.ids[static_cast<size_t>(x.step_rows[i])], x.ids[i]);
}

TEST(LookupRowsTest, GradientsOfSuccessiveStepsDoNotMix) {
  // The scratch of places is kept from run to run; other rows, other sizes.
  for (const std::vector<std::vector<int64_t>>& slots :
       {std::vector<std::vector<int64_t>>{{0}, {3}, {0}}, {{2}, {2}}, {{4}, {0}, {1}, {4}, {0}}, {{3}}}) {
    const IdBatch ids = MakeIds(1, slots);
    const Prefetched p = Prefetch(ids, Table(5, 1), 1);
    OpTest t("lookup_rows");
    t.Ids("Ids", ids).Fixed("Index", p.index).Rows("Rows", p.rows, 1);
    ASSERT_OK(t.Run());
    const int64_t n = static_cast<int64_t>(slots.size());
    absl::StatusOr<Variable> grad =
        t.Gradient("Rows", 0, {{"Out", Tensor::Of<float>({n, 1, 1}, std::vector<float>(slots.size(), 1.0f))}});
    ASSERT_OK(grad.status());
    const SelectedRows& rows = std::get<SelectedRows>(*grad);
    float sum = 0;
    for (size_t i = 0; i < rows.ids.size(); ++i) {
      const auto count = std::count(ids.values.begin(), ids.values.end(), rows.ids[i]);
      EXPECT_EQ(rows.values.span<float>()[i], static_cast<float>(count));
      sum += rows.values.span<float>()[i];
    }
    EXPECT_EQ(sum, static_cast<float>(n));
  }
}

TEST(LookupRowsTest, WhatASequenceDoesNotReadNeedsNoRow) {
  const IdBatch ids = MakeIds(1, {{0, 1, 2}, {3}});
  Prefetched p = Prefetch(MakeIds(1, {{1, 2, 3}}), Table(4, 1), 1);
  OpTest t("lookup_rows", {AttrI("sequence", 2)});
  t.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({4}, {-1, 0, 1, 2})).Rows("Rows", p.rows, 1);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2, 1}, {11, 21, 31, 0}, 0);
  absl::StatusOr<Variable> grad = t.Gradient("Rows", 0, {{"Out", Tensor::Of<float>({2, 2, 1}, {1, 2, 4, 8})}});
  ASSERT_OK(grad.status());
  EXPECT_THAT(std::get<SelectedRows>(*grad).ids, ElementsAre(1, 2, 3));
  EXPECT_THAT(std::get<SelectedRows>(*grad).values.span<float>(), ElementsAre(1, 2, 4));
  OpTest missing("lookup_rows", {AttrI("sequence", 2)});
  missing.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({4}, {0, 0, -1, 2})).Rows("Rows", p.rows, 1);
  EXPECT_THAT(std::string(missing.Run().message()), HasSubstr("Index has -1; Rows has 3 rows"));
}

TEST(LookupRowsTest, ALaneWithoutExamplesHasAnEmptyGradient) {
  IdBatch none;
  none.slots = 2;
  SelectedRows rows = Prefetch(MakeIds(1, {{0}}), Table(2, 3), 3).rows;
  OpTest t("lookup_rows");
  t.Ids("Ids", none).Fixed("Index", Tensor(v1::INT32, {0})).Rows("Rows", rows, 3);
  ASSERT_OK(t.Run());
  EXPECT_EQ(ShapeString(t.Output("Out").dims()), "[0, 2, 3]");
  absl::StatusOr<Variable> grad = t.Gradient("Rows", 0, {{"Out", Tensor(v1::FLOAT32, {0, 2, 3})}});
  ASSERT_OK(grad.status());
  EXPECT_THAT(std::get<SelectedRows>(*grad).ids, IsEmpty());
}

TEST(LookupRowsTest, AnIndexThatDoesNotFitIsRefused) {
  const IdBatch ids = MakeIds(1, {{0}, {1}});
  Prefetched p = Prefetch(ids, Table(2, 1), 1);
  OpTest t("lookup_rows");
  t.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({1}, {0})).Rows("Rows", p.rows, 1);
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("Index has 1 entries for 2 ids"));
  OpTest u("lookup_rows");
  u.Ids("Ids", ids).Fixed("Index", Tensor::Of<int32_t>({2}, {0, 2})).Rows("Rows", p.rows, 1);
  EXPECT_THAT(std::string(u.Run().message()), HasSubstr("Index has 2; Rows has 2 rows"));
}

}  // namespace
}  // namespace weir
