#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpTest Fc(std::string_view activation) { return OpTest("fc", {AttrS("activation", activation)}); }

TEST(FcTest, ValuesByHand) {
  OpTest t = Fc("identity");
  t.Batched("X", {2, 2}, {1, 2, 3, 4}).Fixed("W", {2, 2}, {1, 0, 1, -1}).Fixed("Bias", {2}, {0.5, 10});
  ASSERT_OK(t.Run());
  // 1 + 2 + 0.5, -2 + 10; 3 + 4 + 0.5, -4 + 10
  t.ExpectOutput("Out", {2, 2}, {3.5, 8, 7.5, 6}, 0);
}

TEST(FcTest, ActivationComesAfterTheBias) {
  OpTest t = Fc("relu");
  t.Batched("X", {1, 1}, {1}).Fixed("W", {1, 2}, {-1, -1}).Fixed("Bias", {2}, {0.5, 3});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2}, {0, 2}, 0);
}

TEST(FcTest, BiasIsOptional) {
  OpTest t = Fc("identity");
  t.Batched("X", {1, 2}, {1, 2}).Fixed("W", {2, 1}, {10, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 1}, {12}, 0);
}

TEST(FcTest, BiasGradientIsTheSumOverExamples) {
  OpTest t = Fc("relu");
  t.Batched("X", {3, 1}, {1, -1, 2}).Fixed("W", {1, 1}, {1}).Fixed("Bias", {1}, {0});
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> dbias = t.Gradient("Bias", 0, {{"Out", Tensor::Of<float>({3, 1}, {5, 6, 7})}});
  ASSERT_OK(dbias.status());
  // The second example's output is 0.
  EXPECT_THAT(std::get<Tensor>(*dbias).span<float>(), ElementsAre(12));
}

class EveryFc : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFc, GradientIsThatOfTheLayer) {
  OpTest t = Fc(GetParam());
  t.Batched("X", {3, 2}, {1, -0.5, 0.3, 0.8, -0.6, 0.2})
      .Fixed("W", {2, 3}, {0.5, -0.4, 0.9, 0.7, 0.6, -0.2})
      .Fixed("Bias", {3}, {0.1, -0.2, 0.3});
  t.CheckGradient({.inputs = {"X", "W", "Bias"}});
}

TEST_P(EveryFc, GradientWithoutBias) {
  OpTest t = Fc(GetParam());
  t.Batched("X", {2, 1, 2}, {1, -0.5, 0.3, 0.8}).Fixed("W", {2, 2}, {0.5, -0.4, 0.9, 0.7});
  t.CheckGradient({.inputs = {"X", "W"}});
}

TEST_P(EveryFc, TakesNoExamples) {
  OpTest t = Fc(GetParam());
  t.Batched("X", {1, 2}, {1, 2}).Fixed("W", {2, 1}, {10, 1}).Fixed("Bias", {1}, {0.1});
  t.CheckBatchZero();
}

INSTANTIATE_TEST_SUITE_P(All, EveryFc, ::testing::Values("identity", "relu", "sigmoid", "tanh"),
                         [](const auto& info) { return info.param; });

TEST(FcTest, RowsMayHaveSeveralDims) {
  OpTest t("fc", {AttrI("row_dims", 2)});
  t.Batched("X", {1, 2, 2}, {1, 2, 3, 4}).Fixed("W", {2, 1}, {10, 1}).Fixed("Bias", {1}, {0.5});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2, 1}, {12.5, 34.5}, 0);
  OpTest gradient("fc", {AttrS("activation", "tanh"), AttrI("row_dims", 2)});
  gradient.Batched("X", {2, 3, 2}, {1, -0.5, 0.3, 0.8, -0.6, 0.2, 0.4, 0.1, -0.9, 0.5, 0.7, -0.3})
      .Fixed("W", {2, 3}, {0.5, -0.4, 0.9, 0.7, 0.6, -0.2})
      .Fixed("Bias", {3}, {0.1, -0.2, 0.3});
  gradient.CheckGradient({.inputs = {"X", "W", "Bias"}});
  gradient.CheckBatchZero();
}

TEST(FcTest, RowDimsLeaveADimOfX) {
  for (const int64_t dims : {0, 2}) {
    OpTest t("fc", {AttrI("row_dims", dims)});
    t.Batched("X", {1, 2}, {1, 2}).Fixed("W", {2, 1}, {10, 1});
    EXPECT_THAT(std::string(t.InferShapes().message()),
                HasSubstr(absl::StrCat("fc: row_dims must leave a dim of X [-1, 2], got ", dims)));
  }
}

TEST(FcTest, MismatchNamesBothShapes) {
  OpTest t = Fc("identity");
  t.Batched("X", {1, 3}, {1, 2, 3}).Fixed("W", {2, 1}, {10, 1});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("fc: X has dims [-1, 3], 3 values per example; W has dims [2, 1] and takes 2"));
}

TEST(FcTest, BiasMustFitTheColumns) {
  OpTest t = Fc("identity");
  t.Batched("X", {1, 2}, {1, 2}).Fixed("W", {2, 1}, {10, 1}).Fixed("Bias", {2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("fc: Bias has dims [2]; W has 1 columns, so it must be [1]"));
}

TEST(FcTest, UnknownActivationIsNamed) {
  OpTest t = Fc("gelu");
  t.Batched("X", {1, 2}, {1, 2}).Fixed("W", {2, 1}, {10, 1});
  EXPECT_THAT(std::string(t.InferShapes().message()),
              HasSubstr("fc: activation must be identity, relu, sigmoid or tanh, got 'gelu'"));
}

}  // namespace
}  // namespace weir
