#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

OpTest RunningAverage(std::vector<float> param, float rate) {
  OpTest t("running_average");
  const int64_t n = static_cast<int64_t>(param.size());
  t.Fixed("Param", {n}, param).SameVariable("ParamOut", "Param").Fixed("LearningRate", {1}, {rate});
  return t;
}

TEST(RunningAverageTest, GoesTheRatesPartOfTheWay) {
  OpTest t = RunningAverage({8, -4}, 0.25f);
  t.Fixed("Grad", {2}, {0, 4});
  ASSERT_OK(t.Run());
  t.ExpectOutput("ParamOut", {2}, {6, -2}, 0);
}

TEST(RunningAverageTest, ARateOfOneForgetsToTheBit) {
  OpTest t = RunningAverage({1e8f}, 1);
  t.Fixed("Grad", {1}, {0.1f});
  ASSERT_OK(t.Run());
  t.ExpectOutput("ParamOut", {1}, {0.1f}, 0);
}

TEST(RunningAverageTest, WithoutAMeasurementNothingChanges) {
  OpTest t = RunningAverage({3}, 0.5f);
  t.Absent("Grad", {1});
  ASSERT_OK(t.Run());
  t.ExpectOutput("ParamOut", {1}, {3}, 0);
}

}  // namespace
}  // namespace weir
