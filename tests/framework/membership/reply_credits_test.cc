#include "framework/membership/reply_credits.h"

#include <cstddef>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ReplyCreditsTest, BytesOnTheirWayStayWithinTheLimit) {
  const auto credits = std::make_shared<ReplyCredits>(100);
  const auto first = credits->Take(60), second = credits->Take(40);
  EXPECT_NE(first, nullptr);
  EXPECT_NE(second, nullptr);
  EXPECT_EQ(credits->Take(1), nullptr);
  EXPECT_EQ(credits->outstanding(), 100);
}

TEST(ReplyCreditsTest, OneAnswerMayGoOutWhateverItsSize) {
  const auto credits = std::make_shared<ReplyCredits>(100);
  auto large = credits->Take(1000);
  EXPECT_NE(large, nullptr);
  EXPECT_EQ(credits->Take(1), nullptr);
  large.reset();
  EXPECT_NE(credits->Take(1), nullptr);
}

TEST(ReplyCreditsTest, BytesComeBackWithTheLastCopy) {
  const auto credits = std::make_shared<ReplyCredits>(100);
  auto credit = credits->Take(60);
  auto copy = credit;
  credit.reset();
  EXPECT_EQ(credits->outstanding(), 60);
  copy.reset();
  EXPECT_EQ(credits->outstanding(), 0);
}

TEST(ReplyCreditsTest, ACreditMayOutliveTheSession) {
  auto credits = std::make_shared<ReplyCredits>(100);
  const std::weak_ptr<ReplyCredits> seen = credits;
  auto credit = credits->Take(1);
  credits.reset();
  EXPECT_FALSE(seen.expired());
  credit.reset();
  EXPECT_TRUE(seen.expired());
}

TEST(ReplyCreditsTest, ThreadsTogetherStayWithinTheLimit) {
  const auto credits = std::make_shared<ReplyCredits>(100);
  std::vector<std::vector<std::shared_ptr<const void>>> taken(4);
  std::vector<std::thread> threads;
  for (auto& mine : taken) {
    threads.emplace_back([&credits, &mine] {
      while (auto credit = credits->Take(1)) mine.push_back(std::move(credit));
    });
  }
  for (std::thread& thread : threads) thread.join();
  size_t all = 0;
  for (const auto& mine : taken) all += mine.size();
  EXPECT_EQ(all, 100);
  taken.clear();
  EXPECT_EQ(credits->outstanding(), 0);
}

}  // namespace
}  // namespace weir
