#include "pserver/channels/gradient_sums.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/pserver/channels/step_recorder.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr float kBig = 1 << 24;  // kBig + 1 is kBig

// Records counts and heights of rows, too.
class Servers : public StepRecorder {
 public:
  absl::Status SendRows(const BlockRef& block, int width, absl::Span<const LaneRows> lanes) override {
    for (const LaneRows& lane : lanes) {
      heights.push_back(lane.value->height);
      if (lane.counts == nullptr) continue;
      EXPECT_TRUE(lane.counts->initialized());
      lanes_with_counts.push_back(lane.lane);
      const auto of_lane = lane.counts->span<float>();
      counts.insert(counts.end(), of_lane.begin(), of_lane.end());
    }
    return StepRecorder::SendRows(block, width, lanes);
  }

  std::vector<float> counts;
  std::vector<int64_t> heights;
  std::vector<int> lanes_with_counts;
};

class GradientSumsTest : public ::testing::Test {
 protected:
  static BlockRef W(int server = 0) { return {.name = "w", .server = server, .count = 1}; }
  static BlockRef T() { return {.name = "t", .server = -1}; }

  absl::Status AddDense(const Tensor& value, int lane = 0, const BlockRef& block = W()) {
    const StepChannel::LaneTensor lanes[] = {{.lane = lane, .value = &value}};
    return sums_.AddDense(block, lanes);
  }
  absl::Status AddRows(const SelectedRows& value, int lane = 0, const Tensor* counts = nullptr) {
    const StepChannel::LaneRows lanes[] = {{.lane = lane, .value = &value, .counts = counts}};
    return sums_.AddRows(T(), /*width=*/1, lanes);
  }
  std::vector<std::string> SendRest() {
    EXPECT_EQ(sums_.SendRest(&servers_), absl::OkStatus());
    return servers_.Take();
  }

  GradientSums sums_;
  Servers servers_;
};

TEST_F(GradientSumsTest, GradientsOfALaneAreAddedInTheOrderInWhichTheyCome) {
  for (const float value : {kBig, 1.0f, -kBig}) ASSERT_EQ(AddDense(Floats({value}), 0), absl::OkStatus());
  for (const float value : {kBig, -kBig, 1.0f}) ASSERT_EQ(AddDense(Floats({value}), 1), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("dense w lane 0: 0 lane 1: 1"));
}

TEST_F(GradientSumsTest, LanesAreSummedApart) {
  ASSERT_EQ(AddDense(Floats({1, 2}), 3), absl::OkStatus());
  ASSERT_EQ(AddDense(Floats({10, 20}), 1), absl::OkStatus());
  ASSERT_EQ(AddDense(Floats({100, 200}), 3), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("dense w lane 1: 10 20 lane 3: 101 202"));
}

TEST_F(GradientSumsTest, AnAbsentGradientIsSkippedAndNotAddedAsZero) {
  const StepChannel::LaneTensor none[] = {{.lane = 0, .value = nullptr}};
  ASSERT_EQ(sums_.AddDense(W(), none), absl::OkStatus());
  ASSERT_EQ(AddDense(Tensor()), absl::OkStatus());
  ASSERT_EQ(AddDense(Floats({-0.0f})), absl::OkStatus());
  ASSERT_EQ(AddDense(Tensor()), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("dense w lane 0: -0"));
}

TEST_F(GradientSumsTest, ABlockOfWhichAllGradientsAreAbsentIsNotSent) {
  ASSERT_EQ(AddDense(Tensor()), absl::OkStatus());
  ASSERT_EQ(AddRows(SelectedRows()), absl::OkStatus());
  EXPECT_THAT(SendRest(), IsEmpty());
}

TEST_F(GradientSumsTest, WhatWasAddedMayChangeAfterwards) {
  Tensor value = Floats({1});
  ASSERT_EQ(AddDense(value), absl::OkStatus());
  value.data<float>()[0] = 99;
  EXPECT_THAT(SendRest(), ElementsAre("dense w lane 0: 1"));
}

TEST_F(GradientSumsTest, RowsAreMergedByIdInOrderOfFirstAppearance) {
  ASSERT_EQ(AddRows(Rows({7, 3}, {1, 2})), absl::OkStatus());
  ASSERT_EQ(AddRows(Rows({3, 9}, {10, 20})), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("rows t lane 0: ids 7 3 9 values 1 12 20"));
}

TEST_F(GradientSumsTest, RowsOfOneIdAreAddedInTheOrderInWhichTheyCome) {
  for (const float value : {kBig, 1.0f, -kBig}) ASSERT_EQ(AddRows(Rows({7}, {value}), 0), absl::OkStatus());
  for (const float value : {kBig, -kBig, 1.0f}) ASSERT_EQ(AddRows(Rows({7}, {value}), 1), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("rows t lane 0: ids 7 values 0 lane 1: ids 7 values 1"));
}

TEST_F(GradientSumsTest, ShowsAndClicksAreAddedBesideTheRows) {
  const Tensor first = Tensor::Of<float>({2, 2}, {5, 1, 6, 0}), second = Tensor::Of<float>({1, 2}, {10, 3});
  ASSERT_EQ(AddRows(Rows({7, 3}, {1, 2}), 0, &first), absl::OkStatus());
  ASSERT_EQ(AddRows(Rows({3}, {10}), 0, &second), absl::OkStatus());
  SendRest();
  EXPECT_THAT(servers_.counts, ElementsAre(5, 1, 16, 3));
}

// A lane without ids pushes no rows, and says so in the form of the table.
TEST_F(GradientSumsTest, ShowsAndClicksOfNoRowsAreSentAsNone) {
  const Tensor none = Tensor::Of<float>({0, 2}, absl::Span<const float>()), one = Tensor::Of<float>({1, 2}, {10, 3});
  SelectedRows no_rows;
  no_rows.values = Tensor::Of<float>({0, 1}, absl::Span<const float>());
  no_rows.present = true;
  ASSERT_EQ(AddRows(no_rows, 0, &none), absl::OkStatus());
  ASSERT_EQ(AddRows(no_rows, 0, &none), absl::OkStatus());
  ASSERT_EQ(AddRows(Rows({3}, {10}), 1, &one), absl::OkStatus());
  SendRest();
  EXPECT_THAT(servers_.counts, ElementsAre(10, 3));
  EXPECT_THAT(servers_.lanes_with_counts, ElementsAre(0, 1));
}

TEST_F(GradientSumsTest, TheHeightIsTheLargestThatABatchKnows) {
  SelectedRows known = Rows({7}, {1});
  known.height = 30;
  ASSERT_EQ(AddRows(known, 0), absl::OkStatus());
  ASSERT_EQ(AddRows(Rows({7}, {1}), 1), absl::OkStatus());
  SendRest();
  EXPECT_THAT(servers_.heights, ElementsAre(30, 30));
}

TEST_F(GradientSumsTest, AGradientOfAnotherSizeIsRefused) {
  ASSERT_EQ(AddDense(Floats({1, 2})), absl::OkStatus());
  EXPECT_EQ(AddDense(Floats({1, 2, 3})),
            absl::InvalidArgumentError("gradient of w has 3 elements in one batch of the step and 2 in another"));
  const absl::Status refused = AddRows(Rows({7}, {1, 2}));
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("gradient of t has 2 values; 1 rows of width 1 need 1"));
}

TEST_F(GradientSumsTest, ABlockIsSentOnce) {
  EXPECT_FALSE(sums_.Has(W()));
  ASSERT_EQ(AddDense(Floats({1})), absl::OkStatus());
  EXPECT_TRUE(sums_.Has(W()));
  ASSERT_EQ(sums_.Send(W(), &servers_), absl::OkStatus());
  EXPECT_THAT(servers_.Take(), ElementsAre("dense w lane 0: 1"));
  EXPECT_FALSE(sums_.Has(W()));
  ASSERT_EQ(sums_.Send(W(), &servers_), absl::OkStatus());
  EXPECT_THAT(SendRest(), IsEmpty());
}

TEST_F(GradientSumsTest, ABlockThatIsUnknownIsNotSent) {
  EXPECT_EQ(sums_.Send(W(), &servers_), absl::OkStatus());
  EXPECT_THAT(servers_.Take(), IsEmpty());
}

TEST_F(GradientSumsTest, TheRestIsSentInOrderOfNamesAndServers) {
  ASSERT_EQ(AddDense(Floats({2}), 0, W(/*server=*/1)), absl::OkStatus());
  ASSERT_EQ(AddRows(Rows({7}, {3})), absl::OkStatus());
  ASSERT_EQ(AddDense(Floats({1}), 0, W(/*server=*/0)), absl::OkStatus());
  ASSERT_EQ(AddDense(Floats({9}), 0, {.name = "b", .server = 5, .count = 1}), absl::OkStatus());
  ASSERT_EQ(sums_.Send({.name = "b", .server = 5}, &servers_), absl::OkStatus());
  servers_.Take();
  EXPECT_THAT(SendRest(), ElementsAre("rows t lane 0: ids 7 values 3", "dense w lane 0: 1", "dense w lane 0: 2"));
}

TEST_F(GradientSumsTest, ClearForgetsEverything) {
  ASSERT_EQ(AddDense(Floats({1})), absl::OkStatus());
  sums_.Clear();
  EXPECT_FALSE(sums_.Has(W()));
  ASSERT_EQ(AddDense(Floats({1, 2, 3})), absl::OkStatus());
  EXPECT_THAT(SendRest(), ElementsAre("dense w lane 0: 1 2 3"));
}

}  // namespace
}  // namespace weir
