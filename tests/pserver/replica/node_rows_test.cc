// Gradient rows between trainers: merged in the lane tree, read back with their bits, and refused if they are damaged.

#include "pserver/replica/node_rows.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

SelectedRows Rows(std::vector<int64_t> ids, const std::vector<float>& values, int width) {
  SelectedRows rows;
  rows.ids = std::move(ids);
  rows.values.Resize(v1::FLOAT32, {static_cast<int64_t>(rows.ids.size()), width});
  std::memcpy(rows.values.raw(), values.data(), values.size() * sizeof(float));
  rows.present = true;
  return rows;
}

std::vector<float> RowOf(const std::vector<Gradient>& gradients, LaneRange node, int64_t id) {
  for (const Gradient& gradient : gradients) {
    if (!(gradient.node == node)) continue;
    for (int64_t r = 0; r < gradient.count; ++r) {
      const float* const row = gradient.values + r * gradient.width;
      if (gradient.ids[r] == id) return {row, row + gradient.width};
    }
  }
  return {};
}

TEST(NodeRowsTest, LanesOfANodeAreMergedByIdAndNodesStayApart) {
  // Lanes 0 and 1 are a node, lane 2 is another.
  const std::vector<LaneRange> nodes = AlignedNodes({0, 3});
  const SelectedRows zero = Rows({7, 3}, {1, 2, 10, 20}, 2), one = Rows({3, 9}, {0.5, 0.25, 4, 5}, 2),
                     two = Rows({3}, {100, 200}, 2);
  const std::vector<StepChannel::LaneRows> lanes = {
      {.lane = 0, .value = &zero}, {.lane = 1, .value = &one}, {.lane = 2, .value = &two}};
  const absl::StatusOr<std::string> bytes = PackNodeRows(nodes, 2, lanes);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  std::vector<Gradient> gradients;
  ASSERT_TRUE(ReadNodeRows(*bytes, nodes, /*target=*/5, 2, /*height=*/10, &gradients).ok());
  ASSERT_EQ(gradients.size(), 2u);
  EXPECT_EQ(gradients[0].target, 5);
  EXPECT_EQ(gradients[0].count, 3);
  EXPECT_EQ(RowOf(gradients, {0, 2}, 3), (std::vector<float>{10.5, 20.25}));
  EXPECT_EQ(RowOf(gradients, {0, 2}, 7), (std::vector<float>{1, 2}));
  EXPECT_EQ(RowOf(gradients, {2, 1}, 3), (std::vector<float>{100, 200}));
}

TEST(NodeRowsTest, NoRowsAreNoBytes) {
  const absl::StatusOr<std::string> bytes = PackNodeRows(AlignedNodes({0, 8}), 3, {});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(*bytes, "");
  std::vector<Gradient> gradients;
  EXPECT_TRUE(ReadNodeRows(*bytes, AlignedNodes({0, 8}), 0, 3, 10, &gradients).ok());
  EXPECT_TRUE(gradients.empty());
}

TEST(NodeRowsTest, MinusZeroKeepsItsSign) {
  const SelectedRows rows = Rows({1}, {-0.0F}, 1);
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 4, .value = &rows}};
  const absl::StatusOr<std::string> bytes = PackNodeRows(AlignedNodes({4, 4}), 1, lanes);
  ASSERT_TRUE(bytes.ok());
  std::vector<Gradient> gradients;
  ASSERT_TRUE(ReadNodeRows(*bytes, AlignedNodes({4, 4}), 0, 1, 2, &gradients).ok());
  EXPECT_TRUE(std::signbit(gradients[0].values[0]));
}

TEST(NodeRowsTest, ValuesOfAnotherWidthAreRefused) {
  const SelectedRows rows = Rows({1, 2}, {1, 2, 3, 4}, 2);
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 0, .value = &rows}};
  EXPECT_EQ(PackNodeRows(AlignedNodes({0, 1}), 3, lanes).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(NodeRowsTest, DamagedBytesAreDataLoss) {
  const std::vector<LaneRange> nodes = AlignedNodes({0, 2});
  const SelectedRows rows = Rows({1, 2, 3}, {1, 2, 3}, 1);
  const std::vector<StepChannel::LaneRows> lanes = {{.lane = 0, .value = &rows}};
  const absl::StatusOr<std::string> bytes = PackNodeRows(nodes, 1, lanes);
  ASSERT_TRUE(bytes.ok());
  const auto read = [&](const std::string& damaged, int64_t height = 10) {
    std::vector<Gradient> gradients;
    return ReadNodeRows(damaged, nodes, 0, 1, height, &gradients);
  };
  ASSERT_TRUE(read(*bytes).ok());
  for (size_t cut = 1; cut < bytes->size(); ++cut) {
    EXPECT_EQ(read(bytes->substr(0, cut)).code(), absl::StatusCode::kDataLoss) << cut;
  }
  EXPECT_THAT(std::string(read(*bytes + *bytes).message()), HasSubstr("comes twice"));
  EXPECT_THAT(std::string(read(*bytes, /*height=*/3).message()), HasSubstr("row 3 of 3"));
  std::string rows_lie = *bytes;
  const int64_t many = int64_t{1} << 62;
  std::memcpy(rows_lie.data() + 2 * sizeof(int64_t), &many, sizeof(many));
  EXPECT_THAT(std::string(read(rows_lie).message()), HasSubstr("does not fit"));
}

}  // namespace
}  // namespace weir
