#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Values;

OpTest Pool(std::string_view type) { return OpTest("sequence_pool", {AttrS("type", type)}); }

// Examples of three, no and one element (T = 3, W = 2); what stands behind a length is not read.
OpTest Example(std::string_view type) {
  OpTest t = Pool(type);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  t.Batched("X", {3, 3, 2}, {1, 20, 3, 10, 2, 60, nan, nan, nan, nan, nan, nan, 7, 8, nan, nan, nan, nan})
      .Batched("Length", {3, 1}, {3, 0, 1});
  return t;
}

TEST(SequencePoolTest, ValuesByHand) {
  const float root = std::sqrt(3.0f);
  for (const auto& [type, expected] :
       std::vector<std::pair<std::string, std::vector<float>>>{{"sum", {6, 90, 0, 0, 7, 8}},
                                                               {"mean", {2, 30, 0, 0, 7, 8}},
                                                               {"sqrt_n", {6 / root, 90 / root, 0, 0, 7, 8}},
                                                               {"max", {3, 60, 0, 0, 7, 8}},
                                                               {"first", {1, 20, 0, 0, 7, 8}},
                                                               {"last", {2, 60, 0, 0, 7, 8}}}) {
    OpTest t = Example(type);
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {3, 2}, expected, 0);
  }
}

TEST(SequencePoolTest, GradientsByHand) {
  const std::vector<std::pair<std::string, Tensor>> dout = {{"Out", Tensor::Of<float>({3, 2}, {3, 6, 100, 100, 1, 2})}};
  for (const auto& [type, first] :
       std::vector<std::pair<std::string, std::vector<float>>>{{"sum", {3, 6, 3, 6, 3, 6}},
                                                               {"mean", {1, 2, 1, 2, 1, 2}},
                                                               {"max", {0, 0, 3, 0, 0, 6}},
                                                               {"first", {3, 6, 0, 0, 0, 0}},
                                                               {"last", {0, 0, 0, 0, 3, 6}}}) {
    OpTest t = Example(type);
    ASSERT_OK(t.Run());
    absl::StatusOr<Variable> dx = t.Gradient("X", 0, dout);
    ASSERT_OK(dx.status());
    std::vector<float> expected = first;
    for (const float v : {0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0}) expected.push_back(v);
    EXPECT_THAT(std::get<Tensor>(*dx).span<float>(), ::testing::ElementsAreArray(expected)) << type;
  }
}

TEST(SequencePoolTest, OfEqualElementsTheFirstHasTheGradientOfTheLargest) {
  OpTest t = Pool("max");
  t.Batched("X", {1, 3, 1}, {1, 5, 5}).Batched("Length", {1, 1}, {3});
  ASSERT_OK(t.Run());
  absl::StatusOr<Variable> dx = t.Gradient("X", 0, {{"Out", Tensor::Of<float>({1, 1}, {2})}});
  ASSERT_OK(dx.status());
  EXPECT_THAT(std::get<Tensor>(*dx).span<float>(), ElementsAre(0, 2, 0));
}

class EverySequencePool : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, EverySequencePool, Values("sum", "mean", "sqrt_n", "max", "first", "last"),
                         [](const auto& info) { return info.param; });

TEST_P(EverySequencePool, GradientAgreesWithDifferences) {
  for (const int64_t width : {1, 3, 16, 17}) {
    std::vector<float> x;
    // Largest elements are further apart than the step of a difference.
    for (int64_t i = 0; i < 4 * 5 * width; ++i) x.push_back(0.1f * static_cast<float>(i * 37 % 101) - 4);
    OpTest t = Pool(GetParam());
    t.Batched("X", {4, 5, width}, x).Batched("Length", {4, 1}, {5, 1, 0, 3});
    t.CheckGradient({.inputs = {"X"}});
    t.CheckBatchZero();
  }
}

TEST(SequencePoolTest, ASumOfASequenceHasTheBitsOfAPooledLookUp) {
  IdBatch ids;
  ids.values = {4, 1, 1, 3, 2, 0, 4};
  ids.offsets = {0, 3, 3, 7};
  std::vector<float> w;
  for (int i = 0; i < 5 * 7; ++i) w.push_back(0.37f * static_cast<float>(i * 11 % 31) - 3.3f);
  OpTest lookup("lookup_table", {AttrI("sequence", 4)});
  lookup.Ids("Ids", ids).Fixed("W", {5, 7}, w);
  ASSERT_OK(lookup.Run());
  OpTest length("sequence_length", {AttrI("sequence", 4)});
  length.Ids("Ids", ids);
  ASSERT_OK(length.Run());
  for (const char* type : {"sum", "mean", "sqrt_n"}) {
    OpTest pooled("lookup_table", {AttrS("pooling", type)});
    pooled.Ids("Ids", ids).Fixed("W", {5, 7}, w);
    ASSERT_OK(pooled.Run());
    OpTest t = Pool(type);
    t.Batched("X", lookup.Output("Out")).Batched("Length", length.Output("Out"));
    ASSERT_OK(t.Run());
    EXPECT_EQ(std::memcmp(t.Output("Out").raw(), pooled.Output("Out").raw(), t.Output("Out").bytes()), 0) << type;
  }
}

TEST(SequencePoolTest, ALengthThatIsNoneIsNamed) {
  for (const float length : {4.0f, -1.0f, 1.5f, std::numeric_limits<float>::quiet_NaN()}) {
    OpTest t = Pool("sum");
    t.Batched("X", {2, 3, 1}, {1, 2, 3, 4, 5, 6}).Batched("Length", {2, 1}, {3, length});
    EXPECT_THAT(std::string(t.Run().message()), HasSubstr("X [2, 3, 1] has sequences of 0 to 3 elements")) << length;
    EXPECT_THAT(std::string(t.Run().message()), HasSubstr("Length of example 1 is ")) << length;
  }
}

TEST(SequencePoolTest, WrongDescriptionsAreRefused) {
  OpTest type = Pool("median");
  type.Batched("X", {1, 1, 1}, {1}).Batched("Length", {1, 1}, {1});
  EXPECT_THAT(std::string(type.InferShapes().message()),
              HasSubstr("sequence_pool: type must be sum, mean, sqrt_n, max, first or last, got 'median'"));
  OpTest rank = Pool("sum");
  rank.Batched("X", {1, 2}, {1, 2}).Batched("Length", {1, 1}, {1});
  EXPECT_THAT(std::string(rank.InferShapes().message()), HasSubstr("X must have 3 dims"));
  OpTest length = Pool("sum");
  length.Batched("X", {1, 1, 1}, {1}).Batched("Length", {1, 2}, {1, 1});
  EXPECT_THAT(std::string(length.InferShapes().message()), HasSubstr("Length must be [-1, 1], got [-1, 2]"));
}

}  // namespace
}  // namespace weir
