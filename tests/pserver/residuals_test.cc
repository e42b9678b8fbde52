#include "pserver/residuals.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "framework/wire/buffer_pool.h"
#include "framework/wire/codecs.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr LaneRange kNode{0, 2};

// What arrives when `values` are sent.
std::vector<float> SendDense(Residuals& residuals, std::vector<float> values, v1::WireFormat format, int64_t begin = 0,
                             int64_t count = -1) {
  const size_t n = values.size();
  const WireBuffer bytes = BufferPool().Get(EncodedBytes(format, n, kDenseGroup));
  residuals.EncodeDense("w", kNode, count < 0 ? static_cast<int64_t>(n) : count, begin, absl::MakeSpan(values), format,
                        bytes.data);
  std::vector<float> arrived(n);
  Decode(format, bytes.data, n, kDenseGroup, arrived.data());
  return arrived;
}

std::vector<float> SendRows(Residuals& residuals, const std::vector<int64_t>& ids, std::vector<float> values,
                            v1::WireFormat format) {
  const size_t n = values.size(), width = n / ids.size();
  const WireBuffer bytes = BufferPool().Get(EncodedBytes(format, n, width));
  residuals.EncodeRows("t", kNode, static_cast<int>(width), ids, absl::MakeSpan(values), format, bytes.data);
  std::vector<float> arrived(n);
  Decode(format, bytes.data, n, width, arrived.data());
  return arrived;
}

TEST(ResidualsTest, WhatIsLostOnceComesLater) {
  // Steps of 1: 0.3 rounds to 0 until it has added up to more than a half.
  Residuals residuals;
  std::vector<float> got;
  for (int i = 0; i < 4; ++i) got.push_back(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8)[1]);
  EXPECT_THAT(got, testing::ElementsAre(0, 1, 0, 0));
}

TEST(ResidualsTest, TheSumOfManyPushesIsThatOfTheGradients) {
  std::mt19937 random(1);
  for (const v1::WireFormat format : {v1::WIRE_FLOAT16, v1::WIRE_BFLOAT16, v1::WIRE_INT8}) {
    Residuals residuals;
    std::vector<double> exact(8), sent(8), naive(8);
    for (int step = 0; step < 1000; ++step) {
      std::vector<float> grads(8);
      for (size_t i = 0; i < 8; ++i) grads[i] = 0.7f + 1e-4f * static_cast<float>(random() % 100);
      const std::vector<float> dense = SendDense(residuals, grads, format),
                               rows = SendRows(residuals, {-4, 9}, grads, format);
      for (size_t i = 0; i < 8; ++i) {
        exact[i] += grads[i];
        sent[i] += dense[i];
        naive[i] += rows[i];
      }
    }
    // One rounding error, not a thousand.
    for (size_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(sent[i], exact[i], 0.01) << v1::WireFormat_Name(format);
      EXPECT_NEAR(naive[i], exact[i], 0.01) << v1::WireFormat_Name(format);
    }
  }
}

TEST(ResidualsTest, PiecesOfABlockAndNodesHaveTheirOwn) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/2, /*count=*/4);
  EXPECT_EQ(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/0, /*count=*/4)[1], 0);
  EXPECT_EQ(SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8, /*begin=*/2, /*count=*/4)[1], 1);
}

TEST(ResidualsTest, WhatIsNotFiniteOrBeyondTheFormatLeavesNoPoison) {
  Residuals residuals;
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(SendDense(residuals, {inf, 70000, std::nanf("")}, v1::WIRE_FLOAT16)[0], inf);
  // 70000 - 65504 comes with the next one.
  const std::vector<float> next = SendDense(residuals, {1, 0, 2}, v1::WIRE_FLOAT16);
  EXPECT_THAT(next, testing::ElementsAre(1, 4496, 2));
}

TEST(ResidualsTest, MemoryOfRowsDoesNotGrowWithTheIds) {
  Residuals residuals(/*row_bytes=*/10'000);
  std::vector<int64_t> ids(1000);
  size_t bytes = 0;
  for (int64_t round = 0; round < 20; ++round) {
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = round * 1000 + static_cast<int64_t>(i);
    SendRows(residuals, ids, std::vector<float>(4000, 0.1f), v1::WIRE_BFLOAT16);
    if (round == 0) bytes = residuals.bytes();
  }
  EXPECT_LE(residuals.bytes(), 10'000u);
  EXPECT_EQ(residuals.bytes(), bytes);
}

TEST(ResidualsTest, AreSavedAndComeBackToTheNodesThatAreLeft) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8);
  SendRows(residuals, {5, 6}, {127, 0.3f, 127, 0}, v1::WIRE_INT8);
  const v1::Residuals saved = residuals.Save(/*step=*/7);
  Residuals again, other;
  const LaneRange nodes[] = {{2, 1}, kNode}, others[] = {{0, 1}};
  ASSERT_TRUE(again.Restore(saved, nodes, /*step=*/7).ok());
  EXPECT_EQ(SendDense(again, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  EXPECT_EQ(SendRows(again, {5, 6}, {127, 0.3f, 127, 0.3f}, v1::WIRE_INT8)[1], 1);
  ASSERT_TRUE(other.Restore(saved, others, /*step=*/7).ok());
  EXPECT_EQ(other.bytes(), 0u);
}

TEST(ResidualsTest, OfAnotherStepRowsComeBackAndDenseValuesDoNot) {
  Residuals residuals;
  SendDense(residuals, {127, 0.3f}, v1::WIRE_INT8);
  SendRows(residuals, {5}, {127, 0.3f}, v1::WIRE_INT8);
  const v1::Residuals saved = residuals.Save(/*step=*/7);
  for (const int64_t step : {7, 8}) {
    Residuals again;
    ASSERT_TRUE(again.Restore(saved, {kNode}, step).ok());
    // What was left of 0.3 makes the next 0.3 more than half a step of 1.
    EXPECT_EQ(SendDense(again, {127, 0.3f}, v1::WIRE_INT8)[1], step == 7 ? 1 : 0);
    EXPECT_EQ(SendRows(again, {5}, {127, 0.3f}, v1::WIRE_INT8)[1], 1);
  }
}

TEST(ResidualsTest, EntriesThatContradictThemselvesAreRefused) {
  v1::Residuals saved;
  v1::Residual* const of = saved.add_residuals();
  of->set_name("t");
  of->set_lanes(2);
  of->set_width(3);
  of->add_ids(1);
  of->add_values(1);
  EXPECT_THAT(std::string(Residuals().Restore(saved, {}, 0).message()),
              HasSubstr("residuals of t: 1 values for 1 ids of width 3"));
  of->set_width(-1);
  EXPECT_FALSE(Residuals().Restore(saved, {}, 0).ok());
}

}  // namespace
}  // namespace weir
