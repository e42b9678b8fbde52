#include "trainer/loop/ahead_thread.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(AheadThreadTest, OnePieceOfWorkAfterTheOtherHandsOverWhatItWrote) {
  AheadThread thread([] {});
  std::vector<int> numbers;  // of the thread while it is busy
  for (int i = 0; i < 500; ++i) {
    EXPECT_FALSE(thread.busy());
    thread.Start([&numbers, i] {
      numbers.push_back(i);
      return i % 7 == 3 ? absl::InternalError(std::to_string(i)) : absl::OkStatus();
    });
    EXPECT_TRUE(thread.busy());
    const absl::Status result = thread.Finish();
    EXPECT_EQ(result.ok(), i % 7 != 3) << i;
    ASSERT_EQ(numbers.size(), static_cast<size_t>(i) + 1);
    EXPECT_EQ(numbers.back(), i);
  }
}

TEST(AheadThreadTest, WorkRunsBesideItsCaller) {
  AheadThread thread([] {});
  std::atomic<bool> begun{false}, go{false};
  thread.Start([&] {
    begun = true;
    while (!go) std::this_thread::yield();
    return absl::OkStatus();
  });
  // On one thread neither would come to an end.
  while (!begun) std::this_thread::yield();
  go = true;
  EXPECT_TRUE(thread.Finish().ok());
}

TEST(AheadThreadTest, FinishSaysWhetherItHadToWait) {
  AheadThread thread([] {});
  std::atomic<bool> go{false};
  thread.Start([&] {
    while (!go) std::this_thread::yield();
    return absl::OkStatus();
  });
  bool waited = false;
  std::thread later([&] { go = true; });
  EXPECT_TRUE(thread.Finish(&waited).ok());
  later.join();
  // Whichever came first, work that nobody lets end is waited for, and work that ended long ago is not.
  bool ever_waited = waited, ever_not = !waited;
  for (int i = 0; i < 100000 && !(ever_waited && ever_not); ++i) {
    thread.Start([] { return absl::OkStatus(); });
    for (int turn = 0; i % 2 == 1 && turn < 1000; ++turn) std::this_thread::yield();
    EXPECT_TRUE(thread.Finish(&waited).ok());
    (waited ? ever_waited : ever_not) = true;
  }
  EXPECT_TRUE(ever_waited && ever_not);
}

TEST(AheadThreadTest, TheEndCancelsWhatIsUnderWay) {
  std::atomic<bool> begun{false}, cancelled{false}, ended{false};
  {
    AheadThread thread([&] { cancelled = true; });
    thread.Start([&] {
      begun = true;
      while (!cancelled) std::this_thread::yield();
      ended = true;
      return absl::CancelledError("");
    });
    while (!begun) std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace weir
