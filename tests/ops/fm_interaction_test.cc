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

TEST(FmInteractionTest, NeedsSlots) {
  OpTest t("fm_interaction");
  t.Batched("X", {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X must have 3 dims"));
}

}  // namespace
}  // namespace weir
