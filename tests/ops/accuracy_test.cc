#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(AccuracyTest, TheFirstOfEqualScoresCounts) {
  OpTest t("accuracy");
  t.Batched("Out", {3, 2}, {0.1, 0.9, 0.5, 0.5, 0.8, 0.2}).Batched("Label", {3, 1}, {1, 0, 1});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("Correct").span<int64_t>(), ElementsAre(2));
  EXPECT_THAT(t.Output("Total").span<int64_t>(), ElementsAre(3));
}

TEST(AccuracyTest, LabelsMayBeIntegers) {
  OpTest t("accuracy");
  t.Batched("Out", {1, 3}, {0.1, 0.2, 0.7}).Batched("Label", Tensor::Of<int64_t>({1, 1}, {2}));
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("Correct").span<int64_t>(), ElementsAre(1));
}

TEST(AccuracyTest, TakesNoExamples) {
  OpTest t("accuracy");
  t.Batched("Out", {1, 2}, {0.1, 0.9}).Batched("Label", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST(AccuracyTest, ShapesAreNamed) {
  OpTest t("accuracy");
  t.Batched("Out", {1, 2}, {0.1, 0.9}).Batched("Label", {1, 2}, {1, 0});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("accuracy: Label must be [-1, 1]"));
}

}  // namespace
}  // namespace weir
