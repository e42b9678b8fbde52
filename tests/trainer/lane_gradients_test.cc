#include "trainer/verify/lane_gradients.h"

#include <limits>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/channels/step_recorder.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

TEST(LaneGradientsTest, LanesAreAddedInTheTreeAndNotOneAfterTheOther) {
  LaneGradients gradients;
  const float big = 1 << 24;  // big + 1 is big
  gradients.Add(0, Floats({big}), 1);
  for (const int lane : {1, 2, 3}) gradients.Add(lane, Floats({1}), 1);
  ASSERT_TRUE(gradients.has_dense());
  EXPECT_THAT(std::move(gradients).SumDense(4).span<float>(), ElementsAre(big + 2));
}

TEST(LaneGradientsTest, BatchesOfALaneAreAddedAndScaled) {
  LaneGradients gradients;
  gradients.Add(0, Floats({1, 2}), 0.5f);
  gradients.Add(0, Floats({3, 4}), 0.5f);
  EXPECT_THAT(std::move(gradients).SumDense(1).span<float>(), ElementsAre(2, 3));
}

TEST(LaneGradientsTest, RowsAreAddedByIdInOrderOfTheIds) {
  LaneGradients gradients;
  gradients.Add(0, Rows({9, 4}, {1, 2, 3, 4}), 1);
  gradients.Add(1, Rows({9}, {10, 20}), 1);
  LaneGradients copy = gradients;
  EXPECT_FALSE(gradients.has_dense());
  EXPECT_THAT(std::move(copy).SumRowsById(2), ElementsAre(Pair(4, ElementsAre(3, 4)), Pair(9, ElementsAre(11, 22))));
  const SelectedRows merged = std::move(gradients).SumRows(2);
  EXPECT_THAT(merged.ids, ElementsAre(4, 9));
  EXPECT_THAT(merged.values.span<float>(), ElementsAre(3, 4, 11, 22));
  EXPECT_TRUE(merged.merged);
}

TEST(LaneGradientsTest, AnAbsentGradientAddsNothing) {
  LaneGradients gradients;
  gradients.Add(0, Variable(), 1);
  gradients.Add(0, SelectedRows(), 1);
  EXPECT_FALSE(gradients.has_dense());
  EXPECT_FALSE(gradients.has_rows());
  EXPECT_TRUE(gradients.IsFinite());
}

TEST(LaneGradientsTest, OneValueOfOneLaneMakesTheSumNotFinite) {
  LaneGradients dense, rows;
  dense.Add(0, Floats({1}), 1);
  dense.Add(1, Floats({std::numeric_limits<float>::infinity()}), 1);
  EXPECT_FALSE(dense.IsFinite());
  rows.Add(0, Rows({1}, {std::numeric_limits<float>::quiet_NaN()}), 1);
  EXPECT_FALSE(rows.IsFinite());
}

}  // namespace
}  // namespace weir
