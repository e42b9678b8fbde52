// Norms over two servers, which a test plays.
#include "pserver/client/norm_exchange.h"

#include <limits>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "framework/base/exact_sum.h"
#include "framework/wire/slices.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

// Reply of a server that holds these values of each norm.
v1::NormsReply Sums(const std::map<std::string, std::vector<float>>& values) {
  v1::NormsReply reply;
  reply.set_ready(true);
  for (const auto& [name, of_norm] : values) {
    ExactSum sum;
    sum.AddSquares(of_norm);
    v1::PartialSum* const part = reply.add_sums();
    part->set_name(name);
    part->set_sum(sum.ToBytes());
  }
  return reply;
}

// Reply of a server that needs no further norms for the step.
v1::NormsReply Over() {
  v1::NormsReply reply = Sums({});
  reply.set_over(true);
  return reply;
}

class NormExchangeTest : public PlayedMember {
 protected:
  void Answer(int server, const v1::NormsReply& reply) { servers_.Answer(server, Method::kNorms, reply); }
  std::vector<v1::NormsRequest> Requests(int server) {
    return servers_.Requests<v1::NormsRequest>(server, Method::kNorms);
  }
  // Norms that a request brings.
  static std::map<std::string, double> Norms(const v1::NormsRequest& request) {
    std::map<std::string, double> norms;
    for (const v1::WholeNorm& norm : request.norms()) norms[norm.name()] = norm.norm();
    return norms;
  }

  NormExchange norms_{&member_.calls(), &member_.waits()};
};

TEST_F(NormExchangeTest, EveryServerGetsTheNormOfTheSumsOfAll) {
  Answer(0, Sums({{"w", {3}}}));
  Answer(1, Sums({{"w", {4, 12}}}));
  for (int s = 0; s < 2; ++s) Answer(s, Over());
  ASSERT_TRUE(norms_.Run(/*step=*/7, {1, 1}).ok());
  for (int s = 0; s < 2; ++s) {
    ASSERT_THAT(Requests(s), SizeIs(2));
    EXPECT_THAT(Norms(Requests(s)[1]), ElementsAre(Pair("w", 13)));
  }
}

TEST_F(NormExchangeTest, ARoundSaysItsStepAndNumberAndTheFirstBringsNothing) {
  for (int s = 0; s < 2; ++s) {
    Answer(s, Sums({{"w", {3}}}));
    Answer(s, Over());
  }
  ASSERT_TRUE(norms_.Run(/*step=*/7, {1, 1}).ok());
  ASSERT_THAT(Requests(1), SizeIs(2));
  for (int round = 0; round < 2; ++round) {
    const v1::NormsRequest request = Requests(1)[static_cast<size_t>(round)];
    EXPECT_EQ(request.caller().trainer(), 1);
    EXPECT_EQ(request.step(), 7);
    EXPECT_EQ(request.round(), round);
    EXPECT_EQ(request.norms_size(), round);
  }
}

TEST_F(NormExchangeTest, AServerGetsTheNormsOfItsOwnSumsAlone) {
  Answer(0, Sums({{"v", {2}}, {"w", {3}}}));
  Answer(1, Sums({{"w", {4}}}));
  for (int s = 0; s < 2; ++s) Answer(s, Over());
  ASSERT_TRUE(norms_.Run(7, {1, 1}).ok());
  EXPECT_THAT(Norms(Requests(0).at(1)), ElementsAre(Pair("v", 2), Pair("w", 5)));
  EXPECT_THAT(Norms(Requests(1).at(1)), ElementsAre(Pair("w", 5)));
}

TEST_F(NormExchangeTest, WithoutRoundsNobodyIsAsked) {
  ASSERT_TRUE(norms_.Run(7, {0, 0}).ok());
  EXPECT_THAT(Requests(0), IsEmpty());
  EXPECT_THAT(Requests(1), IsEmpty());
}

TEST_F(NormExchangeTest, AServerWithoutRoundsIsNotAsked) {
  Answer(1, Sums({{"w", {4}}}));
  Answer(1, Over());
  ASSERT_TRUE(norms_.Run(7, {0, 1}).ok());
  EXPECT_THAT(Requests(0), IsEmpty());
  EXPECT_THAT(Norms(Requests(1).at(1)), ElementsAre(Pair("w", 4)));
}

TEST_F(NormExchangeTest, AServerWithFewerRoundsIsLeftOutOfTheLast) {
  Answer(0, Sums({{"w", {3}}}));
  Answer(0, Sums({}));
  Answer(1, Sums({{"w", {4}}}));
  Answer(1, Sums({{"clip", {2}}}));
  Answer(1, Over());
  ASSERT_TRUE(norms_.Run(7, {1, 2}).ok());
  EXPECT_THAT(Requests(0), SizeIs(2));
  ASSERT_THAT(Requests(1), SizeIs(3));
  EXPECT_EQ(Requests(1)[2].round(), 2);
  EXPECT_THAT(Norms(Requests(1)[2]), ElementsAre(Pair("clip", 2)));
}

// Trainers that hold parts of the norm `w`.
class Party : public NormParty {
 public:
  absl::StatusOr<NormSums> Sums(int64_t step) override {
    ++asked;
    EXPECT_EQ(step, 7);
    if (!error.ok()) return error;
    ExactSum sum;
    const std::vector<float> values = {12};
    sum.AddSquares(values);
    return NormSums{{"w", sum}};
  }
  void Take(const weir::Norms& norms) override { taken = norms; }

  int asked = 0;
  absl::Status error;
  weir::Norms taken;
};

TEST_F(NormExchangeTest, PartsOfTrainersAreAddedInTheFirstRound) {
  Answer(0, Sums({{"v", {2}}, {"w", {3}}}));
  Answer(0, Sums({{"clip", {5}}}));
  Answer(1, Sums({{"w", {4}}}));
  Answer(1, Sums({}));
  Answer(0, Over());
  Party party;
  ASSERT_TRUE(norms_.Run(7, {2, 1}, &party).ok());
  EXPECT_EQ(party.asked, 1);
  EXPECT_THAT(party.taken, ElementsAre(Pair("v", 2), Pair("w", 13)));
  EXPECT_THAT(Norms(Requests(0).at(1)), ElementsAre(Pair("v", 2), Pair("w", 13)));
  EXPECT_THAT(Norms(Requests(1).at(1)), ElementsAre(Pair("w", 13)));
  EXPECT_THAT(Norms(Requests(0).at(2)), ElementsAre(Pair("clip", 5)));
}

TEST_F(NormExchangeTest, TrainersAreNotAskedForAStepThatIsSkipped) {
  for (int s = 0; s < 2; ++s) Answer(s, Over());
  Party party;
  ASSERT_TRUE(norms_.Run(7, {1, 1}, &party).ok());
  EXPECT_EQ(party.asked, 0);
}

TEST_F(NormExchangeTest, AnErrorOfTheTrainersEndsTheStep) {
  for (int s = 0; s < 2; ++s) Answer(s, Sums({{"w", {3}}}));
  Party party;
  party.error = absl::UnavailableError("trainer 1 is dead");
  EXPECT_EQ(norms_.Run(7, {1, 1}, &party), party.error);
  EXPECT_THAT(Requests(0), SizeIs(1));
}

TEST_F(NormExchangeTest, AServerThatIsNotReadyIsAskedAgain) {
  Answer(0, v1::NormsReply());
  for (int s = 0; s < 2; ++s) {
    Answer(s, Sums({{"w", {3}}}));
    Answer(s, Over());
  }
  ASSERT_TRUE(norms_.Run(7, {1, 1}).ok());
  ASSERT_THAT(Requests(0), SizeIs(3));
  EXPECT_EQ(Requests(0)[1].round(), 0);
}

TEST_F(NormExchangeTest, ALostReplyIsAskedForWithTheSameRequest) {
  servers_.Answer(0, Method::kNorms, absl::DeadlineExceededError("no answer in time"));
  for (int s = 0; s < 2; ++s) {
    Answer(s, Sums({{"w", {3}}}));
    Answer(s, Over());
  }
  ASSERT_TRUE(norms_.Run(7, {1, 1}).ok());
  const std::vector<std::string> sent = servers_.RequestBytes(0, Method::kNorms);
  ASSERT_THAT(sent, SizeIs(3));
  EXPECT_EQ(sent[0], sent[1]);
}

TEST_F(NormExchangeTest, AStepThatIsOverForAllNeedsNoNorms) {
  for (int s = 0; s < 2; ++s) Answer(s, Over());
  ASSERT_TRUE(norms_.Run(7, {1, 1}).ok());
  EXPECT_THAT(Requests(0), SizeIs(1));
  EXPECT_THAT(Requests(1), SizeIs(1));
}

TEST_F(NormExchangeTest, AStepThatIsOverForOneServerWhileAnotherWaitsIsAMistake) {
  Answer(0, Over());
  Answer(1, Sums({{"w", {4}}}));
  EXPECT_STATUS(norms_.Run(7, {1, 1}), kInternal, "step 7 is over on 1 servers while others wait for its norms");
}

TEST_F(NormExchangeTest, AnErrorOfOneOfTwoServersNamesIt) {
  Answer(0, Sums({{"w", {3}}}));
  servers_.Answer(1, Method::kNorms, absl::FailedPreconditionError("step 7 has not been pushed"));
  EXPECT_STATUS(norms_.Run(7, {1, 1}), kFailedPrecondition, "server 1: step 7 has not been pushed");
}

TEST_F(NormExchangeTest, ANormThatIsNotFiniteIsNamedWithItsStep) {
  Answer(0, Sums({{"w", {std::numeric_limits<float>::infinity()}}}));
  Answer(1, Sums({{"w", {4}}}));
  EXPECT_STATUS(norms_.Run(7, {1, 1}), kOutOfRange, "step 7: the norm of w is inf");
}

TEST_F(NormExchangeTest, BytesThatAreNoSumAreDataLoss) {
  v1::NormsReply damaged = Sums({{"w", {3}}});
  damaged.mutable_sums(0)->mutable_sum()->pop_back();
  Answer(0, damaged);
  Answer(1, Sums({{"w", {4}}}));
  EXPECT_STATUS(norms_.Run(7, {1, 1}), kDataLoss, "sum of w: ");
}

TEST_F(NormExchangeTest, BytesThatAreNoReplyAreDataLoss) {
  for (int tries = 0; tries < 2; ++tries) servers_.Answer(0, Method::kNorms, Slices{Slice::Own("\xff")});
  Answer(1, Sums({{"w", {4}}}));
  EXPECT_STATUS(norms_.Run(7, {1, 1}), kDataLoss, "server 0: no NormsReply");
}

}  // namespace
}  // namespace weir
