// clip and decay: dense, selected rows, rows of tables.
#include <cmath>
#include <memory>
#include <vector>

#include "framework/runtime/table_update.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

SelectedRows TwoRows(std::vector<float> values) {
  SelectedRows rows;
  rows.height = 4;
  rows.ids = {2, 0};
  rows.values = Tensor::Of<float>({2, 2}, values);
  rows.merged = rows.present = true;
  return rows;
}

std::vector<float> RowValues(const OpTest& t) {
  const Tensor& values = std::get<SelectedRows>(t.OutputVar("Out")).values;
  return {values.data<float>(), values.data<float>() + values.size()};
}

OpTest Clip() { return OpTest("clip", {AttrF("min", -1), AttrF("max", 2)}); }
OpTest Decay() { return OpTest("decay", {AttrF("l1", 0.5), AttrF("l2", 0.25)}); }

TEST(ClipTest, BoundsEveryElement) {
  OpTest t = Clip();
  t.Fixed("X", {5}, {-3, -1, 0.5f, 2, 7});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {5}, {-1, -1, 0.5f, 2, 2}, 0);
}

TEST(ClipTest, BoundsRows) {
  OpTest t = Clip();
  t.Rows("X", TwoRows({-3, 1, 5, -1}), 2);
  ASSERT_OK(t.Run());
  EXPECT_THAT(RowValues(t), ElementsAre(-1, 1, 2, -1));
}

TEST(ClipTest, NanIsNotHidden) {
  OpTest t = Clip();
  t.Fixed("X", {2}, {std::nanf(""), INFINITY});
  ASSERT_OK(t.Run());
  EXPECT_TRUE(std::isnan(t.Values("Out")[0]));
  EXPECT_EQ(t.Values("Out")[1], 2);
}

TEST(ClipTest, AnAbsentGradientStaysAbsent) {
  OpTest t = Clip();
  t.Absent("X", {3});
  ASSERT_OK(t.Run());
  EXPECT_FALSE(t.Output("Out").initialized());
}

TEST(ClipTest, BoundsTheWrongWayRoundAreRefused) {
  OpTest t("clip", {AttrF("min", 1), AttrF("max", -1)});
  t.Fixed("X", {1}, {0});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("min must not be above max, got 1 and -1"));
}

TEST(DecayTest, AddsSignAndValue) {
  // 1 + 0.5 + 0.25 * 2; 1 - 0.5 - 0.25 * 4; 1 + 0
  OpTest t = Decay();
  t.Fixed("Param", {3}, {2, -4, 0}).Fixed("Grad", {3}, {1, 1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {3}, {2, -0.5f, 1}, 0);
}

TEST(DecayTest, OnRowsOnlyThoseOfTheStepDecay) {
  OpTest t = Decay();
  t.Fixed("Param", {4, 2}, {2, -4, 100, 100, 0, 8, 100, 100}).Rows("Grad", TwoRows({1, 1, 1, 1}), 2);
  ASSERT_OK(t.Run());
  EXPECT_THAT(RowValues(t), ElementsAre(1, 3.5f, 2, -0.5f));
}

TEST(DecayTest, ShapesThatDoNotFitAreRefused) {
  OpTest t = Decay();
  t.Fixed("Param", {2, 3}, std::vector<float>(6)).Fixed("Grad", {3, 2}, std::vector<float>(6));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("Grad [3, 2] does not fit Param [2, 3]"));
  OpTest negative("decay", {AttrF("l1", -1)});
  negative.Fixed("Param", {1}, {0}).Fixed("Grad", {1}, {0});
  EXPECT_THAT(std::string(negative.InferShapes().message()), HasSubstr("l1 must not be negative, got -1"));
}

TEST(DecayTest, ARowOutsideTheParameterIsRefused) {
  OpTest t = Decay();
  t.Fixed("Param", {2, 2}, {1, 2, 3, 4}).Rows("Grad", TwoRows({1, 1, 1, 1}), 2);
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("row 2; Param has rows 0 to 1"));
}

v1::VarDesc Table(int64_t width) {
  v1::VarDesc table;
  table.set_name("t");
  table.set_kind(v1::TABLE);
  table.add_dims(-1);
  table.add_dims(width);
  return table;
}

TEST(RowGradientTest, ABlockOfATableIsItsOpsInOrder) {
  const v1::OpDesc clip = MakeOp("clip", {}, {}, {AttrF("min", -1), AttrF("max", 1)});
  const v1::OpDesc decay = MakeOp("decay", {}, {}, {AttrF("l2", 0.5)});
  const v1::OpDesc sgd = MakeOp("sgd", {}, {}, {});
  const auto run = [](std::vector<const v1::OpDesc*> ops) {
    const auto update = MakeTableUpdate(Table(2), 1, ops, nullptr);
    EXPECT_TRUE(update.ok()) << update.status();
    std::vector<float> row = {2, -2};
    const std::vector<float> grad = {12, 1};
    float* rows[] = {row.data()};
    const float* grads[] = {grad.data()};
    update->rule->Update(2, 0.5f, 4, 1, rows, grads);
    return row;
  };
  // Means 3 and 0.25; clipped 1 and 0.25; with decay 2 and -0.75.
  EXPECT_THAT(run({&clip, &decay, &sgd}), ElementsAre(1, -1.625f));
  // Decayed 4 and -0.75; clipped 1 and -0.75.
  EXPECT_THAT(run({&decay, &clip, &sgd}), ElementsAre(1.5f, -1.625f));
  EXPECT_THAT(run({&sgd}), ElementsAre(0.5f, -2.125f));
}

TEST(RowGradientTest, AnOperatorWithoutARowFormIsRefused) {
  const v1::OpDesc relu = MakeOp("relu", {}, {}, {}), sgd = MakeOp("sgd", {}, {}, {});
  const std::vector<const v1::OpDesc*> ops = {&relu, &sgd};
  EXPECT_THAT(std::string(MakeTableUpdate(Table(2), 1, ops, nullptr).status().message()),
              HasSubstr("operator 'relu' cannot work on gradient rows of a table; operators that can: clip, decay"));
}

}  // namespace
}  // namespace weir
