#include "ops/vector_math.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// Largest error of f against exact, in units in the last place of the exact value, over [from, to].
template <typename F, typename Exact>
double LargestError(F f, Exact exact, double from, double to) {
  double largest = 0;
  constexpr int kSteps = 200000;
  for (int i = 0; i <= kSteps; ++i) {
    const float x = static_cast<float>(from + (to - from) * i / kSteps);
    const double y = exact(static_cast<double>(x));
    const double unit = std::ldexp(1.0, std::max(std::ilogb(y), -126) - 23);
    largest = std::max(largest, std::abs(static_cast<double>(f(x)) - y) / unit);
  }
  return largest;
}

TEST(VectorMathTest, ExpIsWithinTwoUnits) {
  EXPECT_LT(LargestError(
                Exp, [](double x) { return std::exp(x); }, -87.3, 88.7),
            2);
  EXPECT_LT(LargestError(
                Exp, [](double x) { return std::exp(x); }, -1, 1),
            2);
}

TEST(VectorMathTest, ExpAtTheEnds) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(-kInf), 0);
  EXPECT_EQ(Exp(-200), 0);
  EXPECT_EQ(Exp(kInf), kInf);
  EXPECT_EQ(Exp(89), kInf);
  EXPECT_TRUE(std::isnan(Exp(std::nanf(""))));
}

TEST(VectorMathTest, LogIsWithinTwoUnits) {
  EXPECT_LT(LargestError(
                Log, [](double x) { return std::log(x); }, 1e-30, 1e-28),
            2);
  EXPECT_LT(LargestError(
                Log, [](double x) { return std::log(x); }, 1e-3, 0.9),
            2);
  EXPECT_LT(LargestError(
                Log, [](double x) { return std::log(x); }, 1.1, 1e4),
            2);
  EXPECT_NEAR(Log(1e-40f), std::log(1e-40f), 1e-5);
}

TEST(VectorMathTest, LogAtTheEnds) {
  EXPECT_EQ(Log(1), 0);
  EXPECT_EQ(Log(0), -kInf);
  EXPECT_EQ(Log(kInf), kInf);
  EXPECT_TRUE(std::isnan(Log(-1)));
  EXPECT_TRUE(std::isnan(Log(std::nanf(""))));
}

TEST(VectorMathTest, Log1pIsGoodForSmallNumbers) {
  EXPECT_LT(LargestError(
                Log1p, [](double x) { return std::log1p(x); }, 1e-12, 1e-10),
            2);
  EXPECT_LT(LargestError(
                Log1p, [](double x) { return std::log1p(x); }, 1e-4, 0.4),
            3);
  EXPECT_LT(LargestError(
                Log1p, [](double x) { return std::log1p(x); }, 0.4, 3),
            3);
  EXPECT_EQ(Log1p(0), 0);
}

TEST(VectorMathTest, SigmoidAndTanh) {
  EXPECT_LT(LargestError(
                Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, -20, 20),
            4);
  EXPECT_LT(LargestError(
                Tanh, [](double x) { return std::tanh(x); }, 0.01, 10),
            4);
  EXPECT_EQ(Tanh(-0.3f), -Tanh(0.3f));
  EXPECT_EQ(Tanh(kInf), 1);
  EXPECT_EQ(Tanh(-kInf), -1);
  EXPECT_EQ(Sigmoid(-kInf), 0);
  EXPECT_TRUE(std::isnan(Tanh(std::nanf(""))));
  EXPECT_TRUE(std::isnan(Sigmoid(std::nanf(""))));
}

TEST(VectorMathTest, SoftplusOfLargeNumbers) {
  EXPECT_EQ(Softplus(1000), 1000);
  EXPECT_EQ(Softplus(-1000), 0);
  EXPECT_NEAR(Softplus(0), 0.6931472, 1e-6);
}

}  // namespace
}  // namespace weir
