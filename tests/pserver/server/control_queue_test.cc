// Control calls and their repeats: one runs at a time, and a repeat joins the call that it repeats.

#include "pserver/server/control_queue.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

class ControlQueueTest : public ::testing::Test {
 protected:
  static v1::ControlRequest Save(int trainer, uint64_t id) {
    v1::ControlRequest request;
    request.mutable_caller()->set_trainer(trainer);
    request.mutable_caller()->set_session(99);
    request.set_request_id(id);
    request.mutable_save();
    return request;
  }
  absl::Status Add(const v1::ControlRequest& request) {
    Actions actions;
    const absl::Status status = queue_.Add(
        request,
        [this](const absl::StatusOr<Slices>& reply) {
          ++answers_;
          last_ = reply.status();
        },
        "trainer 0", "server 1", &actions);
    RunAll(&actions);
    return status;
  }
  void RunOne() {
    queue_.Start();
    const absl::StatusOr<v1::ControlReply> result = v1::ControlReply();
    for (const ReplyCallback& reply : queue_.Finish(result)) reply(Slices());
  }

  ControlQueue queue_;
  int answers_ = 0;
  absl::Status last_;
};

TEST_F(ControlQueueTest, ARepeatOfAWaitingOrRunningCallIsAnsweredWithIt) {
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  EXPECT_TRUE(queue_.waiting());
  queue_.Start();
  EXPECT_FALSE(queue_.waiting()) << "the repeat is no call of its own";
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  EXPECT_THAT(queue_.Finish(v1::ControlReply()), SizeIs(3));
  EXPECT_TRUE(queue_.idle());
}

TEST_F(ControlQueueTest, ARepeatOfTheCallAnsweredLastGetsThatAnswer) {
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  RunOne();
  EXPECT_EQ(answers_, 1);
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  EXPECT_EQ(answers_, 2);
  EXPECT_TRUE(queue_.idle());
}

TEST_F(ControlQueueTest, ADelayedCallIsRefusedOnceItsSessionHasMadeALaterOne) {
  ASSERT_TRUE(Add(Save(0, 3)).ok());
  RunOne();
  ASSERT_TRUE(Add(Save(0, 6)).ok());
  // One that has been given up before it came, while the later one waits.
  EXPECT_EQ(Add(Save(0, 5)).code(), absl::StatusCode::kFailedPrecondition);
  RunOne();
  const absl::Status refused = Add(Save(0, 3));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("control call 3 of trainer 0 reaches server 1 after its call 6"));
  EXPECT_TRUE(queue_.idle()) << "it is not done again";
}

TEST_F(ControlQueueTest, ANewSessionOfATrainerCountsItsCallsAnew) {
  ASSERT_TRUE(Add(Save(0, 6)).ok());
  RunOne();
  v1::ControlRequest fresh = Save(0, 1);
  fresh.mutable_caller()->set_session(100);
  ASSERT_TRUE(Add(fresh).ok());
  EXPECT_TRUE(queue_.waiting());
}

TEST_F(ControlQueueTest, ARepeatGetsItsAnswerAlsoWhenAnotherTrainerHasCalledSince) {
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  RunOne();
  ASSERT_TRUE(Add(Save(1, 1)).ok());
  RunOne();
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  EXPECT_EQ(answers_, 3);
  EXPECT_TRUE(queue_.idle());
}

TEST_F(ControlQueueTest, CallsOfAnotherTrainerSessionOrNumberAreNoRepeats) {
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  RunOne();
  ASSERT_TRUE(Add(Save(0, 2)).ok());
  ASSERT_TRUE(Add(Save(1, 1)).ok());
  v1::ControlRequest other = Save(0, 1);
  other.mutable_caller()->set_session(100);
  ASSERT_TRUE(Add(other).ok());
  EXPECT_THAT(queue_.TakeWaiting(), SizeIs(3));
}

TEST_F(ControlQueueTest, OneTrainerHasEightCallsWaitingAtMost) {
  for (uint64_t id = 0; id < 8; ++id) ASSERT_TRUE(Add(Save(0, id)).ok());
  const absl::Status refused = Add(Save(0, 8));
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("trainer 0 has 8 control calls waiting at server 1"));
  EXPECT_TRUE(Add(Save(1, 8)).ok());
}

TEST_F(ControlQueueTest, TheOldestOfTooManyRepeatsIsGivenUp) {
  for (int i = 0; i < 129; ++i) ASSERT_TRUE(Add(Save(0, 1)).ok());
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(last_.code(), absl::StatusCode::kUnavailable);
}

TEST_F(ControlQueueTest, TheCallsOfADeadTrainerAreTakenOut) {
  ASSERT_TRUE(Add(Save(0, 1)).ok());
  ASSERT_TRUE(Add(Save(1, 1)).ok());
  ASSERT_TRUE(Add(Save(0, 2)).ok());
  EXPECT_THAT(queue_.TakeWaiting(0), SizeIs(2));
  EXPECT_EQ(queue_.Start()->trainer, 1);
}

}  // namespace
}  // namespace weir
