// Error feedback of gradients in 16 bits: what rounding takes comes with the next gradient, unless the step is skipped.

#include "pserver/replica/compressed_sum.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "framework/collective/collective.h"
#include "framework/collective/local_mesh.h"
#include "framework/tensor/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/framework/collective/on_ranks.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

std::vector<float> Unpacked(const CompressedSum& sum, size_t count, bool* finite = nullptr) {
  std::vector<float> out(count, -7);
  const bool all = sum.Unpack([](size_t) { return true; }, out.data());
  if (finite != nullptr) *finite = all;
  return out;
}

TEST(CompressedSumTest, WhatRoundingTakesComesWithTheNextGradient) {
  CompressedSum sum(v1::FLOAT16, {{"w", 2}}, nullptr);
  // Values from 2048 on are even.
  const std::vector<float> gradient = {2049, 3};
  sum.Pack({gradient.data()});
  EXPECT_THAT(Unpacked(sum, 2), ElementsAre(2048, 3));
  sum.Keep();
  sum.Pack({gradient.data()});
  EXPECT_THAT(Unpacked(sum, 2), ElementsAre(2050, 3));
  sum.Keep();
  const std::vector<float> zeros = {0, 0};
  sum.Pack({zeros.data()});
  EXPECT_THAT(Unpacked(sum, 2), ElementsAre(0, 0));
}

TEST(CompressedSumTest, AStepThatIsSkippedLeavesResiduals) {
  CompressedSum sum(v1::FLOAT16, {{"w", 1}}, nullptr);
  const std::vector<float> gradient = {2049}, other = {4098};
  sum.Pack({gradient.data()});
  sum.Keep();
  sum.Pack({other.data()});  // takes 1 and loses another: nobody keeps it
  sum.Pack({gradient.data()});
  EXPECT_THAT(Unpacked(sum, 1), ElementsAre(2050));
}

TEST(CompressedSumTest, AnAbsentGradientKeepsItsResidual) {
  CompressedSum sum(v1::BFLOAT16, {{"a", 1}, {"b", 1}}, nullptr);
  // 8 bits of precision: values from 256 on are even.
  const std::vector<float> a = {257}, b = {259};
  sum.Pack({a.data(), b.data()});
  sum.Keep();
  sum.Pack({nullptr, b.data()});
  // The owner of a result adds what it loses.
  sum.lost()[0] += 0.5F;
  sum.Keep();
  const std::vector<float> zero = {0};
  sum.Pack({zero.data(), zero.data()});
  // 257 is rounded to 256, 259 to 260 and 258.
  EXPECT_THAT(Unpacked(sum, 2), ElementsAre(1.5, 0));
}

TEST(CompressedSumTest, ResidualsLieWhereTheCallerWants) {
  std::map<std::string, std::vector<float>> memory;
  const auto residuals = [&](const std::string& name, int64_t count) {
    memory[name].resize(static_cast<size_t>(count));
    return absl::MakeSpan(memory[name]);
  };
  CompressedSum sum(v1::FLOAT16, {{"a", 1}, {"b", 2}}, residuals);
  const std::vector<float> a = {2049}, b = {1, 4098};
  sum.Pack({a.data(), b.data()});
  EXPECT_THAT(memory["a"], ElementsAre(0));
  sum.Keep();
  EXPECT_THAT(memory["a"], ElementsAre(1));
  EXPECT_THAT(memory["b"], ElementsAre(0, 2));
}

TEST(CompressedSumTest, WhatDoesNotFitIsInfinite) {
  for (const auto& [format, value] : {std::pair(v1::FLOAT16, 65520.0F), std::pair(v1::BFLOAT16, 3.4e38F)}) {
    CompressedSum sum(format, {{"w", 2}}, nullptr);
    bool finite = true;
    const std::vector<float> most = {1, -value};
    sum.Pack({most.data()});
    EXPECT_EQ(Unpacked(sum, 2, &finite)[1], -std::numeric_limits<float>::infinity());
    EXPECT_FALSE(finite);
    const std::vector<float> less = {1, 60000};
    sum.Pack({less.data()});
    Unpacked(sum, 2, &finite);
    EXPECT_TRUE(finite);
  }
}

TEST(CompressedSumTest, OnlyWhatIsPresentIsRead) {
  CompressedSum sum(v1::FLOAT16, {{"a", 1}, {"b", 1}}, nullptr);
  const std::vector<float> inf = {std::numeric_limits<float>::infinity()}, one = {1};
  sum.Pack({inf.data(), one.data()});
  std::vector<float> out = {-7, -7};
  EXPECT_TRUE(sum.Unpack([](size_t s) { return s == 1; }, out.data()));
  EXPECT_THAT(out, ElementsAre(-7, 1));
}

// What all results of a run lack is what ranks still keep: it does not grow with the number of steps.
TEST(CompressedSumTest, NothingIsLostOverManySteps) {
  constexpr int kRanks = 3;
  constexpr int64_t kCount = 100;
  constexpr int kSteps = 200;
  for (const DType format : {v1::FLOAT16, v1::BFLOAT16}) {
    std::vector<std::vector<double>> totals(kRanks, std::vector<double>(kCount));
    LocalMeshes meshes(kRanks);
    ExpectAllOk(OnRanks(&meshes, kRanks, MessagesOf(64), [&](Collective* collective, int rank) {
      CompressedSum sum(format, {{"w", kCount}}, nullptr);
      std::vector<float> gradient(kCount), out(kCount);
      for (int64_t i = 0; i < kCount; ++i) {
        gradient[static_cast<size_t>(i)] = 1.0F + 0.01F * static_cast<float>(i + rank);
      }
      for (int step = 0; step < kSteps; ++step) {
        void* const values = sum.Pack({gradient.data()});
        const auto pending = collective->AllReduce(
            {.name = "w", .dtype = format, .shape = {kCount}, .addends = collective->Own(values), .lost = sum.lost()},
            values);
        if (absl::Status status = pending->Wait(); !status.ok()) return status;
        EXPECT_TRUE(sum.Unpack([](size_t) { return true; }, out.data()));
        sum.Keep();
        for (size_t i = 0; i < out.size(); ++i) totals[static_cast<size_t>(rank)][i] += out[i];
      }
      return absl::OkStatus();
    }));
    for (size_t i = 0; i < kCount; ++i) {
      double exact = 0;
      for (int r = 0; r < kRanks; ++r) exact += double{1.0F + 0.01F * static_cast<float>(static_cast<int>(i) + r)};
      EXPECT_EQ(totals[1][i], totals[0][i]);
      // A step loses up to half a unit of the sum and of each addend; 8 bits have units of 2^-7.
      EXPECT_NEAR(totals[0][i], kSteps * exact, 0.2) << i;
    }
  }
}

}  // namespace
}  // namespace weir
