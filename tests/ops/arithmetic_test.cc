// A process of its own for each choice: it cannot be taken back.
#include "ops/arithmetic.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/gemm.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ArithmeticTest, Avx2IsHeldToAlsoWhereTheProcessorHasMore) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    EXPECT_EQ(SetArithmetic(v1::Train::AVX2).code(), absl::StatusCode::kFailedPrecondition);
    GTEST_SKIP() << "this processor has no AVX2";
  }
  ASSERT_TRUE(SetArithmetic(v1::Train::AVX2).ok());
  EXPECT_EQ(ResolvedArithmetic(), "avx2");

  const std::vector<float> a = {1, 2, 3, 4}, b = {5, 6, 7, 8};
  std::vector<float> c(4);
  Gemm(2, 2, 2, a.data(), b.data(), c.data(), {});
  EXPECT_THAT(c, ElementsAre(19, 22, 43, 50));

  // Again is fine, AUTO agrees, anything else comes too late.
  EXPECT_TRUE(SetArithmetic(v1::Train::AVX2).ok());
  EXPECT_TRUE(SetArithmetic(v1::Train::AUTO).ok());
  EXPECT_EQ(ResolvedArithmetic(), "avx2");
  const absl::Status other = SetArithmetic(v1::Train::AVX512);
  EXPECT_EQ(other.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(other.message()), ::testing::AnyOf(HasSubstr("arithmetic is already avx2 in this process"),
                                                             HasSubstr("has not all of AVX-512")));
}

}  // namespace
}  // namespace weir
