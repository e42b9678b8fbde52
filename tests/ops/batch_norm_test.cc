#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/graph/running_averages.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<float> Numbers(int64_t n, int seed) {
  std::vector<float> values;
  uint32_t state = static_cast<uint32_t>(seed) * 2654435761u + 1;
  for (int64_t i = 0; i < n; ++i) {
    state = state * 1664525u + 1013904223u;
    values.push_back(static_cast<float>(state >> 16 & 255) / 64.0f - 2.0f);
  }
  return values;
}

OpTest BatchNorm(const Shape& x, const std::vector<float>& values, const std::string& activation = "identity") {
  OpTest t("batch_norm", {AttrF("epsilon", 0.01), AttrF("momentum", 0.5), AttrS("activation", activation)});
  const int64_t channels = x[1];
  t.Batched("X", x, values);
  t.Fixed("Scale", {channels}, Numbers(channels, 2)).Fixed("Shift", {channels}, Numbers(channels, 3));
  t.Fixed("Mean", {channels}, Numbers(channels, 4))
      .Fixed("Variance", {channels}, std::vector<float>(static_cast<size_t>(channels), 2.25f));
  return t;
}

TEST(BatchNormTest, AChannelHasMeanZeroAndVarianceOne) {
  // Channel 0: 1 3 5 7, mean 4, variance 5. Channel 1: 2 twice and 6 twice.
  OpTest t("batch_norm", {AttrF("epsilon", 4)});
  t.Batched("X", {2, 2, 2}, {1, 3, 2, 2, 5, 7, 6, 6});
  t.Fixed("Scale", {2}, {3, 1})
      .Fixed("Shift", {2}, {0, 10})
      .Fixed("Mean", {2}, {77, 77})
      .Fixed("Variance", {2}, {77, 77});
  ASSERT_OK(t.Run());
  t.ExpectOutput("BatchMean", {2}, {4, 4}, 0);
  t.ExpectOutput("BatchVariance", {2}, {5, 4}, 0);
  // sqrt(5 + 4) = 3, sqrt(4 + 4).
  const float second = 2 / std::sqrt(8.0f);
  t.ExpectOutput("Out", {2, 2, 2}, {-3, -1, 10 - second, 10 - second, 1, 3, 10 + second, 10 + second});
}

TEST(BatchNormTest, OutsideOfTrainingItTakesTheRunningValues) {
  OpTest t("batch_norm", {AttrF("epsilon", 0.75)});
  t.Batched("X", {1, 2}, {5, 6});
  t.Fixed("Scale", {2}, {2, 1})
      .Fixed("Shift", {2}, {1, 0})
      .Fixed("Mean", {2}, {2, 6})
      .Fixed("Variance", {2}, {8.25f, 3.25f});
  t.step().training = false;
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {1, 2}, {3, 0});
}

TEST(BatchNormTest, OneElementHasVarianceZero) {
  OpTest t = BatchNorm({1, 3}, {4, 5, 6});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Values("BatchMean"), ElementsAre(4, 5, 6));
  EXPECT_THAT(t.Values("BatchVariance"), ElementsAre(0, 0, 0));
  EXPECT_EQ(t.Values("Out"), Numbers(3, 3));
}

TEST(BatchNormTest, IsTheDefinitionInDouble) {
  for (const Shape& x : {Shape{2, 1}, Shape{17, 3}, Shape{64, 70}, Shape{1, 2, 5}, Shape{3, 4, 7, 7},
                         Shape{5, 2, 28, 28}, Shape{2, 3, 1, 1}}) {
    SCOPED_TRACE(ShapeString(x));
    const std::vector<float> values = Numbers(ElementCount(x), 1);
    OpTest t = BatchNorm(x, values);
    ASSERT_OK(t.Run());
    const int64_t size = ElementCount(absl::MakeConstSpan(x).subspan(2)), n = x[0] * size;
    const std::vector<float> scale = Numbers(x[1], 2), shift = Numbers(x[1], 3);
    std::vector<float> want(values.size());
    for (int64_t c = 0; c < x[1]; ++c) {
      std::vector<size_t> places;
      for (int64_t b = 0; b < x[0]; ++b)
        for (int64_t i = 0; i < size; ++i) places.push_back(static_cast<size_t>((b * x[1] + c) * size + i));
      double mean = 0, variance = 0;
      for (const size_t at : places) mean += values[at] / static_cast<double>(n);
      for (const size_t at : places) variance += (values[at] - mean) * (values[at] - mean) / static_cast<double>(n);
      EXPECT_NEAR(t.Values("BatchMean")[static_cast<size_t>(c)], mean, 5e-6);
      EXPECT_NEAR(t.Values("BatchVariance")[static_cast<size_t>(c)], variance, 5e-6);
      for (const size_t at : places) {
        want[at] = static_cast<float>((values[at] - mean) / std::sqrt(variance + 0.01) * scale[static_cast<size_t>(c)] +
                                      shift[static_cast<size_t>(c)]);
      }
    }
    t.ExpectOutput("Out", x, want, 1e-5);
  }
}

TEST(BatchNormTest, GradientGoesThroughMeanAndVariance) {
  for (const Shape& x : {Shape{4, 3}, Shape{2, 2, 5}, Shape{3, 2, 2, 3}}) {
    SCOPED_TRACE(ShapeString(x));
    for (const std::string activation : {"identity", "sigmoid", "tanh"}) {
      OpTest t = BatchNorm(x, Numbers(ElementCount(x), 5), activation);
      t.CheckGradient({.inputs = {"X", "Scale", "Shift"}});
      t.CheckBatchZero();
    }
  }
}

TEST(BatchNormTest, ReluPassesBackWhereItPassedOn) {
  // With scale 0 the output is relu(shift) everywhere: dShift is what the second channel gets.
  OpTest t("batch_norm", {AttrS("activation", "relu")});
  t.Batched("X", {2, 2}, {1, 2, 3, 4})
      .Fixed("Scale", {2}, {0, 0})
      .Fixed("Shift", {2}, {-1, 1})
      .Fixed("Mean", {2}, {0, 0})
      .Fixed("Variance", {2}, {1, 1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 2}, {0, 1, 0, 1});
  const auto shift = t.Gradient("Shift", 0, {{"Out", Tensor::Of<float>({2, 2}, std::vector<float>{1, 10, 100, 1000})}});
  ASSERT_TRUE(shift.ok()) << shift.status();
  EXPECT_EQ(std::get<Tensor>(*shift).data<float>()[0], 0);
  EXPECT_EQ(std::get<Tensor>(*shift).data<float>()[1], 1010);
}

TEST(BatchNormTest, GradientsOfRunningAveragesAreWhatWasMeasuredTimesTheExamples) {
  // Mean 4, variance 5 of 1 3 5 7; two examples.
  OpTest t("batch_norm");
  t.Batched("X", {2, 1, 2}, {1, 3, 5, 7})
      .Fixed("Scale", {1}, {1})
      .Fixed("Shift", {1}, {0})
      .Fixed("Mean", {1}, {9})
      .Fixed("Variance", {1}, {9});
  ASSERT_OK(t.Run());
  const Tensor dout = Tensor::Of<float>({2, 1, 2}, std::vector<float>{1, 2, 3, 4});
  const auto mean = t.Gradient("Mean", 0, {{"Out", dout}});
  const auto variance = t.Gradient("Variance", 0, {{"Out", dout}});
  ASSERT_TRUE(mean.ok() && variance.ok()) << mean.status() << variance.status();
  EXPECT_EQ(std::get<Tensor>(*mean).data<float>()[0], 8);
  EXPECT_EQ(std::get<Tensor>(*variance).data<float>()[0], 10);
}

TEST(BatchNormTest, WhatDoesNotFitIsRefusedByName) {
  OpTest wrong("batch_norm");
  wrong.Batched("X", {2, 3}, Numbers(6, 1)).Fixed("Scale", {3}, {1, 1, 1}).Fixed("Shift", {3}, {1, 1, 1});
  wrong.Fixed("Mean", {2}, {1, 1}).Fixed("Variance", {3}, {1, 1, 1});
  EXPECT_THAT(std::string(wrong.InferShapes().message()), HasSubstr("Mean must be [3], got [2]"));
  for (const auto& [attr, text] : {std::pair(AttrF("epsilon", 0), "epsilon must be positive, got 0"),
                                   std::pair(AttrF("momentum", 1), "momentum must be in [0, 1), got 1"),
                                   std::pair(AttrS("activation", "softmax"),
                                             "activation must be identity, relu, sigmoid or tanh, got 'softmax'")}) {
    OpTest t("batch_norm", {attr});
    t.Batched("X", {1, 1}, {1})
        .Fixed("Scale", {1}, {1})
        .Fixed("Shift", {1}, {1})
        .Fixed("Mean", {1}, {1})
        .Fixed("Variance", {1}, {1});
    EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr(text));
  }
}

v1::ProgramDesc TwoReaders(const std::string& second_mean) {
  v1::ProgramDesc program;
  v1::BlockDesc* const block = program.add_blocks();
  for (const std::string& mean : {std::string("m"), second_mean}) {
    *block->add_ops() = MakeOp(
        "batch_norm", {{"X", {"x"}}, {"Scale", {"s"}}, {"Shift", {"h"}}, {"Mean", {mean}}, {"Variance", {mean + "v"}}},
        {{"Out", {"y"}}, {"BatchMean", {"bm"}}, {"BatchVariance", {"bv"}}}, {AttrF("momentum", 0.25)});
  }
  return program;
}

TEST(RunningAveragesTest, AreFoundWithTheirMomentum) {
  const auto averages = RunningAveragesOf(TwoReaders("n"));
  ASSERT_TRUE(averages.ok()) << averages.status();
  ASSERT_EQ(averages->size(), 4);
  EXPECT_EQ(averages->at("mv").momentum, 0.25);
  EXPECT_EQ(averages->at("n").op, "batch_norm");
}

TEST(RunningAveragesTest, OneOfTwoOperatorsIsRefused) {
  EXPECT_THAT(std::string(RunningAveragesOf(TwoReaders("m")).status().message()),
              HasSubstr("'m' is a running average of batch_norm and read 2 times: give each its own"));
}

}  // namespace
}  // namespace weir
