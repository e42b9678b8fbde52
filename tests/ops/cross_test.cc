#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CrossTest, ValuesByHand) {
  OpTest t("cross");
  t.Batched("X0", {2, 2}, {1, 2, 3, 4}).Batched("Y", {2, 2}, {5, 6, 7, 8}).Batched("X", {2, 2}, {10, 20, 30, 40});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {1 * 5 + 10, 2 * 6 + 20, 3 * 7 + 30, 4 * 8 + 40}, 0);
}

TEST(CrossTest, GradientsByHand) {
  OpTest t("cross");
  t.Batched("X0", {1, 2}, {1, 2}).Batched("Y", {1, 2}, {5, 6}).Batched("X", {1, 2}, {10, 20});
  ASSERT_OK(t.Run());
  const std::vector<std::pair<std::string, Tensor>> dout = {{"Out", Tensor::Of<float>({1, 2}, {100, 1000})}};
  EXPECT_THAT(std::get<Tensor>(*t.Gradient("X0", 0, dout)).span<float>(), ElementsAre(500, 6000));
  EXPECT_THAT(std::get<Tensor>(*t.Gradient("Y", 0, dout)).span<float>(), ElementsAre(100, 2000));
  EXPECT_THAT(std::get<Tensor>(*t.Gradient("X", 0, dout)).span<float>(), ElementsAre(100, 1000));
}

TEST(CrossTest, GradientAgreesWithDifferences) {
  for (const int64_t width : {1, 3, 17}) {
    std::vector<float> x0, y, x;
    for (int64_t i = 0; i < 3 * width; ++i) {
      x0.push_back(0.1f * static_cast<float>(i * 7 % 19) - 0.8f);
      y.push_back(0.1f * static_cast<float>(i * 5 % 13) - 0.5f);
      x.push_back(0.1f * static_cast<float>(i * 3 % 11) - 0.6f);
    }
    OpTest t("cross");
    t.Batched("X0", {3, width}, x0).Batched("Y", {3, width}, y).Batched("X", {3, width}, x);
    t.CheckGradient({.inputs = {"X0", "Y", "X"}});
    t.CheckBatchZero();
  }
}

TEST(CrossTest, ShapesMustBeAlike) {
  OpTest t("cross");
  t.Batched("X0", {1, 2}, {1, 2}).Batched("Y", {1, 3}, {5, 6, 7}).Batched("X", {1, 2}, {10, 20});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("[-1, 3]"));
}

}  // namespace
}  // namespace weir
