#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/op_test.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

IdBatch Ids(std::vector<int64_t> values, std::vector<int64_t> offsets) {
  IdBatch ids;
  ids.slots = 2;
  ids.values = std::move(values);
  ids.offsets = std::move(offsets);
  return ids;
}

// Rows of a gradient of width 1.
SelectedRows Grad(std::vector<int64_t> ids, std::vector<int32_t> step_rows) {
  SelectedRows grad;
  grad.values.Resize(v1::FLOAT32, {static_cast<int64_t>(ids.size()), 1});
  grad.ids = std::move(ids);
  grad.step_rows = std::move(step_rows);
  grad.merged = grad.present = true;
  return grad;
}

// Three samples of two slots: {7 | 9 9}, {7 7 | 5}, {| 7}. Places in the step: 7 at 4, 9 at 0, 5 at 2.
OpTest Shows(SelectedRows grad, const std::vector<int32_t>& index = {4, 0, 0, 4, 4, 2, 4},
             const std::vector<float>& click = {1, 0.25f, 0.5f}) {
  OpTest t("shows");
  t.Rows("Grad", std::move(grad), 1);
  t.Ids("Ids", Ids({7, 9, 9, 7, 7, 5, 7}, {0, 1, 3, 5, 6, 6, 7}));
  t.Fixed("Index", Tensor::Of<int32_t>({static_cast<int64_t>(index.size())}, index));
  t.Fixed("Click", {static_cast<int64_t>(click.size()), 1}, click);
  return t;
}

std::vector<float> Counts(const OpTest& t) {
  const SelectedRows& out = std::get<SelectedRows>(t.OutputVar("Out"));
  return {out.values.span<float>().begin(), out.values.span<float>().end()};
}

TEST(ShowsTest, CountsEachSampleOnceAndAddsItsClick) {
  OpTest t = Shows(Grad({9, 7, 5}, {0, 4, 2}));
  ASSERT_OK(t.Run());
  // 9: the first. 7: all three. 5: the second.
  EXPECT_THAT(Counts(t), ElementsAre(1, 1, 3, 1.75f, 1, 0.25f));
}

TEST(ShowsTest, RowsThatTheGradientLacksAreNotCounted) {
  OpTest t = Shows(Grad({7, 9}, {4, 0}));
  ASSERT_OK(t.Run());
  EXPECT_THAT(Counts(t), ElementsAre(3, 1.75f, 1, 1));
}

TEST(ShowsTest, WithoutPlacesInTheStepRowsAreFoundById) {
  OpTest t = Shows(Grad({5, 9, 7}, {}));
  ASSERT_OK(t.Run());
  EXPECT_THAT(Counts(t), ElementsAre(1, 0.25f, 1, 1, 3, 1.75f));
}

TEST(ShowsTest, WhatDoesNotBelongTogetherIsRefused) {
  OpTest samples = Shows(Grad({7}, {4}), {4, 0, 0, 4, 4, 2, 4}, {1, 0, 0, 0});
  EXPECT_THAT(std::string(samples.Run().message()), HasSubstr("Ids has 6 slots for the 4 samples of Click"));
  OpTest index = Shows(Grad({7}, {4}), {4, 0});
  EXPECT_THAT(std::string(index.Run().message()), HasSubstr("Index has 2 entries for 7 ids"));
  OpTest wide("shows");
  wide.Rows("Grad", Grad({7}, {4}), 1).Ids("Ids", Ids({7}, {0, 1, 1})).Fixed("Index", Tensor::Of<int32_t>({1}, {4}));
  wide.Fixed("Click", {1, 2}, {1, 0});
  EXPECT_THAT(std::string(wide.InferShapes().message()), HasSubstr("Click must be FLOAT32 [-1, 1], got [1, 2]"));
}

}  // namespace
}  // namespace weir
