#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
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

TEST(AucTest, ManyPredictionsAreCountedAsOneByOne) {
  constexpr int64_t kBuckets = 1000;
  for (const uint64_t n : {15, 1023, 1024, 1025, 5000}) {
    std::vector<float> predict, label;
    std::vector<int64_t> positives(kBuckets, 1), negatives(kBuckets, 2);
    OpTest t("auc", {AttrI("buckets", kBuckets)});
    t.Fixed("StatPos", Tensor::Of<int64_t>({kBuckets}, positives))
        .Fixed("StatNeg", Tensor::Of<int64_t>({kBuckets}, negatives));
    for (uint64_t i = 0; i < n; ++i) {
      const PhiloxBlock r = Philox(n, i, 0);
      // Ends of buckets, their neighbours and labels at the threshold are among them.
      const float end = static_cast<float>(r.v[0] % (kBuckets + 1)) / kBuckets;
      const float places[] = {UniformFloat(r.v[1]), end, std::nextafter(end, 0.0f),
                              std::min(1.0f, std::nextafter(end, 2.0f))};
      predict.push_back(places[r.v[2] % 4]);
      label.push_back(r.v[3] % 3 == 0 ? 0.5f : static_cast<float>(r.v[3] % 2));
      const size_t bucket =
          static_cast<size_t>(std::min(std::floor(double{predict.back()} * kBuckets), kBuckets - 1.0));
      ++(label.back() > 0.5f ? positives : negatives)[bucket];
    }
    t.Batched("Predict", {static_cast<int64_t>(n), 1}, predict).Batched("Label", {static_cast<int64_t>(n), 1}, label);
    ASSERT_OK(t.Run());
    EXPECT_THAT(t.Output("StatPosOut").span<int64_t>(), ElementsAreArray(positives));
    EXPECT_THAT(t.Output("StatNegOut").span<int64_t>(), ElementsAreArray(negatives));
  }
}

TEST(AucTest, TheFirstOfManyThatIsNoProbabilityIsNamed) {
  for (const size_t at : {0, 1023, 1024, 2000}) {
    for (const float wrong : {-1e-9f, 1.0000001f, __builtin_nanf("")}) {
      std::vector<float> predict(2100, 0.5f);
      predict[at] = wrong;
      predict[2050] = 7;
      EXPECT_THAT(std::string(Auc(predict, std::vector<float>(2100, 1)).Run().message()),
                  HasSubstr(absl::StrCat(" for example ", at, " of lane")));
    }
  }
}

TEST(AucTest, CountsMustFitTheBuckets) {
  OpTest t("auc", {AttrI("buckets", 4)});
  t.Batched("Predict", {1, 1}, {0.5})
      .Batched("Label", {1, 1}, {1})
      .Fixed("StatPos", Tensor::Of<int64_t>({4}, {0, 0, 0, 0}))
      .Fixed("StatNeg", Tensor::Of<int64_t>({3}, {0, 0, 0}));
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("auc: StatNeg must be [4], one count per bucket, got [3]"));
}

}  // namespace
}  // namespace weir
