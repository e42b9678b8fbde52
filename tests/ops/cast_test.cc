#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OpTest CastTo(DType to) { return OpTest("cast", {AttrType("dtype", to)}); }

TEST(CastTest, FractionsAreCutOff) {
  OpTest t = CastTo(v1::INT64);
  t.Batched("X", {3}, {1.9, -1.9, 0});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("Out").span<int64_t>(), ElementsAre(1, -1, 0));
}

TEST(CastTest, WhatDoesNotFitBecomesTheNearest) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  OpTest t = CastTo(v1::INT32);
  t.Batched("X", {4}, {3e9, -kInf, __builtin_nanf(""), 2147483648.0f});
  ASSERT_OK(t.Run());
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  EXPECT_THAT(t.Output("Out").span<int32_t>(), ElementsAre(kMax, std::numeric_limits<int32_t>::min(), 0, kMax));
  OpTest bytes = CastTo(v1::UINT8);
  bytes.Batched("X", Tensor::Of<int64_t>({3}, {-1, 255, 1000}));
  ASSERT_OK(bytes.Run());
  EXPECT_THAT(bytes.Output("Out").span<uint8_t>(), ElementsAre(0, 255, 255));
}

TEST(CastTest, BoolIsNotZero) {
  OpTest t = CastTo(v1::BOOL);
  t.Batched("X", {3}, {0, 0.5, -2});
  ASSERT_OK(t.Run());
  EXPECT_THAT(t.Output("Out").span<bool>(), ElementsAre(false, true, true));
}

TEST(CastTest, IntegersBecomeFloats) {
  OpTest t = CastTo(v1::FLOAT32);
  t.Batched("X", Tensor::Of<int64_t>({2, 1}, {3, -4}));
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {2, 1}, {3, -4}, 0);
}

TEST(CastTest, GradientBetweenFloats) {
  OpTest t = CastTo(v1::FLOAT32);
  t.Batched("X", {2}, {1, -2});
  t.CheckGradient({.inputs = {"X"}});
}

TEST(CastTest, TakesNoExamples) {
  OpTest t = CastTo(v1::INT64);
  t.Batched("X", {2}, {1, -2});
  t.CheckBatchZero();
}

TEST(CastTest, UnknownTypesAreRefused) {
  OpTest t = CastTo(v1::BFLOAT16);
  t.Batched("X", {1}, {1});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("cast: dtype must be FLOAT32, FLOAT64"));
}

}  // namespace
}  // namespace weir
