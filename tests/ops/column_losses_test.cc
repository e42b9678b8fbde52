// Losses of one number per example that differ in their arithmetic alone (ops/loss_math.h).
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string type;
  std::vector<v1::OpAttr> attrs;
  std::vector<float> x, label, loss;
};

class EveryColumnLoss : public ::testing::TestWithParam<Case> {};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
float Focal(double x, double label, double gamma, double positive, double negative) {
  const double p = Sigmoid(x);
  return static_cast<float>(-label * positive * std::pow(1 - p, gamma) * std::log(p) -
                            (1 - label) * negative * std::pow(p, gamma) * std::log(1 - p));
}

INSTANTIATE_TEST_SUITE_P(
    All, EveryColumnLoss,
    ::testing::Values(
        Case{"focal_loss",
             {},
             {2, -1, 0.5, 1},
             {1, 1, 0, 0.25},
             {Focal(2, 1, 2, 1, 1), Focal(-1, 1, 2, 1, 1), Focal(0.5, 0, 2, 1, 1), Focal(1, 0.25, 2, 1, 1)}},
        Case{"focal_loss",
             {AttrF("gamma", 0.5), AttrF("alpha", 0.25)},
             {2, -1, 0.5},
             {1, 1, 0},
             {Focal(2, 1, 0.5, 0.25, 0.75), Focal(-1, 1, 0.5, 0.25, 0.75), Focal(0.5, 0, 0.5, 0.25, 0.75)}},
        // Without gamma it is cross entropy.
        Case{"focal_loss", {AttrF("gamma", 0)}, {0, 3}, {1, 0}, {0.6931472f, 3.0485874f}},
        Case{"hinge_loss", {}, {0.25, 2, -3, 0.5}, {1, 1, 0, 0}, {0.75, 0, 0, 1.5}},
        Case{"hinge_loss", {AttrF("margin", 3)}, {0.25, 2}, {1, 0}, {2.75, 5}},
        Case{"huber_loss", {}, {1.5, 4, -1}, {1, 1, 1}, {0.125, 2.5, 1.5}},
        Case{"huber_loss", {AttrF("delta", 2)}, {2.5, 6}, {1, 1}, {1.125, 8}},
        Case{"poisson_loss", {}, {0, 1, -2}, {3, 0, 1}, {1, 2.7182818f, 2.1353353f}},
        Case{"quantile_loss", {}, {1, 5}, {3, 3}, {1, 1}},
        Case{"quantile_loss", {AttrF("quantile", 0.9)}, {1, 5}, {3, 3}, {1.8f, 0.2f}}),
    [](const auto& info) { return absl::StrCat(info.param.type, "_", info.index); });

OpTest OpOf(const Case& c) {
  const int64_t n = static_cast<int64_t>(c.x.size());
  OpTest t(c.type, c.attrs);
  t.Batched("X", {n, 1}, c.x).Batched("Label", {n, 1}, c.label);
  return t;
}

TEST_P(EveryColumnLoss, ValuesByHand) {
  OpTest t = OpOf(GetParam());
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {static_cast<int64_t>(GetParam().x.size()), 1}, GetParam().loss, 1e-6);
}

TEST_P(EveryColumnLoss, WeightsMultiply) {
  const int64_t n = static_cast<int64_t>(GetParam().x.size());
  OpTest t = OpOf(GetParam());
  std::vector<float> weight, loss;
  for (size_t i = 0; i < GetParam().x.size(); ++i) {
    weight.push_back(0.5f + static_cast<float>(i));
    loss.push_back(weight.back() * GetParam().loss[i]);
  }
  t.Batched("Weight", {n, 1}, weight);
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {n, 1}, loss, 5e-6);
}

TEST_P(EveryColumnLoss, GradientIsThatOfTheLoss) {
  for (const bool weighted : {false, true}) {
    OpTest t = OpOf(GetParam());
    const int64_t n = static_cast<int64_t>(GetParam().x.size());
    if (weighted) t.Batched("Weight", {n, 1}, std::vector<float>(GetParam().x.size(), 1.5f));
    t.CheckGradient({.inputs = {"X"}});
  }
}

TEST_P(EveryColumnLoss, TakesNoExamples) {
  OpTest t(GetParam().type, GetParam().attrs);
  t.Batched("X", {1, 1}, {0.3f}).Batched("Label", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST_P(EveryColumnLoss, ShapesAreNamed) {
  OpTest t(GetParam().type, GetParam().attrs);
  t.Batched("X", {1, 1}, {3}).Batched("Label", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr(GetParam().type + ": Label must be [B, 1]"));
}

TEST_P(EveryColumnLoss, NanIsNotHidden) {
  for (const float label : {0.0f, 1.0f}) {
    OpTest t(GetParam().type, GetParam().attrs);
    t.Batched("X", {1, 1}, {std::nanf("")}).Batched("Label", {1, 1}, {label});
    ASSERT_OK(t.Run());
    EXPECT_TRUE(std::isnan(t.Values("Out")[0]));
    const absl::StatusOr<Variable> dx = t.Gradient("X", 0, {{"Out", Tensor::Of<float>({1, 1}, {1})}});
    ASSERT_OK(dx.status());
    EXPECT_TRUE(std::isnan(std::get<Tensor>(*dx).span<float>()[0]));
  }
}

TEST(ColumnLossesTest, LargeLogitsStayFinite) {
  OpTest t("focal_loss");
  t.Batched("X", {4, 1}, {100, -100, 100, -100}).Batched("Label", {4, 1}, {1, 1, 0, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {4, 1}, {0, 100, 100, 0}, 1e-5);
}

TEST(ColumnLossesTest, WrongAttributesAreNamed) {
  const auto error = [](const std::string& type, const std::string& attr, double value) {
    OpTest t(type, {AttrF(attr, value)});
    t.Batched("X", {1, 1}, {3}).Batched("Label", {1, 1}, {1});
    return std::string(t.InferShapes().message());
  };
  EXPECT_THAT(error("focal_loss", "gamma", -1), HasSubstr("focal_loss: gamma must be finite and not negative, got -1"));
  EXPECT_THAT(error("focal_loss", "alpha", 2), HasSubstr("focal_loss: alpha must be at most 1, got 2"));
  EXPECT_THAT(error("hinge_loss", "margin", 0), HasSubstr("hinge_loss: margin must be positive and finite, got 0"));
  EXPECT_THAT(error("huber_loss", "delta", 0), HasSubstr("huber_loss: delta must be positive and finite, got 0"));
  // What a float cannot tell from a limit.
  EXPECT_THAT(error("huber_loss", "delta", 1e-50), HasSubstr("huber_loss: delta must be positive and finite, got 0"));
  EXPECT_THAT(error("quantile_loss", "quantile", 0.999999999), HasSubstr("must be between 0 and 1, got 1"));
  EXPECT_THAT(error("hinge_loss", "margin", 1e300), HasSubstr("hinge_loss: margin must be positive and finite"));
  EXPECT_THAT(error("quantile_loss", "quantile", 1),
              HasSubstr("quantile_loss: quantile must be between 0 and 1, got 1"));
}

}  // namespace
}  // namespace weir
