#include "framework/runtime/gates.h"

#include <atomic>
#include <string>
#include <vector>

#include "framework/runtime/first_error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

TEST(FirstErrorTest, TheFirstErrorIsKeptUntilTheNextRun) {
  FirstError error;
  error.Add(absl::OkStatus());
  EXPECT_FALSE(error.failed());
  error.Add(absl::NotFoundError("a"));
  error.Add(absl::InternalError("b"));
  EXPECT_TRUE(error.failed());
  EXPECT_EQ(error.status(), absl::NotFoundError("a"));
  error.Reset();
  EXPECT_FALSE(error.failed());
  EXPECT_TRUE(error.status().ok());
}

TEST(GatesTest, AGateWithoutAPoolRunsAtOnce) {
  std::vector<int> ran;
  FirstError error;
  Gates gates(
      [&](int op) {
        ran.push_back(op);
        return absl::OkStatus();
      },
      &error);
  gates.Start(3, nullptr);
  gates.Start(5, nullptr);
  EXPECT_THAT(ran, ElementsAre(3, 5));
  gates.Wait(nullptr);
}

TEST(GatesTest, WaitReturnsWhenAllThatWereStartedHaveEnded) {
  for (const int threads : {0, 1, 3}) {
    std::atomic<int> ended = 0;
    FirstError error;
    ThreadPool pool("test", threads);
    Gates gates(
        [&](int) {
          ++ended;
          return absl::OkStatus();
        },
        &error);
    for (int round = 1; round <= 50; ++round) {
      for (int op = 0; op < 4; ++op) gates.Start(op, &pool);
      gates.Wait(&pool);
      EXPECT_EQ(ended, 4 * round);
    }
  }
}

TEST(GatesTest, NoGateRunsAfterAnError) {
  std::vector<int> ran;
  FirstError error;
  Gates gates(
      [&](int op) {
        ran.push_back(op);
        return op == 1 ? absl::UnavailableError("gone") : absl::OkStatus();
      },
      &error);
  for (int op = 0; op < 4; ++op) gates.Start(op, nullptr);
  gates.Wait(nullptr);
  EXPECT_THAT(ran, ElementsAre(0, 1));
  EXPECT_EQ(error.status(), absl::UnavailableError("gone"));
}

}  // namespace
}  // namespace weir
