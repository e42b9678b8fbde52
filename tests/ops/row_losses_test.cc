// Losses of several scores per example (ops/row_loss_math.h): values against their definition, and gradients.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/philox.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Numbers between -spread and spread, no two of which differ by much less than spread / n.
std::vector<float> Numbers(uint64_t key, int64_t n, double spread) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i) {
    x.push_back(static_cast<float>(spread * (Philox(key, static_cast<uint64_t>(i), 0).v[0] / 2147483648.0 - 1)));
  }
  return x;
}

struct PairCase {
  std::string type;
  std::vector<v1::OpAttr> attrs;
  double (*loss)(double positive, const std::vector<double>& negatives);
};

class EveryPairLoss : public ::testing::TestWithParam<PairCase> {};

INSTANTIATE_TEST_SUITE_P(All, EveryPairLoss,
                         ::testing::Values(PairCase{"bpr_loss",
                                                    {},
                                                    [](double p, const std::vector<double>& n) {
                                                      double sum = 0;
                                                      for (const double x : n) sum -= std::log(Sigmoid(p - x));
                                                      return sum / static_cast<double>(n.size());
                                                    }},
                                           PairCase{"pairwise_hinge_loss",
                                                    {AttrF("margin", 0.75)},
                                                    [](double p, const std::vector<double>& n) {
                                                      double sum = 0;
                                                      for (const double x : n) sum += std::max(0.0, 0.75 - p + x);
                                                      return sum / static_cast<double>(n.size());
                                                    }},
                                           PairCase{"sampled_softmax",
                                                    {},
                                                    [](double p, const std::vector<double>& n) {
                                                      double sum = std::exp(p);
                                                      for (const double x : n) sum += std::exp(x);
                                                      return std::log(sum) - p;
                                                    }}),
                         [](const auto& info) { return info.param.type; });

TEST_P(EveryPairLoss, ValuesAndGradientsAreThoseOfTheDefinition) {
  for (const int64_t n : {1, 3, 17, 40}) {
    for (const bool weighted : {false, true}) {
      constexpr int64_t kRows = 3;
      const std::vector<float> positive = Numbers(1, kRows, 2);
      std::vector<float> negative = Numbers(2, kRows * n, 2);
      // Away from where the hinge bends.
      for (size_t i = 0; i < negative.size(); ++i) {
        const float bend = positive[i / static_cast<size_t>(n)] - 0.75f;
        if (std::fabs(negative[i] - bend) < 0.05f) negative[i] = bend + 0.1f;
      }
      OpTest t(GetParam().type, GetParam().attrs);
      t.Batched("Positive", {kRows, 1}, positive).Batched("Negative", {kRows, n}, negative);
      const std::vector<float> weight = {0.5f, 2, 0};
      if (weighted) t.Batched("Weight", {kRows, 1}, weight);
      std::vector<float> loss;
      for (size_t r = 0; r < kRows; ++r) {
        const auto first = negative.begin() + static_cast<std::ptrdiff_t>(r) * n;
        const double value = GetParam().loss(positive[r], {first, first + n});
        loss.push_back(static_cast<float>(value * (weighted ? weight[r] : 1)));
      }
      ASSERT_OK(t.Run());
      t.ExpectOutput("Out", {kRows, 1}, loss, 3e-6);
      t.CheckGradient({.inputs = {"Positive", "Negative"}});
    }
  }
}

TEST_P(EveryPairLoss, TakesNoExamplesAndHidesNoNan) {
  OpTest none(GetParam().type, GetParam().attrs);
  none.Batched("Positive", {1, 1}, {1}).Batched("Negative", {1, 2}, {1, 2});
  none.CheckBatchZero();
  for (const bool in_positive : {false, true}) {
    OpTest t(GetParam().type, GetParam().attrs);
    t.Batched("Positive", {1, 1}, {in_positive ? std::nanf("") : 1})
        .Batched("Negative", {1, 2}, {1, in_positive ? 2 : std::nanf("")});
    ASSERT_OK(t.Run());
    EXPECT_TRUE(std::isnan(t.Values("Out")[0]));
  }
}

TEST_P(EveryPairLoss, ShapesAreNamed) {
  OpTest wide(GetParam().type, GetParam().attrs);
  wide.Batched("Positive", {1, 2}, {1, 2}).Batched("Negative", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(wide.InferShapes().message()),
              HasSubstr(": Positive must be [B, 1], one number per example"));
  OpTest flat(GetParam().type, GetParam().attrs);
  flat.Batched("Positive", {1, 1}, {1}).Fixed("Negative", {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(std::string(flat.InferShapes().message()),
              HasSubstr(": Negative must be [-1, N], with at least one negative for each positive, got [2, 2]"));
}

TEST(PairLossesTest, LargeScoresStayFinite) {
  for (const char* const type : {"bpr_loss", "sampled_softmax"}) {
    OpTest t(type);
    t.Batched("Positive", {2, 1}, {500, -500}).Batched("Negative", {2, 1}, {-500, 500});
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {2, 1}, {0, 1000}, 1e-3);
  }
  OpTest margin("pairwise_hinge_loss", {AttrF("margin", 0)});
  margin.Batched("Positive", {1, 1}, {1}).Batched("Negative", {1, 1}, {1});
  EXPECT_THAT(std::string(margin.InferShapes().message()), HasSubstr("margin must be positive and finite, got 0"));
}

TEST(MultiLabelCrossEntropyTest, IsTheMeanOverTheClasses) {
  for (const int64_t n : {1, 4, 35}) {
    constexpr int64_t kRows = 3;
    const std::vector<float> x = Numbers(3, kRows * n, 4);
    std::vector<float> label, loss;
    for (int64_t i = 0; i < kRows * n; ++i)
      label.push_back(static_cast<float>(Philox(4, static_cast<uint64_t>(i), 0).v[0] % 3) / 2);
    const std::vector<float> weight = {1, 0.25f, 3};
    for (size_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (size_t c = r * static_cast<size_t>(n); c < (r + 1) * static_cast<size_t>(n); ++c) {
        sum -= label[c] * std::log(Sigmoid(x[c])) + (1 - label[c]) * std::log(1 - Sigmoid(x[c]));
      }
      loss.push_back(static_cast<float>(weight[r] * sum / static_cast<double>(n)));
    }
    OpTest t("multi_label_cross_entropy");
    t.Batched("X", {kRows, n}, x).Batched("Label", {kRows, n}, label).Batched("Weight", {kRows, 1}, weight);
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {kRows, 1}, loss, 3e-6);
    t.CheckGradient({.inputs = {"X"}});
    t.CheckBatchZero();
  }
}

TEST(MultiLabelCrossEntropyTest, HasTheBitsOfTheBinaryLossForOneClass) {
  const std::vector<float> x = Numbers(5, 50, 10);
  std::vector<float> label;
  for (int i = 0; i < 50; ++i) label.push_back(static_cast<float>(i % 2));
  OpTest many("multi_label_cross_entropy"), one("sigmoid_cross_entropy_with_logits");
  for (OpTest* const t : {&many, &one}) {
    t->Batched("X", {50, 1}, x).Batched("Label", {50, 1}, label);
    ASSERT_OK(t->Run());
  }
  EXPECT_EQ(many.Values("Out"), one.Values("Out"));
}

TEST(ListwiseSoftmaxTest, IsTheCrossEntropyOfTheCandidatesThatCount) {
  constexpr int64_t kRows = 5, kMost = 20;
  const std::vector<float> scores = Numbers(6, kRows * kMost, 3), length = {20, 7, 1, 0, 3},
                           weight = {1, 2, 1, 1, 0.5f};
  std::vector<float> label(kRows * kMost, 0.0f), loss, softmax(kRows * kMost, 0.0f);
  for (size_t i = 0; i < label.size(); ++i) label[i] = static_cast<float>(Philox(7, i, 0).v[0] % 3);
  for (size_t c = 0; c < kMost; ++c) label[4 * kMost + c] = 0;  // a request without a positive label
  for (size_t r = 0; r < kRows; ++r) {
    const auto count = static_cast<size_t>(length[r]);
    double all = 0, labels = 0, sum = 0;
    for (size_t c = 0; c < count; ++c) {
      all += std::exp(scores[r * kMost + c]);
      labels += label[r * kMost + c];
    }
    for (size_t c = 0; c < count; ++c) {
      softmax[r * kMost + c] = static_cast<float>(std::exp(scores[r * kMost + c]) / all);
      sum -= label[r * kMost + c] * std::log(std::exp(scores[r * kMost + c]) / all);
    }
    loss.push_back(labels > 0 ? static_cast<float>(weight[r] * sum / labels) : 0);
  }
  OpTest t("listwise_softmax");
  t.Batched("Scores", {kRows, kMost}, scores)
      .Batched("Label", {kRows, kMost}, label)
      .Batched("Length", {kRows, 1}, length)
      .Batched("Weight", {kRows, 1}, weight);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {kRows, 1}, loss, 3e-6);
  t.ExpectOutput("Softmax", {kRows, kMost}, softmax, 1e-6);
  t.CheckGradient({.inputs = {"Scores"}, .outputs = {"Out"}});
  t.CheckBatchZero({"Out"});
  // Without lengths every candidate counts.
  OpTest whole("listwise_softmax");
  whole.Batched("Scores", {1, 2}, {0, 0}).Batched("Label", {1, 2}, {1, 3});
  ASSERT_OK(whole.Run());
  whole.ExpectOutput("Out", {1, 1}, {std::log(2.0f)});
}

TEST(ListwiseSoftmaxTest, NegativeLabelsAreNamed) {
  OpTest t("listwise_softmax");
  t.Batched("Scores", {2, 2}, {0, 0, 0, 0}).Batched("Label", {2, 2}, {1, 0, 1, -1});
  EXPECT_THAT(std::string(t.Run().message()),
              HasSubstr("Label of candidate 1 of example 1 of a lane's batch is -1; a relevance must not be negative: "
                        "change what computes it, or give it as a column of the data"));
}

}  // namespace
}  // namespace weir
