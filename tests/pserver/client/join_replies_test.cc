// Replies of servers that let a trainer in: the run, the step to begin with, the rounds of norms.
#include "pserver/member/join_replies.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/checkpoint/directory.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

v1::JoinReply WithToken(const std::string& token) {
  v1::JoinReply reply;
  reply.set_checkpoint_token(token);
  return reply;
}

v1::JoinReply WithNextStep(int64_t step, int norm_rounds = 0) {
  v1::JoinReply reply;
  reply.set_next_step(step);
  reply.set_norm_rounds(norm_rounds);
  return reply;
}

class JoinRepliesTest : public PlayedMember {
 protected:
  JoinRepliesTest() {
    dir_ = ::testing::TempDir() + "/join_replies." + ::testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir_);
  }
  ~JoinRepliesTest() override { std::filesystem::remove_all(dir_); }

  // Writes the probe of a server into a directory below dir_ and returns the reply that tells of it.
  v1::JoinReply WithProbeIn(const std::string& name) {
    const absl::StatusOr<DirectoryProbe> probe = WriteProbe(dir_ + "/" + name);
    EXPECT_TRUE(probe.ok()) << probe.status();
    v1::JoinReply reply = WithToken(probe.ok() ? probe->token : "");
    reply.set_checkpoint_probe(probe.ok() ? probe->name : "");
    reply.set_process("host:5");
    return reply;
  }

  std::string dir_;
  JoinReplies replies_{&member_.settings(), /*checkpoint_dir=*/""};
};

TEST_F(JoinRepliesTest, TheRunIsNamedAfterTheTokenOfServer0) {
  ASSERT_TRUE(replies_.Take(1, WithToken("of server 1")).ok());
  EXPECT_EQ(replies_.RunId(), "");
  ASSERT_TRUE(replies_.Take(0, WithToken("of server 0")).ok());
  const std::string run = replies_.RunId();
  EXPECT_EQ(run.size(), 16u);
  EXPECT_EQ(run.find_first_not_of("0123456789abcdef"), std::string::npos);
  ASSERT_TRUE(replies_.Take(1, WithToken("another")).ok());
  EXPECT_EQ(replies_.RunId(), run);
}

TEST_F(JoinRepliesTest, TrainersOfOneRunNameItAlikeAndAnotherRunOtherwise) {
  JoinReplies of_other(&member_.settings(), ""), of_other_run(&member_.settings(), "");
  ASSERT_TRUE(replies_.Take(0, WithToken("token")).ok());
  ASSERT_TRUE(of_other.Take(0, WithToken("token")).ok());
  ASSERT_TRUE(of_other_run.Take(0, WithToken("tokeN")).ok());
  EXPECT_EQ(of_other.RunId(), replies_.RunId());
  EXPECT_NE(of_other_run.RunId(), replies_.RunId());
}

TEST_F(JoinRepliesTest, ATrainerThatReplacesNobodyTakesNothingOver) {
  for (int s = 0; s < 2; ++s) ASSERT_TRUE(replies_.Take(s, v1::JoinReply()).ok());
  EXPECT_EQ(replies_.TakesOver(), std::nullopt);
}

TEST_F(JoinRepliesTest, AReplacementBeginsWithTheSmallestStepOfTheServers) {
  ASSERT_TRUE(replies_.Take(0, WithNextStep(5)).ok());
  ASSERT_TRUE(replies_.Take(1, WithNextStep(3)).ok());
  EXPECT_EQ(replies_.TakesOver(), 3);
}

TEST_F(JoinRepliesTest, WithNormsAReplacementBeginsWithTheLargestStepOfTheServers) {
  ASSERT_TRUE(replies_.Take(0, WithNextStep(5, /*norm_rounds=*/1)).ok());
  ASSERT_TRUE(replies_.Take(1, WithNextStep(3, /*norm_rounds=*/1)).ok());
  EXPECT_EQ(replies_.TakesOver(), 5);
}

TEST_F(JoinRepliesTest, AStepThatOneServerAloneTellsIsTakenOver) {
  ASSERT_TRUE(replies_.Take(0, v1::JoinReply()).ok());
  ASSERT_TRUE(replies_.Take(1, WithNextStep(0)).ok());
  EXPECT_EQ(replies_.TakesOver(), 0);
}

TEST_F(JoinRepliesTest, RoundsOfNormsAreThoseOfEachServer) {
  EXPECT_THAT(replies_.NormRounds(), ElementsAre(0, 0));
  ASSERT_TRUE(replies_.Take(1, WithNextStep(0, /*norm_rounds=*/2)).ok());
  EXPECT_THAT(replies_.NormRounds(), ElementsAre(0, 2));
}

TEST_F(JoinRepliesTest, ARepeatedReplyChangesNothing) {
  for (int times = 0; times < 2; ++times) ASSERT_TRUE(replies_.Take(1, WithNextStep(4, /*norm_rounds=*/2)).ok());
  EXPECT_EQ(replies_.TakesOver(), 4);
  EXPECT_THAT(replies_.NormRounds(), ElementsAre(0, 2));
}

TEST_F(JoinRepliesTest, AServerThatWritesIntoThisDirectoryIsWelcome) {
  JoinReplies replies(&member_.settings(), dir_ + "/shared");
  EXPECT_EQ(replies.Take(1, WithProbeIn("shared")), absl::OkStatus());
}

TEST_F(JoinRepliesTest, AServerThatWritesElsewhereIsRefusedWithTheWayOut) {
  JoinReplies replies(&member_.settings(), dir_ + "/here");
  const v1::JoinReply reply = WithProbeIn("elsewhere");
  EXPECT_STATUS(replies.Take(1, reply), kFailedPrecondition,
                "/here of trainer 1 (host:9) is not the one of server 1 (host:5)");
  EXPECT_STATUS(replies.Take(1, reply), kFailedPrecondition, "set checkpoint.per_host: true");
}

TEST_F(JoinRepliesTest, AProbeOfAnotherServerWithTheSameNameProvesNothing) {
  JoinReplies replies(&member_.settings(), dir_ + "/shared");
  v1::JoinReply reply = WithProbeIn("shared");
  reply.set_checkpoint_token("of a server with the same host and process number");
  EXPECT_STATUS(replies.Take(1, reply), kFailedPrecondition, "is not the one of server 1");
}

TEST_F(JoinRepliesTest, WhereEachHostHasItsDirectoryNoProbeIsRead) {
  EXPECT_TRUE(replies_.Take(1, WithProbeIn("elsewhere")).ok());
}

TEST_F(JoinRepliesTest, AServerWithoutCheckpointsHasNothingToProve) {
  JoinReplies replies(&member_.settings(), dir_ + "/here");
  EXPECT_TRUE(replies.Take(1, v1::JoinReply()).ok());
}

}  // namespace
}  // namespace weir
