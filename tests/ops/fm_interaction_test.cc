#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(FmInteractionTest, IsTheSumOfAllPairsOfSlots) {
  OpTest t("fm_interaction");
  // Slots (1, 2), (3, 4), (5, 6): pairs 1*3 + 2*4, 1*5 + 2*6, 3*5 + 4*6.
  t.Batched("X", {2, 3, 2}, {1, 2, 3, 4, 5, 6, 1, 0, 0, 1, 1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {11 + 17 + 39, 0 + 1 + 1}, 0);
  t.ExpectOutput("Sum", {2, 2}, {9, 12, 2, 2}, 0);
}

TEST(FmInteractionTest, OneSlotInteractsWithNothing) {
  OpTest t("fm_interaction");
  t.Batched("X", {1, 1, 2}, {3, 4});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {0}, 0);
}

TEST(FmInteractionTest, GradientAgreesWithDifferences) {
  for (int64_t width : {1, 3, 16}) {
    std::vector<float> x;
    for (int64_t i = 0; i < 2 * 4 * width; ++i) x.push_back(0.1f * static_cast<float>(i * 7 % 19) - 0.8f);
    OpTest t("fm_interaction");
    t.Batched("X", {2, 4, width}, x);
    t.CheckGradient({.inputs = {"X"}, .outputs = {"Out"}});
    t.CheckBatchZero();
  }
}

// Slots that are columns of a matrix give the bits of slots by themselves, wherever they begin.
TEST(FmInteractionTest, SlotsInAMatrix) {
  const int64_t batch = 3, slots = 4, width = 5;
  for (const int64_t begin : {0, 1, 7}) {
    const int64_t columns = begin + slots * width + 2;
    std::vector<float> matrix, x, onto;
    for (int64_t i = 0; i < batch * columns; ++i) {
      matrix.push_back(0.3f * static_cast<float>(i * 11 % 23) - 2.7f);
      onto.push_back(i % 5 == 0 ? -0.0f : 0.7f * static_cast<float>(i % 9) - 1.1f);
    }
    const auto in_slots = [&](int64_t column) { return column >= begin && column < begin + slots * width; };
    for (int64_t b = 0; b < batch; ++b)
      x.insert(x.end(), matrix.begin() + b * columns + begin, matrix.begin() + b * columns + begin + slots * width);
    const std::vector<v1::OpAttr> attrs = {AttrInts("columns", {begin, slots, width})};
    OpTest alone("fm_interaction"), within("fm_interaction", attrs);
    alone.Batched("X", {batch, slots, width}, x);
    ASSERT_OK(alone.Run());
    within.Batched("X", {batch, columns}, matrix);
    ASSERT_OK(within.Run());
    const std::vector<float> sums = alone.Values("Sum");
    within.ExpectOutput("Out", {batch, 1}, alone.Values("Out"), 0);
    within.ExpectOutput("Sum", {batch, width}, sums, 0);

    const std::vector<float> dout = {0.5f, -2, 3};
    OpTest grad("fm_interaction_grad"), grad_within("fm_interaction_grad", attrs),
        grad_onto("fm_interaction_grad", attrs);
    grad.Batched("X", {batch, slots, width}, x)
        .Batched("Sum", {batch, width}, sums)
        .Batched("Out@GRAD", {batch, 1}, dout);
    ASSERT_OK(grad.Run());
    for (OpTest* const each : {&grad_within, &grad_onto}) {
      each->Batched("X", {batch, columns}, matrix)
          .Batched("Sum", {batch, width}, sums)
          .Batched("Out@GRAD", {batch, 1}, dout);
    }
    grad_onto.Batched("Onto", {batch, columns}, onto);
    ASSERT_OK(grad_within.Run());
    ASSERT_OK(grad_onto.Run());
    std::vector<float> want, want_onto;
    const float* slot = grad.Output("X@GRAD").data<float>();
    for (int64_t i = 0; i < batch * columns; ++i) {
      const bool in = in_slots(i % columns);
      want.push_back(in ? *slot : 0.0f);
      want_onto.push_back(in ? onto[static_cast<size_t>(i)] + *slot : onto[static_cast<size_t>(i)]);
      slot += in ? 1 : 0;
    }
    grad_within.ExpectOutput("X@GRAD", {batch, columns}, want, 0);
    grad_onto.ExpectOutput("X@GRAD", {batch, columns}, want_onto, 0);
  }
}

TEST(FmInteractionTest, GradientInAMatrixAgreesWithDifferences) {
  std::vector<float> x;
  for (int64_t i = 0; i < 2 * 9; ++i) x.push_back(0.1f * static_cast<float>(i * 7 % 19) - 0.8f);
  OpTest t("fm_interaction", {AttrInts("columns", {2, 3, 2})});
  t.Batched("X", {2, 9}, x);
  t.CheckGradient({.inputs = {"X"}, .outputs = {"Out"}});
  t.CheckBatchZero();
}

TEST(FmInteractionTest, ColumnsThatTheMatrixDoesNotHave) {
  for (const std::vector<int64_t>& columns : std::vector<std::vector<int64_t>>{{0, 2},
                                                                               {-1, 1, 2},
                                                                               {0, 0, 2},
                                                                               {0, 2, 0},
                                                                               {4, 1, 3},
                                                                               {0, 3, 3},
                                                                               {0, int64_t{1} << 62, 4},
                                                                               {int64_t{1} << 62, 1, 1}}) {
    OpTest t("fm_interaction", {AttrInts("columns", columns)});
    t.Batched("X", {2, 6}, std::vector<float>(12, 1.0f));
    EXPECT_THAT(std::string(t.InferShapes().message()),
                HasSubstr("must be the first column, slots and a width that lie within X"))
        << ShapeString(columns);
  }
  OpTest t("fm_interaction", {AttrInts("columns", {0, 3, 2})});
  t.Batched("X", {2, 3, 2}, std::vector<float>(12, 1.0f));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("with columns X must be [batch, columns]"));
}

TEST(FmInteractionTest, NeedsSlots) {
  OpTest t("fm_interaction");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X must have 3 dims"));
}

}  // namespace
}  // namespace weir
