#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

TEST(KnownLabelTest, MasksWhatIsMissing) {
  const float nan = std::nanf("");
  OpTest t("known_label");
  t.Batched("X", {4, 1}, {1, nan, 0, nan});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Out", {4, 1}, {1, 0, 0, 0});
  t.ExpectOutput("Mask", {4, 1}, {1, 0, 1, 0});
  t.Batched("Weight", {4, 1}, {2, 3, 0.5f, nan});
  ASSERT_OK(t.Run());
  t.ExpectOutput("Mask", {4, 1}, {2, 0, 0.5f, 0});
  t.CheckBatchZero();
}

TEST(KnownLabelTest, ShapesAreNamed) {
  OpTest t("known_label");
  t.Batched("X", {1, 2}, {1, 2});
  EXPECT_THAT(std::string(t.InferShapes().message()), HasSubstr("X must be [B, 1]"));
}

}  // namespace
}  // namespace weir
