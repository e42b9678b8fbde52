#include "pserver/protocol/norm_rounds.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "framework/graph/op_registry.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/protocol/norm_cuts.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

ExactSum Squares(std::vector<float> values) {
  ExactSum sum;
  sum.AddSquares(values);
  return sum;
}

google::protobuf::RepeatedPtrField<v1::WholeNorm> Brought(const std::vector<std::pair<std::string, double>>& norms) {
  google::protobuf::RepeatedPtrField<v1::WholeNorm> result;
  for (const auto& [name, norm] : norms) {
    v1::WholeNorm* const added = result.Add();
    added->set_name(name);
    added->set_norm(norm);
  }
  return result;
}

TEST(NormRoundsTest, SumsOfSeveralServersMakeOneNorm) {
  NormSums totals;
  for (std::vector<float> part : {std::vector<float>{3}, std::vector<float>{4, 12}}) {
    NormRounds server(1);
    server.Offer({{"w", Squares(part)}, {"v", Squares({1})}});
    v1::NormsReply reply;
    server.Fill(&reply);
    ASSERT_TRUE(AddSums(reply, &totals).ok());
  }
  const absl::StatusOr<Norms> norms = NormsOf(totals);
  ASSERT_TRUE(norms.ok());
  EXPECT_EQ(norms->at("w"), 13);
  EXPECT_EQ(norms->at("v"), std::sqrt(2.0));
}

TEST(NormRoundsTest, RoundsFollowOneAnotherAndRepeatsChangeNothing) {
  NormRounds rounds(2);
  EXPECT_FALSE(rounds.Waiting());
  rounds.Offer({{"a", Squares({1})}});
  EXPECT_TRUE(rounds.Waiting());
  ASSERT_TRUE(rounds.Book(0, Brought({{"a", 7}})).ok());
  EXPECT_FALSE(rounds.Waiting());
  ASSERT_TRUE(rounds.Book(0, Brought({{"a", 8}})).ok());
  rounds.Offer({{"b", Squares({1})}});
  EXPECT_EQ(rounds.round(), 1);
  ASSERT_TRUE(rounds.Book(1, Brought({{"b", 9}})).ok());
  EXPECT_TRUE(rounds.Complete());
  EXPECT_EQ(rounds.norms(), (Norms{{"a", 7}, {"b", 9}}));
}

TEST(NormRoundsTest, WhatDoesNotFitIsRefused) {
  NormRounds rounds(1);
  EXPECT_EQ(rounds.Book(0, {}).code(), absl::StatusCode::kFailedPrecondition);
  rounds.Offer({{"a", Squares({1})}});
  EXPECT_EQ(rounds.Book(1, {}).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(rounds.Book(0, {}).message()), HasSubstr("0 norms have come, 1 sums were given out"));
  EXPECT_THAT(std::string(rounds.Book(0, Brought({{"b", 1}})).message()), HasSubstr("the norm of b"));
  EXPECT_EQ(rounds.Book(0, Brought({{"a", -1}})).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(rounds.Book(0, Brought({{"a", std::numeric_limits<double>::quiet_NaN()}})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(rounds.Waiting());
}

TEST(NormRoundsTest, ANormThatIsNoneIsNamedAndBytesThatAreNoSumAreDataLoss) {
  EXPECT_THAT(std::string(NormsOf({{"w@GRAD", Squares({std::numeric_limits<float>::infinity()})}}).status().message()),
              HasSubstr("the norm of w@GRAD is inf"));
  v1::NormsReply reply;
  reply.add_sums()->set_sum("x");
  NormSums totals;
  EXPECT_EQ(AddSums(reply, &totals).code(), absl::StatusCode::kDataLoss);
}

v1::OpDesc Sum() { return MakeOp("sum_of_squares", {{"X", {"g"}}}, {{"Out", {"s"}}}); }
v1::OpDesc Whole(const std::string& name) {
  return MakeOp("whole_norm", {{"X", {"s"}}}, {{"Out", {"n"}}}, {AttrS("name", name)});
}
v1::OpDesc Clip() {
  return MakeOp("clip_by_norm", {{"X", {"g"}}, {"Norm", {"n"}}}, {{"Out", {"g"}}}, {AttrF("max_norm", 2)});
}

TEST(NormCutsTest, NormsThatStandTogetherAreOneRound) {
  v1::BlockDesc block;
  for (const v1::OpDesc& op : {Sum(), Whole("a"), Whole("b"), Clip(), Sum(), Whole("c"), Clip()}) *block.add_ops() = op;
  const absl::StatusOr<std::vector<NormCut>> cuts = NormCutsOf(block);
  ASSERT_TRUE(cuts.ok());
  ASSERT_EQ(cuts->size(), 2u);
  EXPECT_EQ((*cuts)[0].begin, 1);
  EXPECT_EQ((*cuts)[0].end, 3);
  EXPECT_EQ((*cuts)[0].norms[1].name, "b");
  EXPECT_EQ((*cuts)[1].begin, 5);
}

TEST(NormCutsTest, AWholeNormWithSeveralPartsIsNoServers) {
  v1::BlockDesc block;
  *block.add_ops() = Sum();
  *block.add_ops() = MakeOp("whole_norm", {{"X", {"s", "t"}}}, {{"Out", {"n"}}}, {AttrS("name", "a")});
  EXPECT_THAT(std::string(NormCutsOf(block).status().message()), HasSubstr("has 2 parts"));
}

TEST(NormCutsTest, ATableClipIsTakenFromTheFront) {
  const v1::OpDesc sum = Sum(), whole = Whole("a"), clip = Clip(), update = MakeOp("sgd", {}, {});
  std::vector<const v1::OpDesc*> ops = {&sum, &whole, &clip, &update};
  const absl::StatusOr<std::optional<TableClip>> taken = TakeTableClip("g", &ops);
  ASSERT_TRUE(taken.ok());
  ASSERT_TRUE(taken->has_value());
  EXPECT_EQ((*taken)->name, "a");
  EXPECT_EQ((*taken)->max_norm, 2);
  EXPECT_EQ(ops, (std::vector<const v1::OpDesc*>{&update}));
  EXPECT_FALSE(TakeTableClip("g", &ops)->has_value());
  ops = {&sum, &whole, &clip, &update};
  EXPECT_THAT(std::string(TakeTableClip("other", &ops).status().message()), HasSubstr("do not hand other on"));
  ops = {&sum, &clip, &update};
  EXPECT_FALSE(TakeTableClip("g", &ops).ok());
  // Nothing would be updated.
  ops = {&sum, &whole, &clip};
  EXPECT_THAT(std::string(TakeTableClip("g", &ops).status().message()), HasSubstr("then the update"));
}

}  // namespace
}  // namespace weir
