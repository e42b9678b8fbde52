#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const float kNan = std::numeric_limits<float>::quiet_NaN();

OpTest Positions(bool from_end) { return OpTest("add_positions", {AttrB("from_end", from_end)}); }

TEST(AddPositionsTest, CountsFromTheFirstElementOrTheLast) {
  for (const bool from_end : {false, true}) {
    OpTest t = Positions(from_end);
    t.Batched("X", {3, 3, 1}, {1, 2, 3, 4, 5, kNan, kNan, kNan, kNan})
        .Fixed("W", {3, 1}, {10, 20, 30})
        .Batched("Length", {3, 1}, {3, 2, 0});
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {3, 3, 1},
                   from_end ? std::vector<float>{31, 22, 13, 24, 15, 0, 0, 0, 0}
                            : std::vector<float>{11, 22, 33, 14, 25, 0, 0, 0, 0},
                   0);
    const Tensor dout = Tensor::Of<float>({3, 3, 1}, {1, 10, 100, 1000, 10000, kNan, kNan, kNan, kNan});
    const auto w = t.Gradient("W", 0, {{"Out", dout}});
    ASSERT_OK(w.status());
    if (from_end) {
      EXPECT_THAT(std::get<Tensor>(*w).span<float>(), ElementsAre(10100, 1010, 1));
    } else {
      EXPECT_THAT(std::get<Tensor>(*w).span<float>(), ElementsAre(1001, 10010, 100));
    }
    const auto x = t.Gradient("X", 0, {{"Out", dout}});
    ASSERT_OK(x.status());
    EXPECT_THAT(std::get<Tensor>(*x).span<float>(), ElementsAre(1, 10, 100, 1000, 10000, 0, 0, 0, 0));
  }
}

TEST(AddPositionsTest, GradientAgreesWithDifferences) {
  for (const bool from_end : {false, true}) {
    std::vector<float> x, w;
    for (int64_t i = 0; i < 3 * 4 * 17; ++i) x.push_back(0.1f * static_cast<float>(i * 5 % 23) - 1.0f);
    for (int64_t i = 0; i < 4 * 17; ++i) w.push_back(0.1f * static_cast<float>(i * 7 % 19) - 1.0f);
    OpTest t = Positions(from_end);
    t.Batched("X", {3, 4, 17}, x).Fixed("W", {4, 17}, w).Batched("Length", {3, 1}, {4, 0, 3});
    t.CheckGradient({.inputs = {"X", "W"}});
    t.CheckBatchZero();
  }
}

TEST(AddPositionsTest, ThereIsAVectorForEachPosition) {
  OpTest t = Positions(false);
  t.Batched("X", {1, 2, 1}, {1, 2}).Fixed("W", {3, 1}, {1, 2, 3}).Batched("Length", {1, 1}, {2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("W must be [2, 1], got [3, 1]"));
}

}  // namespace
}  // namespace weir
