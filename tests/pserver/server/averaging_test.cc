// The two policies of averaging gradients over trainers.
#include "pserver/params/averaging.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "framework/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int kLanes = 2, kTrainers = 2;

const LaneTreeSum kInLaneTree;

std::unique_ptr<const Averaging> Policy(bool by_trainers) {
  return Averaging::Create(by_trainers, kLanes, kTrainers, &kInLaneTree);
}

// Gradient of trainer `t`, which has lane t, for the dense block 0.
TrainerGradients Dense(int t, int64_t samples, const std::vector<float>& values) {
  Gradient g{.node = {t, 1}, .count = static_cast<int64_t>(values.size()), .values = values.data()};
  return {.trainer = t, .samples = samples, .gradients = {std::move(g)}};
}
// Likewise for a row of width 2 of table 0 or, with of_table false, of block 0.
TrainerGradients Row(int t, int64_t samples, const int64_t& id, const std::vector<float>& values,
                     bool of_table = true) {
  Gradient g{.of_table = of_table, .node = {t, 1}, .count = 1, .width = 2, .values = values.data(), .ids = &id};
  return {.trainer = t, .samples = samples, .gradients = {std::move(g)}};
}

const std::vector<float> kFirst = {2, 4}, kSecond = {8, 16};

std::vector<float> ValuesOf(const Variable& variable) {
  const absl::Span<const float> values = std::get<Tensor>(variable).span<float>();
  return {values.begin(), values.end()};
}

TEST(AveragingTest, BySamplesAddsOverTrainers) {
  const BlockInfo block{.count = 2, .dims = {2}};
  Variable sum;
  Variable* const to[] = {&sum};
  const TrainerGradients trainers[] = {Dense(0, 1, kFirst), Dense(1, 3, kSecond)};
  const absl::StatusOr<bool> present = Policy(false)->SumBlock(block, trainers, to);
  ASSERT_TRUE(present.ok()) << present.status();
  EXPECT_TRUE(*present);
  EXPECT_THAT(ValuesOf(sum), ElementsAre(10, 20));
}

TEST(AveragingTest, BySamplesSaysThatNoTrainerHasAGradient) {
  Variable sum;
  Variable* const to[] = {&sum};
  const TrainerGradients none{.trainer = 0, .samples = 5};
  const absl::StatusOr<bool> present =
      Policy(false)->SumBlock({.count = 2, .dims = {2}}, absl::MakeConstSpan(&none, 1), to);
  ASSERT_TRUE(present.ok()) << present.status();
  EXPECT_FALSE(*present);
}

TEST(AveragingTest, ByTrainersSetsEachOnesMeanAndZerosForOneWithoutAGradient) {
  const BlockInfo block{.count = 2, .dims = {2}};
  Variable means[2];
  Variable* const to[] = {&means[0], &means[1]};
  TrainerGradients trainers[] = {Dense(0, 2, kFirst), Dense(1, 4, kSecond)};
  ASSERT_TRUE(Policy(true)->SumBlock(block, trainers, to).ok());
  EXPECT_THAT(ValuesOf(means[0]), ElementsAre(1, 2));
  EXPECT_THAT(ValuesOf(means[1]), ElementsAre(2, 4));
  trainers[1].gradients.clear();
  const absl::StatusOr<bool> present = Policy(true)->SumBlock(block, trainers, to);
  ASSERT_TRUE(present.ok()) << present.status();
  EXPECT_TRUE(*present);
  EXPECT_THAT(ValuesOf(means[1]), ElementsAre(0, 0));
}

TEST(AveragingTest, ByTrainersSetsNoRowsForATrainerWithoutSamples) {
  const BlockInfo block{.count = 10, .dims = {5, 2}, .sparse_width = 2, .rows = 5};
  const int64_t id = 3;
  Variable means[2];
  Variable* const to[] = {&means[0], &means[1]};
  const TrainerGradients trainers[] = {Row(0, 2, id, kFirst, /*of_table=*/false),
                                       Row(1, 0, id, kSecond, /*of_table=*/false)};
  ASSERT_TRUE(Policy(true)->SumBlock(block, trainers, to).ok());
  const SelectedRows& first = std::get<SelectedRows>(means[0]);
  EXPECT_THAT(first.ids, ElementsAre(3));
  EXPECT_THAT(first.values.span<float>(), ElementsAre(1, 2));
  const SelectedRows& second = std::get<SelectedRows>(means[1]);
  EXPECT_TRUE(second.present);
  EXPECT_THAT(second.ids, IsEmpty());
}

TEST(AveragingTest, RowsOfATableAreDividedBySamplesOrByTrainers) {
  const int64_t id = 3;
  const TrainerGradients trainers[] = {Row(0, 2, id, kFirst), Row(1, 4, id, kSecond)};
  const TableSlice slice{.width = 2, .last = UINT64_MAX};
  RowSums sums;
  ASSERT_TRUE(Policy(false)->SumRows(slice, trainers, /*samples=*/6, &sums).ok());
  EXPECT_THAT(sums.rows.ids, ElementsAre(3));
  EXPECT_THAT(absl::MakeConstSpan(sums.rows.grads[0], 2), ElementsAre(10, 20));
  EXPECT_EQ(sums.divisor, 6);
  ASSERT_TRUE(Policy(true)->SumRows(slice, trainers, /*samples=*/6, &sums).ok());
  // Means [1, 2] and [2, 4].
  EXPECT_THAT(absl::MakeConstSpan(sums.rows.grads[0], 2), ElementsAre(3, 6));
  EXPECT_EQ(sums.divisor, 2);
}

TEST(AveragingTest, OpsThatAverageRowsAreLeftToTheMerge) {
  v1::BlockDesc optimize;
  for (const char* type : {"sum", "scale", "clip", "scale", "sgd"}) optimize.add_ops()->set_type(type);
  const auto types = [&](bool by_trainers) {
    std::vector<std::string> types;
    for (const v1::OpDesc* op : Policy(by_trainers)->RowOps(optimize)) types.push_back(op->type());
    return types;
  };
  // A scale behind the average is an op of its own.
  EXPECT_THAT(types(true), ElementsAre("clip", "scale", "sgd"));
  EXPECT_THAT(types(false), ElementsAre("sum", "scale", "clip", "scale", "sgd"));
  optimize.mutable_ops(0)->set_type("merge");
  EXPECT_THAT(types(false), ElementsAre("scale", "clip", "scale", "sgd"));
}

}  // namespace
}  // namespace weir
