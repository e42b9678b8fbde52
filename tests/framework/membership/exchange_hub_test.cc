// ExchangeHub between trainers, with the calls that wait for them: contributions, posts, streams.

#include "framework/membership/exchange_hub.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "framework/membership/limits.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

class ExchangeHubTest : public ::testing::Test {
 protected:
  ExchangeHubTest()
      : roster_({.job = "job",
                 .self = "server 0",
                 .trainers = 2,
                 .on_death = Roster::OnDeath::kGoOn,
                 .lease = absl::Seconds(10)},
                now_),
        exchanges_(&roster_, {1 << 20, 1 << 20}) {
    for (int t = 0; t < 2; ++t) {
      roster_.Join(t, "host:" + std::to_string(t), 1, now_);
      roster_.Renew(t, now_);
    }
  }

  v1::ExchangeRequest Request(int trainer, const std::string& key) {
    v1::ExchangeRequest request;
    request.mutable_caller()->set_trainer(trainer);
    request.set_key(key);
    request.set_wait_s(5);
    return request;
  }
  // Makes a call. Its answer stands in the result as soon as there is one.
  using Answer = std::shared_ptr<std::optional<absl::StatusOr<v1::ExchangeReply>>>;
  Answer Call(const v1::ExchangeRequest& request) {
    auto answer = std::make_shared<std::optional<absl::StatusOr<v1::ExchangeReply>>>();
    Actions actions;
    const absl::Status status = exchanges_.Handle(
        request, now_,
        [answer](absl::StatusOr<v1::ExchangeReply> reply, std::shared_ptr<const void>) { *answer = std::move(reply); },
        &actions);
    RunAll(&actions);
    if (!status.ok()) *answer = status;
    return answer;
  }
  void Pass(absl::Duration d) {
    now_ += d;
    Actions actions;
    exchanges_.Answer(now_, &actions);
    RunAll(&actions);
  }

  absl::Time now_ = absl::UnixEpoch() + absl::Hours(1000);
  Roster roster_;
  ExchangeHub exchanges_;
};

TEST_F(ExchangeHubTest, ACallIsAnsweredWhenTheLastContributionComes) {
  v1::ExchangeRequest first = Request(0, "stats");
  first.set_contribution("a");
  first.set_read_trainer(1);
  const Answer read = Call(first);
  EXPECT_FALSE(read->has_value());
  v1::ExchangeRequest second = Request(1, "stats");
  second.set_contribution("b");
  const Answer done = Call(second);
  ASSERT_TRUE(read->has_value() && (**read).ok());
  EXPECT_TRUE((**read)->ready());
  EXPECT_EQ((**read)->contribution(), "b");
  EXPECT_TRUE(done->has_value());
}

TEST_F(ExchangeHubTest, AWaitThatIsOverNamesWhoIsMissing) {
  v1::ExchangeRequest request = Request(0, "stats");
  request.set_contribution("a");
  const Answer answer = Call(request);
  Pass(absl::Seconds(4));
  EXPECT_FALSE(answer->has_value());
  Pass(absl::Seconds(2));
  ASSERT_TRUE(answer->has_value() && (**answer).ok());
  EXPECT_FALSE((**answer)->ready());
  EXPECT_THAT((**answer)->missing(), ElementsAre(1));
}

TEST_F(ExchangeHubTest, ATrainerThatIsDoneIsNotWaitedFor) {
  v1::ExchangeRequest request = Request(0, "stats");
  request.set_contribution("a");
  const Answer answer = Call(request);
  roster_.Done(1);
  Pass(absl::ZeroDuration());
  ASSERT_TRUE(answer->has_value() && (**answer).ok());
  EXPECT_TRUE((**answer)->ready());
}

TEST_F(ExchangeHubTest, AnyonesPostAnswersThoseWhoWaitForOne) {
  v1::ExchangeRequest wait = Request(1, "saved");
  wait.set_edition(3);
  wait.set_anyone(true);
  const Answer answer = Call(wait);
  EXPECT_FALSE(answer->has_value());
  v1::ExchangeRequest post = Request(0, "saved");
  post.set_edition(3);
  post.set_contribution("step 3");
  const Answer posted = Call(post);
  ASSERT_TRUE(posted->has_value() && (**posted).ok());
  ASSERT_TRUE(answer->has_value() && (**answer).ok());
  EXPECT_EQ((**answer)->by(), 0);
  EXPECT_EQ((**answer)->edition(), 3);
}

TEST_F(ExchangeHubTest, TheChiefDoesNotWaitForAnyonesPost) {
  v1::ExchangeRequest wait = Request(0, "saved");
  wait.set_edition(3);
  wait.set_anyone(true);
  const Answer answer = Call(wait);
  ASSERT_TRUE(answer->has_value() && (**answer).ok());
  EXPECT_TRUE((**answer)->ready());
  EXPECT_FALSE((**answer)->has_by());
}

// A thread beside the program may look for posts for ever; the program may hang meanwhile.
TEST_F(ExchangeHubTest, ALookAtPostsIsNoProgress) {
  const absl::Time begin = roster_.place(1).progress;
  v1::ExchangeRequest look = Request(1, "follow.0");
  look.set_edition(0);
  look.set_anyone(true);
  look.set_wait_s(0);
  for (int i = 0; i < 3; ++i) {
    now_ += absl::Seconds(1);
    const Answer answer = Call(look);
    Pass(absl::ZeroDuration());
    ASSERT_TRUE(answer->has_value() && (**answer).ok());
  }
  EXPECT_EQ(roster_.place(1).progress, begin);
  look.set_wait_s(5);
  now_ += absl::Seconds(1);
  (void)Call(look);
  EXPECT_EQ(roster_.place(1).progress, now_) << "whoever waits for another one is not waited for";
}

TEST_F(ExchangeHubTest, AStreamPassesChunksInOrderAndEnds) {
  v1::ExchangeRequest read = Request(1, "residuals");
  read.set_stream_from(0);
  read.set_chunk(0);
  const Answer first = Call(read);
  EXPECT_FALSE(first->has_value());
  v1::ExchangeRequest write = Request(0, "residuals");
  write.set_stream_to(1);
  write.set_contribution("abc");
  write.set_chunk(0);
  write.set_chunks(1);
  EXPECT_TRUE(Call(write)->has_value());
  ASSERT_TRUE(first->has_value() && (**first).ok());
  EXPECT_EQ((**first)->contribution(), "abc");
  EXPECT_EQ((**first)->chunks(), 1);
}

TEST_F(ExchangeHubTest, AReaderOfAWriterThatIsGoneIsToldSo) {
  roster_.Done(0);
  v1::ExchangeRequest read = Request(1, "residuals");
  read.set_stream_from(0);
  read.set_chunk(0);
  const Answer answer = Call(read);
  ASSERT_TRUE(answer->has_value() && (**answer).ok());
  EXPECT_THAT((**answer)->missing(), ElementsAre(0));
}

TEST_F(ExchangeHubTest, AFailedJobAnswersAllCalls) {
  v1::ExchangeRequest request = Request(0, "stats");
  request.set_contribution("a");
  const Answer answer = Call(request);
  roster_.Fail(absl::UnavailableError("trainer 1 is dead"), now_);
  Actions actions;
  exchanges_.Abort(&actions);
  RunAll(&actions);
  ASSERT_TRUE(answer->has_value());
  EXPECT_EQ((**answer).status().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(roster_.place(0).told);
}

TEST_F(ExchangeHubTest, TooManyWaitingCallsAreRefused) {
  v1::ExchangeRequest request = Request(0, "stats");
  request.set_contribution("a");
  for (size_t i = 0; i < kMaxWaitingCalls; ++i) EXPECT_FALSE(Call(request)->has_value());
  const Answer refused = Call(request);
  ASSERT_TRUE(refused->has_value());
  EXPECT_EQ((**refused).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace weir
