#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(LogLossTest, ValuesByHand) {
  OpTest t("log_loss", {AttrF("epsilon", 0)});
  // -log 0.25, -log 0.75
  t.Batched("Predicted", {2, 1}, {0.25, 0.25}).Batched("Label", {2, 1}, {1, 0});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Loss", {2, 1}, {1.3862944, 0.2876821});
}

TEST(LogLossTest, EpsilonKeepsAWrongCertaintyFinite) {
  OpTest t("log_loss", {AttrF("epsilon", 0.01)});
  t.Batched("Predicted", {1, 1}, {0}).Batched("Label", {1, 1}, {1}).Batched("Weight", {1, 1}, {2});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Loss", {1, 1}, {9.2103404}, 1e-5);
}

TEST(LogLossTest, GradientIsThatOfTheLoss) {
  for (const bool weighted : {false, true}) {
    OpTest t("log_loss");
    t.Batched("Predicted", {3, 1}, {0.3, 0.8, 0.5}).Batched("Label", {3, 1}, {1, 0, 0.5});
    if (weighted) t.Batched("Weight", {3, 1}, {2, 0.5, 1});
    t.CheckGradient({.inputs = {"Predicted"}});
  }
}

TEST(LogLossTest, TakesNoExamples) {
  OpTest t("log_loss");
  t.Batched("Predicted", {1, 1}, {0.3}).Batched("Label", {1, 1}, {1});
  t.CheckBatchZero();
}

TEST(LogLossTest, BadInputIsNamed) {
  OpTest t("log_loss", {AttrF("epsilon", -1)});
  t.Batched("Predicted", {1, 1}, {0.3}).Batched("Label", {1, 1}, {1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("log_loss: epsilon must not be negative, got -1"));
  OpTest wide("log_loss");
  wide.Batched("Predicted", {1, 2}, {0.3, 0.1}).Batched("Label", {1, 1}, {1});
  EXPECT_THAT(std::string(wide.InferShapes().message()), HasSubstr("log_loss: Predicted must be [B, 1]"));
}

}  // namespace
}  // namespace weir
