// Operators of learning-rate schedules: what they refuse, far steps, the counter. Values at every step are in
// tests/pserver/server/updates_test.cc.
#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

Tensor StepAt(int64_t t) { return Tensor::Of<int64_t>({1}, {t}); }

double RateAt(int64_t t, const std::string& type, std::vector<v1::OpAttr> attrs) {
  OpTest op(type, std::move(attrs));
  op.Fixed("Step", StepAt(t));
  EXPECT_OK(op.Run());
  return op.Output("Out").data<double>()[0];
}

std::string Refusal(const std::string& type, std::vector<v1::OpAttr> attrs) {
  OpTest op(type, std::move(attrs));
  op.Fixed("Step", StepAt(0));
  return std::string(op.InferShapes().message());
}

TEST(LrScheduleTest, StepsBeyond32BitsAreExact) {
  const int64_t far = (int64_t{1} << 53) - 1;
  const std::vector<v1::OpAttr> attrs = {AttrInts("boundaries", {far, far + 1}), AttrFloats("values", {3, 2, 1})};
  EXPECT_EQ(RateAt(far - 1, "lr_piecewise", attrs), 3);
  EXPECT_EQ(RateAt(far, "lr_piecewise", attrs), 2);
  EXPECT_EQ(RateAt(far + 1, "lr_piecewise", attrs), 1);
  EXPECT_EQ(
      RateAt(far, "lr_inverse_time", {AttrF("learning_rate", 1), AttrI("decay_steps", far), AttrF("decay_rate", 1)}),
      0.5);
}

TEST(LrScheduleTest, TheRateIsComputedInDouble) {
  const double rate =
      RateAt(7, "lr_exponential", {AttrF("learning_rate", 0.1), AttrI("decay_steps", 3), AttrF("decay_rate", 0.9)});
  EXPECT_EQ(rate, 0.1 * std::pow(0.9, 7.0 / 3.0));
  EXPECT_NE(rate, static_cast<float>(rate));
}

TEST(LrScheduleTest, WhatDividesByZeroIsRefused) {
  EXPECT_THAT(Refusal("lr_cosine", {AttrF("learning_rate", 1), AttrI("decay_steps", 0)}),
              HasSubstr("decay_steps must be at least 1, got 0"));
  EXPECT_THAT(Refusal("lr_noam", {AttrF("learning_rate", 1), AttrF("d_model", 1), AttrI("warmup_steps", -3)}),
              HasSubstr("warmup_steps must be at least 1, got -3"));
  EXPECT_THAT(Refusal("lr_piecewise", {AttrInts("boundaries", {1, 2}), AttrFloats("values", {1, 2})}),
              HasSubstr("needs one value more than boundaries, got 2 values and 2 boundaries"));
}

TEST(LrScheduleTest, AStepOfAnotherTypeIsRefused) {
  OpTest op("lr_constant", {AttrF("learning_rate", 1)});
  op.Fixed("Step", {1}, {0});
  EXPECT_THAT(std::string(op.InferShapes().message()), HasSubstr("Step must be INT64, got FLOAT32"));
}

TEST(LrRateTest, IsRoundedOnce) {
  OpTest op("lr_rate", {AttrF("factor", 0.1)});
  op.Fixed("X", Tensor::Of<double>({1}, {1.0 / 3.0}));
  ASSERT_OK(op.Run());
  EXPECT_EQ(op.Values("Out")[0], static_cast<float>(1.0 / 3.0 * 0.1));
}

TEST(LrCountTest, CountsAndStaysAtTheEnd) {
  for (const int64_t from : {int64_t{0}, int64_t{1} << 40, std::numeric_limits<int64_t>::max()}) {
    OpTest op("lr_count");
    op.Fixed("Step", StepAt(from));
    op.SameVariable("StepOut", "Step");
    ASSERT_OK(op.Run());
    EXPECT_EQ(op.Output("StepOut").data<int64_t>()[0], from == std::numeric_limits<int64_t>::max() ? from : from + 1);
  }
}

}  // namespace
}  // namespace weir
