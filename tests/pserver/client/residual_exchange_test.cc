// Residuals that trainers bring together and deal out through server 0, which a test plays.
#include "pserver/client/residual_exchange.h"

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "framework/runtime/lane_tree.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "proto/residuals.pb.h"
#include "pserver/client/residuals.h"
#include "pserver/member/exchanged.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"

namespace weir {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// Four lanes: 0 and 1 of trainer 0, 2 and 3 of trainer 1.
v1::Plan MakePlan() {
  v1::Plan plan;
  plan.set_servers(2);
  plan.set_trainers(2);
  plan.set_lanes(4);
  plan.mutable_wire()->set_push(v1::WIRE_INT8);
  return plan;
}

// Residuals of block b in a node, as they are behind step 5.
v1::Residual OfBlock(LaneRange node, const std::vector<float>& values) {
  v1::Residual residual;
  residual.set_name("b");
  residual.set_lane(node.begin);
  residual.set_lanes(node.count);
  residual.set_width(0);
  residual.set_step(5);
  residual.mutable_values()->Add(values.begin(), values.end());
  return residual;
}

constexpr LaneRange kOfTrainer0 = {0, 2}, kOfTrainer1 = {2, 2};

class ResidualExchangeTest : public PlayedMember {
 protected:
  explicit ResidualExchangeTest(int trainer = 1) : PlayedMember(trainer) {}

  // Gives this trainer residuals.
  void Have(const v1::Residual& residual) { ASSERT_TRUE(residuals_.Restore(residual, nodes_, 5).ok()); }
  // Returns this trainer's residuals as a file has them.
  std::string Own() {
    std::string all;
    EXPECT_TRUE(residuals_
                    .Save(5,
                          [&all](const v1::Residual& residual) {
                            all += ResidualElement(residual);
                            return absl::OkStatus();
                          })
                    .ok());
    return all;
  }
  // Answers an exchange call with a chunk of what another trainer gives; the last one has the number of chunks.
  void AnswerChunk(const std::string& contribution, int chunks) {
    v1::ExchangeReply reply;
    reply.set_ready(true);
    reply.set_contribution(contribution);
    reply.set_chunks(chunks);
    servers_.Answer(0, Method::kExchange, reply);
  }
  // Answers a stream of one chunk, and the call that acknowledges it.
  void AnswerStream(const std::string& contribution) {
    AnswerChunk(contribution, 1);
    AnswerChunk("", 1);
  }
  void Acknowledge() { AnswerChunk("", 0); }
  std::vector<v1::ExchangeRequest> Requests() { return servers_.Requests<v1::ExchangeRequest>(0, Method::kExchange); }
  // Appends to taken_.
  TakeBytes Taking() {
    return [this](std::string_view bytes) {
      taken_ += bytes;
      return absl::OkStatus();
    };
  }

  const v1::Plan plan_ = MakePlan();
  const std::vector<LaneRange> nodes_ = {trainer_ == 0 ? kOfTrainer0 : kOfTrainer1};
  Residuals residuals_;
  ResidualExchange exchange_{&plan_, trainer_, nodes_, &residuals_, &member_.exchanges()};
  std::string taken_;
};

TEST_F(ResidualExchangeTest, ResidualsAreKeptIfAnyGradientIsPushedInALossyFormat) {
  v1::Plan exact, of_blocks, of_table;
  for (v1::Plan* plan : {&exact, &of_table}) {
    plan->add_tables()->set_name("t");
    plan->add_tables()->set_name("u");
  }
  of_blocks.mutable_wire()->set_push(v1::WIRE_FLOAT16);
  of_table.mutable_tables(1)->mutable_wire()->set_push(v1::WIRE_INT8);
  const auto keeps = [this](const v1::Plan& plan) {
    return ResidualExchange(&plan, trainer_, nodes_, &residuals_, &member_.exchanges()).Keeps();
  };
  EXPECT_FALSE(keeps(exact));
  EXPECT_TRUE(keeps(of_blocks));
  EXPECT_TRUE(keeps(of_table));
}

TEST_F(ResidualExchangeTest, LossyPullsLeaveNoResiduals) {
  v1::Plan plan;
  plan.mutable_wire()->set_pull(v1::WIRE_INT8);
  EXPECT_FALSE(ResidualExchange(&plan, trainer_, nodes_, &residuals_, &member_.exchanges()).Keeps());
}

TEST_F(ResidualExchangeTest, GatheringStreamsTheResidualsToTheOneWhoSaves) {
  Have(OfBlock(kOfTrainer1, {0.5f, -1}));
  Acknowledge();
  ASSERT_TRUE(exchange_.Gather(/*step=*/5, /*to=*/0, Taking()).ok());
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].key(), "residuals.5");
  EXPECT_EQ(Requests()[0].stream_to(), 0);
  EXPECT_EQ(Requests()[0].chunks(), 1);
  EXPECT_EQ(Requests()[0].contribution(), ResidualElement(OfBlock(kOfTrainer1, {0.5f, -1})));
  EXPECT_EQ(taken_, "");
}

TEST_F(ResidualExchangeTest, APostHasTheStepAsItsEdition) {
  Have(OfBlock(kOfTrainer1, {0.5f, -1}));
  Acknowledge();
  ASSERT_TRUE(exchange_.Post(/*step=*/5).ok());
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].key(), "residuals");
  EXPECT_EQ(Requests()[0].edition(), 5);
  EXPECT_EQ(Requests()[0].contribution(), ResidualElement(OfBlock(kOfTrainer1, {0.5f, -1})));
}

TEST_F(ResidualExchangeTest, AReceiverRestoresWhatIsDealtToIt) {
  AnswerStream(ResidualElement(OfBlock(kOfTrainer1, {3, 4})));
  ASSERT_TRUE(exchange_.Deal(/*from=*/0, nullptr, /*step=*/5).ok());
  EXPECT_EQ(Requests().at(0).key(), "residuals.beginning");
  EXPECT_EQ(Requests().at(0).stream_from(), 0);
  EXPECT_EQ(Own(), ResidualElement(OfBlock(kOfTrainer1, {3, 4})));
}

TEST_F(ResidualExchangeTest, ResidualsOfAllLanesOfATrainerAreItsOwnToo) {
  // Lanes 3 to 5 of trainer 1 are the nodes of lane 3 and of lanes 4 and 5.
  v1::Plan plan;
  plan.set_trainers(3);
  plan.set_lanes(8);
  const std::vector<LaneRange> nodes = {{3, 1}, {4, 2}};
  const LaneRange all = {3, 3};
  for (const bool whole : {false, true}) {
    ResidualExchange exchange(&plan, trainer_, nodes, &residuals_, &member_.exchanges(), whole);
    EXPECT_EQ(exchange.Keeps(), whole);
    AnswerStream(ResidualElement(OfBlock(all, {3, 4})));
    ASSERT_TRUE(exchange.Deal(/*from=*/0, nullptr, /*step=*/5).ok());
    EXPECT_EQ(Own(), whole ? ResidualElement(OfBlock(all, {3, 4})) : "");
  }
  const absl::Span<float> values = residuals_.DenseValues("b", all, 2);
  EXPECT_EQ(values[1], 4);
  values[1] = 5;
  EXPECT_EQ(Own(), ResidualElement(OfBlock(all, {3, 5})));
}

// A trainer whose rows leave by the hand of another of its host still has the residuals of its own sums.
TEST_F(ResidualExchangeTest, ResidualsOfAllLanesStayTheTrainersOwnIfAnotherPushesForIt) {
  for (const bool whole : {false, true}) {
    ResidualExchange exchange(&plan_, trainer_, nodes_, &residuals_, &member_.exchanges(), whole);
    exchange.SetNodes({{{0, 4}}, {}});
    AnswerStream(ResidualElement(OfBlock(kOfTrainer1, {3, 4})));
    ASSERT_TRUE(exchange.Deal(/*from=*/0, nullptr, /*step=*/5).ok());
    EXPECT_EQ(Own(), whole ? ResidualElement(OfBlock(kOfTrainer1, {3, 4})) : "");
  }
}

TEST_F(ResidualExchangeTest, AStreamThatEndsWithinAnElementIsDamage) {
  const std::string element = ResidualElement(OfBlock(kOfTrainer1, {3, 4}));
  AnswerStream(element.substr(0, element.size() - 1));
  EXPECT_STATUS(exchange_.Deal(0, nullptr, 5), kDataLoss, "the checkpoint's residuals: they end within an element");
  EXPECT_EQ(Own(), "");
}

TEST_F(ResidualExchangeTest, ResidualsThatContradictThemselvesAreDamage) {
  v1::Residual three_values_for_one_pair = OfBlock(kOfTrainer1, {1, 2, 3});
  three_values_for_one_pair.set_width(2);
  three_values_for_one_pair.add_ids(7);
  AnswerStream(ResidualElement(three_values_for_one_pair));
  EXPECT_STATUS(exchange_.Deal(0, nullptr, 5), kDataLoss,
                "the checkpoint's residuals of b: 3 values for 1 ids of width 2");
}

// Trainer 0, which saves and deals.
class ResidualReaderTest : public ResidualExchangeTest {
 protected:
  ResidualReaderTest() : ResidualExchangeTest(/*trainer=*/0) {}

  // Deals what a file holds.
  absl::Status Deal(const std::string& file) {
    return exchange_.Deal(/*from=*/0, [&file](const TakeBytes& take) { return take(file); }, /*step=*/5);
  }
};

TEST_F(ResidualReaderTest, TheOneWhoSavesGetsTheResidualsOfAllByTrainer) {
  Have(OfBlock(kOfTrainer0, {1, 2}));
  AnswerStream("those of trainer 1");
  ASSERT_TRUE(exchange_.Gather(/*step=*/5, /*to=*/0, Taking()).ok());
  EXPECT_EQ(taken_, ResidualElement(OfBlock(kOfTrainer0, {1, 2})) + "those of trainer 1");
  ASSERT_THAT(Requests(), SizeIs(2));
  EXPECT_EQ(Requests()[0].stream_from(), 1);
  EXPECT_EQ(Requests()[1].chunk(), 1);  // acknowledges the only chunk
}

TEST_F(ResidualReaderTest, ATrainerThatIsGoneIsNamed) {
  v1::ExchangeReply gone;
  gone.set_ready(true);
  gone.add_missing(1);
  servers_.Answer(0, Method::kExchange, gone);
  EXPECT_STATUS(exchange_.Gather(5, 0, Taking()), kUnavailable, "trainer 1 is gone before all of residuals.5 has come");
}

TEST_F(ResidualReaderTest, AStreamThatChangesItsLengthIsDataLoss) {
  AnswerChunk("a", 1);
  AnswerChunk("", 2);
  EXPECT_STATUS(exchange_.Gather(5, 0, Taking()), kDataLoss, "residuals.5 of trainer 1: chunk 1 of 0 bytes, of 2");
}

TEST_F(ResidualReaderTest, AnErrorOfTheTakerEndsTheGathering) {
  Have(OfBlock(kOfTrainer0, {1, 2}));
  EXPECT_STATUS(exchange_.Gather(5, 0, [](std::string_view) { return absl::ResourceExhaustedError("disk full"); }),
                kResourceExhausted, "disk full");
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ResidualReaderTest, TakingReadsTheNewestPostsOfOthersAndTheOwnResiduals) {
  Have(OfBlock(kOfTrainer0, {1, 2}));
  AnswerChunk("the post of trainer 1", 1);
  ASSERT_TRUE(exchange_.Take(/*step=*/5, Taking()).ok());
  EXPECT_EQ(taken_, ResidualElement(OfBlock(kOfTrainer0, {1, 2})) + "the post of trainer 1");
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].key(), "residuals");
  EXPECT_EQ(Requests()[0].read_trainer(), 1);
}

TEST_F(ResidualReaderTest, EachTrainerIsDealtTheNodesOfItsLanes) {
  Acknowledge();
  ASSERT_TRUE(Deal(ResidualElement(OfBlock(kOfTrainer0, {1, 2})) + ResidualElement(OfBlock(kOfTrainer1, {3, 4}))).ok());
  EXPECT_EQ(Own(), ResidualElement(OfBlock(kOfTrainer0, {1, 2})));
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].key(), "residuals.beginning");
  EXPECT_EQ(Requests()[0].stream_to(), 1);
  EXPECT_EQ(Requests()[0].contribution(), ResidualElement(OfBlock(kOfTrainer1, {3, 4})));
}

TEST_F(ResidualReaderTest, NodesThatNobodyHasAnyMoreAreDropped) {
  Acknowledge();
  ASSERT_TRUE(Deal(ResidualElement(OfBlock({0, 4}, {1, 2})) + ResidualElement(OfBlock({3, 1}, {3, 4}))).ok());
  EXPECT_EQ(Own(), "");
  EXPECT_EQ(Requests().at(0).contribution(), "");
}

// Rows of the lanes of trainer 1 leave by the hand of trainer 0, its sums do not.
TEST_F(ResidualReaderTest, RowsAreDealtToTheOneWhoPushesThemAndSumsOfAllLanesToTheirTrainer) {
  ResidualExchange exchange(&plan_, trainer_, nodes_, &residuals_, &member_.exchanges(), /*whole=*/true);
  exchange.SetNodes({{kOfTrainer0, kOfTrainer1}, {}});
  v1::Residual rows = OfBlock(kOfTrainer1, {1, 2});
  rows.set_name("t");
  rows.set_width(2);
  rows.add_ids(7);
  Acknowledge();
  const std::string sums = ResidualElement(OfBlock(kOfTrainer1, {3, 4}));
  const auto read = [&](const TakeBytes& take) { return take(ResidualElement(rows) + sums); };
  ASSERT_TRUE(exchange.Deal(0, read, 5).ok());
  EXPECT_EQ(Own(), ResidualElement(rows));
  ASSERT_THAT(Requests(), SizeIs(1));
  EXPECT_EQ(Requests()[0].contribution(), sums);
}

TEST_F(ResidualReaderTest, ATornFileIsDamageAndEndsNoStream) {
  const std::string element = ResidualElement(OfBlock(kOfTrainer0, {1, 2}));
  EXPECT_STATUS(Deal(element.substr(0, element.size() - 1)), kDataLoss,
                "the checkpoint's residuals: they end within an element");
  EXPECT_THAT(Requests(), IsEmpty());
}

TEST_F(ResidualReaderTest, AFileThatCannotBeReadIsNamedByItsReader) {
  const auto missing = [](const TakeBytes&) { return absl::NotFoundError("no file residuals"); };
  EXPECT_EQ(exchange_.Deal(0, missing, 5), absl::NotFoundError("no file residuals"));
}

}  // namespace
}  // namespace weir
