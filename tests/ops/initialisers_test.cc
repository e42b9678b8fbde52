#include "framework/runtime/initial_value.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<v1::OpAttr> With(std::vector<v1::OpAttr> attrs, std::vector<v1::OpAttr> more) {
  attrs.insert(attrs.end(), more.begin(), more.end());
  return attrs;
}

TEST(FillConstantTest, FillsEveryElementOfItsType) {
  OpTest floats("fill_constant", {AttrInts("shape", {2, 2}), AttrF("value", 0.5)});
  ASSERT_OK(floats.Run());
  floats.ExpectOutput("Out", {2, 2}, {0.5, 0.5, 0.5, 0.5}, 0);
  OpTest ints("fill_constant", {AttrInts("shape", {3}), AttrType("dtype", v1::INT64), AttrF("value", -7)});
  ASSERT_OK(ints.Run());
  EXPECT_THAT(ints.Output("Out").span<int64_t>(), ElementsAre(-7, -7, -7));
}

TEST(FillConstantTest, AScalarHasNoDims) {
  OpTest t("fill_constant", {AttrInts("shape", {}), AttrF("value", 2)});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {}, {2}, 0);
}

TEST(FillConstantTest, AnIntegerMustHoldTheValue) {
  OpTest t("fill_constant", {AttrInts("shape", {3}), AttrType("dtype", v1::INT64), AttrF("value", 0.5)});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("INT64 cannot hold the value 0.5"));
  OpTest u("fill_constant", {AttrInts("shape", {3}), AttrType("dtype", v1::INT32), AttrF("value", 3e9)});
  EXPECT_THAT(std::string(u.InferShapes().message()), HasSubstr("INT32 cannot hold"));
}

struct RandomCase {
  std::string type;
  std::vector<v1::OpAttr> attrs;
  v1::Initializer initializer;
};
std::vector<RandomCase> RandomCases() {
  std::vector<RandomCase> cases(3);
  cases[0] = {.type = "uniform_random", .attrs = {AttrF("min", -2), AttrF("max", 3)}};
  cases[0].initializer.mutable_uniform()->set_min(-2);
  cases[0].initializer.mutable_uniform()->set_max(3);
  cases[1] = {.type = "gaussian_random", .attrs = {AttrF("mean", 1), AttrF("stddev", 2)}};
  cases[1].initializer.mutable_gaussian()->set_mean(1);
  cases[1].initializer.mutable_gaussian()->set_stddev(2);
  cases[2] = {.type = "xavier", .attrs = {AttrI("fan_in", 30), AttrI("fan_out", 10)}};
  cases[2].initializer.mutable_xavier()->set_fan_in(30);
  cases[2].initializer.mutable_xavier()->set_fan_out(10);
  return cases;
}

TEST(RandomInitTest, APieceHasTheBitsOfTheVariable) {
  for (const RandomCase& c : RandomCases()) {
    std::vector<float> whole(60);
    ASSERT_OK(InitialElements(c.initializer, 9, "w", {20, 3}, 0, absl::MakeSpan(whole)));
    OpTest t(c.type, With(c.attrs, {AttrInts("shape", {4, 3}), AttrS("variable", "w"), AttrI("seed", 9),
                                    AttrI("element_begin", 21)}));
    ASSERT_OK(t.Run());
    t.ExpectOutput("Out", {4, 3}, std::vector<float>(whole.begin() + 21, whole.begin() + 33), 0);
  }
}

TEST(RandomInitTest, TheVariableMustBeNamed) {
  for (const RandomCase& c : RandomCases()) {
    OpTest t(c.type, With(c.attrs, {AttrInts("shape", {4, 3}), AttrS("variable", "")}));
    EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("variable must name"));
  }
}

TEST(XavierTest, FansMustBePositive) {
  OpTest t("xavier", {AttrInts("shape", {4}), AttrS("variable", "w"), AttrI("fan_in", 0), AttrI("fan_out", 3)});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("must be positive, got 0 and 3"));
}

TEST(UniformRandomTest, AnEmptyIntervalIsRefused) {
  OpTest t("uniform_random", {AttrInts("shape", {4}), AttrS("variable", "w"), AttrF("min", 1), AttrF("max", 0)});
  EXPECT_THAT(std::string(t.Run().message()), HasSubstr("min 1 must be at most max 0"));
}

}  // namespace
}  // namespace weir
