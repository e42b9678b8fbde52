#include "framework/graph/infer.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::string Refusal(const std::vector<int64_t>& dims) {
  v1::VarDesc var;
  var.set_name("x");
  var.set_dtype(v1::FLOAT32);
  var.mutable_dims()->Assign(dims.begin(), dims.end());
  return std::string(CheckDims(var).message());
}

TEST(KnownCountTest, IsTheProductOfTheDims) {
  EXPECT_EQ(KnownCount({}), 1);
  EXPECT_EQ(KnownCount({3, 4}), 12);
  EXPECT_EQ(KnownCount({3, 0}), 0);
}

TEST(KnownCountTest, AnUnknownDimOrAnOverflowHasNoCount) {
  EXPECT_EQ(KnownCount({-1, 4}), -1);
  EXPECT_EQ(KnownCount({kMost, 2}), -1);
  EXPECT_EQ(KnownCount({kMost, 1}), kMost);
}

TEST(CheckDimsTest, OnlyTheFirstDimMayBeUnknown) {
  EXPECT_EQ(Refusal({-1, 8}), "");
  EXPECT_EQ(Refusal({}), "");
  EXPECT_EQ(Refusal({0, 8}), "");
  EXPECT_EQ(Refusal({8, -1}), "variable 'x' is float32 [8, -1]; a dimension is a count, the first may be -1");
  EXPECT_THAT(Refusal({-2}), HasSubstr("a dimension is a count"));
}

TEST(CheckDimsTest, AnExampleHasALargestSize) {
  EXPECT_EQ(Refusal({int64_t{1} << 24, int64_t{1} << 24}), "");
  EXPECT_THAT(Refusal({int64_t{1} << 24, (int64_t{1} << 24) + 1}), HasSubstr("more than 2^48 elements"));
  EXPECT_THAT(Refusal({kMost, kMost}), HasSubstr("more than 2^48 elements"));
  // A zero does not hide the others.
  EXPECT_THAT(Refusal({0, kMost}), HasSubstr("more than 2^48 elements"));
}

}  // namespace
}  // namespace weir
