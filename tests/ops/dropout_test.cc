#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

OpTest Dropout(double rate, std::string layer, int64_t n) {
  OpTest t("dropout", {AttrF("rate", rate), AttrS("layer", layer)});
  t.Batched("X", {n, 1}, std::vector<float>(n, 1));
  return t;
}

std::vector<float> MaskOf(OpTest t) {
  EXPECT_OK(t.Run());
  return t.Values("Mask");
}

TEST(DropoutTest, WhatStaysIsScaledUpSoThatTheMeanStays) {
  OpTest t = Dropout(0.25, "d", 4000);
  ASSERT_OK(t.Run());
  int dropped = 0;
  for (float v : t.Values("Out")) {
    ASSERT_TRUE(v == 0.0f || v == 1.0f / 0.75f) << v;
    dropped += v == 0.0f;
  }
  // 1000 expected, standard deviation 27.
  EXPECT_NEAR(dropped, 1000, 135);
  EXPECT_EQ(t.Values("Out"), t.Values("Mask"));
}

TEST(DropoutTest, OutsideOfTrainingItIsTheIdentity) {
  OpTest t = Dropout(0.5, "d", 7);
  t.step().training = false;
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Values("Out"), Each(1.0f));
  EXPECT_THAT(t.Values("Mask"), Each(1.0f));
}

TEST(DropoutTest, TheMaskIsAFunctionOfSeedLayerStepAndLane) {
  const std::vector<float> mask = MaskOf(Dropout(0.5, "d", 64));
  EXPECT_EQ(MaskOf(Dropout(0.5, "d", 64)), mask);
  EXPECT_NE(MaskOf(Dropout(0.5, "e", 64)), mask);
  OpTest seed = Dropout(0.5, "d", 64);
  seed.step().seed = 2;
  EXPECT_NE(MaskOf(seed), mask);
  OpTest step = Dropout(0.5, "d", 64);
  step.step().step = 1;
  EXPECT_NE(MaskOf(step), mask);
  OpTest lane = Dropout(0.5, "d", 64);
  lane.set_lane(1);
  EXPECT_NE(MaskOf(lane), mask);
}

TEST(DropoutTest, AnElementDoesNotDependOnHowManyFollow) {
  const std::vector<float> all = MaskOf(Dropout(0.5, "d", 64));
  const std::vector<float> some = MaskOf(Dropout(0.5, "d", 21));
  EXPECT_EQ(std::vector<float>(all.begin(), all.begin() + 21), some);
}

TEST(DropoutTest, GradientPassesWhereTheElementStayed) { Dropout(0.5, "d", 9).CheckGradient({.inputs = {"X"}}); }

TEST(DropoutTest, TakesNoExamples) { Dropout(0.5, "d", 3).CheckBatchZero(); }

TEST(DropoutTest, RateMustLeaveSomething) {
  EXPECT_THAT(std::string(Dropout(1, "d", 3).InferShapes().message()),
              HasSubstr("dropout: rate must be in [0, 1), got 1"));
  EXPECT_THAT(std::string(Dropout(-0.1, "d", 3).InferShapes().message()), HasSubstr("got -0.1"));
}

}  // namespace
}  // namespace weir
