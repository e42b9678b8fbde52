#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpTest Auc(std::vector<float> predict, std::vector<float> label) {
  const int64_t n = static_cast<int64_t>(predict.size());
  OpTest t("auc", {AttrI("buckets", 4)});
  t.Batched("Predict", {n, 1}, predict)
      .Batched("Label", {n, 1}, label)
      .Fixed("StatPos", Tensor::Of<int64_t>({4}, {10, 0, 0, 0}))
      .Fixed("StatNeg", Tensor::Of<int64_t>({4}, {0, 0, 0, 20}));
  return t;
}

TEST(AucTest, CountsAreAddedToThoseBefore) {
  OpTest t = Auc({0, 0.25, 0.74, 1, 0.3}, {1, 1, 0, 1, 0});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("StatPosOut").span<int64_t>(), ElementsAre(11, 1, 0, 1));
  EXPECT_THAT(t.Output("StatNegOut").span<int64_t>(), ElementsAre(0, 1, 1, 20));
}

TEST(AucTest, CountsMayBeOneVariable) {
  OpTest t = Auc({0.5}, {1});
  t.SameVariable("StatPosOut", "StatPos").SameVariable("StatNegOut", "StatNeg");
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("StatPosOut").span<int64_t>(), ElementsAre(10, 0, 1, 0));
}

TEST(AucTest, TakesNoExamples) { Auc({0.5}, {1}).CheckBatchZero(); }

TEST(AucTest, APredictionThatIsNoProbabilityIsNamed) {
  EXPECT_THAT(std::string(Auc({0.5, 1.5}, {1, 0}).Run().message()),
              HasSubstr("Predict must be in [0, 1], got 1.5 for example 1 of lane 0"));
  EXPECT_THAT(std::string(Auc({__builtin_nanf("")}, {1}).Run().message()), HasSubstr("got nan for example 0"));
}

TEST(AucTest, CountsMustFitTheBuckets) {
  OpTest t("auc", {AttrI("buckets", 4)});
  t.Batched("Predict", {1, 1}, {0.5})
      .Batched("Label", {1, 1}, {1})
      .Fixed("StatPos", Tensor::Of<int64_t>({4}, {0, 0, 0, 0}))
      .Fixed("StatNeg", Tensor::Of<int64_t>({3}, {0, 0, 0}));
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("auc: StatNeg must be [4], one count per bucket, got [3]"));
}

}  // namespace
}  // namespace weir
