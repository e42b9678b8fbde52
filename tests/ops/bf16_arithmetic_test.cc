// The choice of instructions for products in bfloat16, in a process of its own: it cannot be taken back.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/arithmetic.h"
#include "ops/gemm.h"

namespace weir {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr ProductPrecision kBf16 = ProductPrecision::kBf16;

TEST(Bf16ArithmeticTest, WhatTheProcessorLacksIsRefusedWithTheWayOut) {
  if (!HasBf16Unit(Bf16Unit::kAmx)) {
    const absl::Status amx = SetArithmetic(v1::Train::AMX_BF16, kBf16);
    EXPECT_EQ(amx.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(amx.message()),
                AnyOf(HasSubstr("set arithmetic: AVX512_BF16"), HasSubstr("set precision: FP32")));
  }
  if (!HasBf16Unit(Bf16Unit::kAvx512)) {
    const absl::Status automatic = SetArithmetic(v1::Train::AUTO, kBf16);
    EXPECT_EQ(automatic.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(automatic.message()), HasSubstr("neither AMX_BF16 nor AVX512_BF16: set precision: FP32"));
    GTEST_SKIP() << "this processor has no products in bfloat16";
  }
}

TEST(Bf16ArithmeticTest, WhatIsChosenStays) {
  if (!HasBf16Unit(Bf16Unit::kAvx512)) GTEST_SKIP() << "this processor has no products in bfloat16";
  ASSERT_TRUE(SetArithmetic(v1::Train::AVX512_BF16, kBf16).ok());
  EXPECT_EQ(ResolvedArithmetic(kBf16), "avx512_bf16");
  EXPECT_EQ(ResolvedArithmetic(), "avx512");
  EXPECT_TRUE(SetArithmetic(v1::Train::AUTO, kBf16).ok());
  EXPECT_EQ(ResolvedArithmetic(kBf16), "avx512_bf16");
  EXPECT_EQ(ResolvedBf16Unit(), Bf16Unit::kAvx512);
  if (HasBf16Unit(Bf16Unit::kAmx)) {
    const absl::Status other = SetArithmetic(v1::Train::AMX_BF16, kBf16);
    EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(other.message()), HasSubstr("already avx512_bf16 in this process"));
  }
  // Gemm takes what is chosen.
  const float a = 1.00390625f, b = 1;  // a is not a bfloat16, and halfway between two
  float c = 0;
  Gemm(1, 1, 1, &a, &b, &c, {.precision = kBf16});
  EXPECT_EQ(c, 1);
  Gemm(1, 1, 1, &a, &b, &c, {});
  EXPECT_EQ(c, a);
}

TEST(Bf16ArithmeticTest, AJobsPrecisionOnTheCpu) {
  v1::Train train;
  EXPECT_EQ(PrecisionOnCpu(train), ProductPrecision::kFp32);
  train.set_precision(v1::Train::BF16);
  EXPECT_EQ(PrecisionOnCpu(train), kBf16);
  train.set_device(v1::Train::CUDA);
  EXPECT_EQ(PrecisionOnCpu(train), ProductPrecision::kFp32);
}

}  // namespace
}  // namespace weir
