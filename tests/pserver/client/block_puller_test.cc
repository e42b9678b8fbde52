// Pulls of dense blocks, against two servers that a test plays.
#include "pserver/client/block_puller.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "framework/base/thread_pool.h"
#include "framework/runtime/param_channel.h"
#include "framework/tensor/tensor.h"
#include "framework/wire/buffer_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/parameter_server.pb.h"
#include "proto/plan.pb.h"
#include "pserver/client/block_placement.h"
#include "pserver/client/pull_calls.h"
#include "tests/pserver/client/played_member.h"
#include "tests/testing/expect_status.h"
#include "tests/testing/played_servers.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

// Blocks a [20], c [3] and large [65537] on server 0 and b [2] on server 1.
v1::Plan MakePlan(bool sync = true, v1::WireFormat pull = v1::WIRE_FLOAT32) {
  v1::Plan plan;
  plan.set_servers(2);
  plan.set_trainers(2);
  plan.set_sync(sync);
  plan.mutable_wire()->set_pull(pull);
  const auto add = [&plan](const std::string& name, int server, int64_t count) {
    v1::PlacedBlock* const block = plan.add_blocks();
    block->set_name(name);
    block->set_server(server);
    block->set_element_count(count);
  };
  add("a", 0, 20);
  add("b", 1, 2);
  add("c", 0, 3);
  add("large", 0, 65537);
  return plan;
}

class BlockPullerTest : public PlayedMember {
 protected:
  explicit BlockPullerTest(v1::Plan plan = MakePlan(), PlayedServersOptions options = {})
      : PlayedMember(/*trainer=*/1, options), plan_(std::move(plan)) {}

  absl::StatusOr<StepOutcome> Finish() { return blocks_.Finish(/*version=*/5, "version 5"); }
  std::vector<PlayedFrame<v1::PullRequest>> Requests(int server) {
    return servers_.RequestFrames<v1::PullRequest>(server, Method::kPull);
  }
  static std::vector<float> Values(const Tensor& tensor) {
    return {tensor.data<float>(), tensor.data<float>() + tensor.size()};
  }

  const v1::Plan plan_;
  const BlockPlacement placement_{&plan_};
  BufferPool buffers_;
  ThreadPool pool_{"test", 2};
  PullCalls pulls_{&member_.calls(), &member_.waits(), &buffers_, &pool_};
  BlockPuller blocks_{&placement_, &pulls_, /*in_turn=*/true, /*one_version=*/placement_.plan().sync()};
  Tensor a_{v1::FLOAT32, {20}}, b_{v1::FLOAT32, {2}}, c_{v1::FLOAT32, {3}};
};

TEST_F(BlockPullerTest, BlocksOfTwoServersComeIntoTheirVariables) {
  servers_.AnswerPull(0, {}, Encoded({1, 2, 3}));
  servers_.AnswerPull(1, {}, Encoded({4, 5}));
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  ASSERT_TRUE(blocks_.Receive({"c", 0, 3}, &c_).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_THAT(Values(b_), ElementsAre(4, 5));
  EXPECT_THAT(Values(c_), ElementsAre(1, 2, 3));
}

TEST_F(BlockPullerTest, BlocksOfOneServerComeInOneAnswerEachAtAMultipleOf64Bytes) {
  std::vector<float> of_a(20);
  for (size_t i = 0; i < of_a.size(); ++i) of_a[i] = static_cast<float>(i);
  servers_.AnswerPull(0, {}, Encoded(of_a) + Encoded({1, 2, 3}));  // 80 bytes become 128
  servers_.AnswerPull(1, {}, "");
  ASSERT_TRUE(blocks_.Receive({"a", 0, 20}, &a_).ok());
  ASSERT_TRUE(blocks_.Receive({"c", 0, 3}, &c_).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(Values(a_), of_a);
  EXPECT_THAT(Values(c_), ElementsAre(1, 2, 3));
  ASSERT_THAT(Requests(0), SizeIs(1));
  EXPECT_EQ(Requests(0)[0].header.items(0).name(), "a");
  EXPECT_EQ(Requests(0)[0].header.items(1).name(), "c");
}

TEST_F(BlockPullerTest, TheOutcomeIsThatOfServer0) {
  v1::PullReply of_0, of_1;
  of_0.set_version(5);
  of_0.set_skipped(true);
  of_0.set_stop(true);
  of_0.set_ended(true);
  of_0.set_samples(10);
  of_0.set_first_samples(24);
  of_1.set_version(9);
  servers_.AnswerPull(0, of_0, "");
  servers_.AnswerPull(1, of_1, Encoded({4, 5}));
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  const absl::StatusOr<StepOutcome> outcome = Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_EQ(outcome->version, 5);
  EXPECT_TRUE(outcome->skipped);
  EXPECT_TRUE(outcome->stop);
  EXPECT_TRUE(outcome->ended);
  EXPECT_EQ(outcome->samples, 10);
  EXPECT_EQ(outcome->first_samples, 24);
}

TEST_F(BlockPullerTest, InTurnServersWithoutBlocksHaveToSayThatTheVersionIsThere) {
  for (int s = 0; s < 2; ++s) servers_.AnswerPull(s, {}, "");
  ASSERT_TRUE(Finish().ok());
  for (int s = 0; s < 2; ++s) {
    ASSERT_THAT(Requests(s), SizeIs(1));
    EXPECT_EQ(Requests(s)[0].header.items_size(), 0);
    EXPECT_EQ(Requests(s)[0].header.version(), 5);
  }
}

TEST_F(BlockPullerTest, OutOfTurnOnlyServer0IsAskedWithoutBlocksAndAtAnyVersion) {
  BlockPuller out_of_turn(&placement_, &pulls_, /*in_turn=*/false, /*one_version=*/false);
  servers_.AnswerPull(0, {}, "");
  ASSERT_TRUE(out_of_turn.Finish(5, "blocks").ok());
  ASSERT_THAT(Requests(0), SizeIs(1));
  EXPECT_EQ(Requests(0)[0].header.version(), 0);
  EXPECT_THAT(Requests(1), IsEmpty());
}

TEST_F(BlockPullerTest, AServerThatDoesNotHaveTheVersionYetIsAskedAgain) {
  v1::PullReply not_ready;
  not_ready.set_ready(false);
  servers_.AnswerFrame(1, Method::kPull, not_ready, "");
  servers_.AnswerPull(0, {}, "");
  servers_.AnswerPull(1, {}, Encoded({4, 5}));
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_THAT(Values(b_), ElementsAre(4, 5));
  EXPECT_THAT(Requests(1), SizeIs(2));
}

TEST_F(BlockPullerTest, WhatHasComeIsNotAskedForAgain) {
  for (int times = 0; times < 2; ++times) {
    servers_.AnswerPull(0, {}, "");
    servers_.AnswerPull(1, {}, times == 0 ? Encoded({4, 5}) : "");
  }
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  ASSERT_TRUE(Finish().ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(Requests(1).at(0).header.items_size(), 1);
  EXPECT_EQ(Requests(1).at(1).header.items_size(), 0);
}

TEST_F(BlockPullerTest, WhatIsForgottenIsNotAskedFor) {
  for (int s = 0; s < 2; ++s) servers_.AnswerPull(s, {}, "");
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  blocks_.Clear();
  ASSERT_TRUE(Finish().ok());
  EXPECT_EQ(Requests(1).at(0).header.items_size(), 0);
}

TEST_F(BlockPullerTest, AVariableOfAnotherSizeOrTypeIsRefused) {
  EXPECT_STATUS(blocks_.Receive({"b", 1, 2}, &c_), kInvalidArgument, "block b has 2 floats, the variable FLOAT32 [3]");
  Tensor integers(v1::INT64, {2});
  EXPECT_STATUS(blocks_.Receive({"b", 1, 2}, &integers), kInvalidArgument,
                "block b has 2 floats, the variable INT64 [2]");
}

TEST_F(BlockPullerTest, ABlockThatThePlanDoesNotHaveIsRefused) {
  EXPECT_STATUS(blocks_.Receive({"nothing", 1, 2}, &b_), kInvalidArgument, "no block nothing on server 1");
  EXPECT_STATUS(blocks_.Receive({"b", 2, 2}, &b_), kInvalidArgument, "no block b on server 2");
}

TEST_F(BlockPullerTest, AnAnswerThatIsTooShortIsDataLoss) {
  servers_.AnswerPull(1, {}, "");
  for (int tries = 0; tries < 2; ++tries) servers_.AnswerPull(0, {}, Encoded({1, 2, 3}));
  ASSERT_TRUE(blocks_.Receive({"a", 0, 20}, &a_).ok());
  EXPECT_STATUS(Finish().status(), kDataLoss, "server 0: blocks of 64 bytes came, 128 were asked for");
}

TEST_F(BlockPullerTest, AnErrorOfOneOfTwoServersNamesIt) {
  servers_.AnswerPull(0, {}, "");
  servers_.Answer(1, Method::kPull, absl::FailedPreconditionError("the lease has run out"));
  EXPECT_STATUS(Finish().status(), kFailedPrecondition, "server 1: the lease has run out");
}

class LossyBlockPullerTest : public BlockPullerTest {
 protected:
  LossyBlockPullerTest() : BlockPullerTest(MakePlan(/*sync=*/true, v1::WIRE_BFLOAT16)) {}
};

TEST_F(LossyBlockPullerTest, BlocksInALossyFormatAreDecoded) {
  servers_.AnswerPull(0, {}, "");
  servers_.AnswerPull(1, {}, Encoded({0.5f, -4}, v1::WIRE_BFLOAT16));
  ASSERT_TRUE(blocks_.Receive({"b", 1, 2}, &b_).ok());
  ASSERT_TRUE(Finish().ok());
  EXPECT_THAT(Values(b_), ElementsAre(0.5f, -4));
  EXPECT_EQ(Requests(1).at(0).header.items(0).format(), v1::WIRE_BFLOAT16);
}

// Servers in this process. They refuse every call: only what they are asked for counts.
class InsideBlockPullerTest : public BlockPullerTest {
 protected:
  explicit InsideBlockPullerTest(bool sync = true) : BlockPullerTest(MakePlan(sync), {.answers_inside = true}) {}

  // Returns the elements of each call for the block `large`.
  std::vector<int64_t> PiecesOfLarge() {
    for (int calls = 0; calls < 2; ++calls) servers_.Answer(0, Method::kPull, absl::InvalidArgumentError("refused"));
    servers_.Answer(1, Method::kPull, absl::InvalidArgumentError("refused"));
    Tensor large(v1::FLOAT32, {65537});
    EXPECT_TRUE(blocks_.Receive({"large", 0, 65537}, &large).ok());
    EXPECT_STATUS(Finish().status(), kInvalidArgument, "refused");
    std::vector<int64_t> pieces;
    for (const PlayedFrame<v1::PullRequest>& request : Requests(0)) pieces.push_back(request.header.items(0).count());
    return pieces;
  }
};

TEST_F(InsideBlockPullerTest, AServerInThisProcessIsAskedFor256KiBAtATime) {
  EXPECT_THAT(PiecesOfLarge(), UnorderedElementsAre(65536, 1));
}

class AsyncInsideBlockPullerTest : public InsideBlockPullerTest {
 protected:
  AsyncInsideBlockPullerTest() : InsideBlockPullerTest(/*sync=*/false) {}
};

TEST_F(AsyncInsideBlockPullerTest, WithoutSyncABlockIsWhatItIsAtOneMoment) {
  EXPECT_THAT(PiecesOfLarge(), ElementsAre(65537));
}

}  // namespace
}  // namespace weir
