#include "framework/profile/profiler.h"

#include <atomic>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class ProfilerTest : public ::testing::Test {
 protected:
  ~ProfilerTest() override { Profiler::Process().Stop(); }
};

std::vector<ProfileEvent> AllEvents() {
  std::vector<ProfileEvent> all;
  for (const auto& thread : Profiler::Process().Collect().threads) {
    all.insert(all.end(), thread.events.begin(), thread.events.end());
  }
  return all;
}

std::vector<int64_t> Steps() {
  std::vector<int64_t> steps;
  for (const ProfileEvent& event : AllEvents()) steps.push_back(event.step);
  return steps;
}

void Work(int64_t step) { const ProfileSpan span(step, ProfileKind::kOperator, "work"); }

TEST_F(ProfilerTest, NothingIsRecordedUnlessStarted) {
  Work(0);
  Work(25);
  EXPECT_FALSE(Profiler::Wants(25));
  EXPECT_THAT(AllEvents(), IsEmpty());
  Profiler::Process().Start(20, 40);
  Work(25);
  Profiler::Process().Stop();
  Work(26);
  EXPECT_THAT(Steps(), ElementsAre(25));
}

TEST_F(ProfilerTest, OnlyStepsOfTheWindowAreRecorded) {
  Profiler::Process().Start(2, 4);
  for (const int64_t step : {-1, 0, 1, 2, 3, 4, 5}) Work(step);
  EXPECT_THAT(Steps(), ElementsAre(2, 3));
}

TEST_F(ProfilerTest, AnotherStartForgetsWhatWasBefore) {
  Profiler::Process().Start(0, 10);
  Work(1);
  Profiler::Process().Start(0, 10);
  Work(2);
  EXPECT_THAT(Steps(), ElementsAre(2));
}

TEST_F(ProfilerTest, AThreadWorksForAStepUntilTheEndOfTheScope) {
  Profiler::Process().Start(20, 40);
  EXPECT_EQ(ProfiledStep::current(), -1);
  {
    const ProfiledStep outer(20);
    EXPECT_EQ(ProfiledStep::current(), 20);
    {
      const ProfiledStep inner(40);
      EXPECT_EQ(ProfiledStep::current(), -1) << "step 40 is behind the window";
    }
    EXPECT_EQ(ProfiledStep::current(), 20);
    std::thread([] { EXPECT_EQ(ProfiledStep::current(), -1); }).join();
  }
  EXPECT_EQ(ProfiledStep::current(), -1);
}

TEST_F(ProfilerTest, SpansEndInTheirOrderAndLastAtLeastNothing) {
  Profiler::Process().Start(0, 1);
  {
    const ProfileSpan outer(0, ProfileKind::kStep, "outer");
    ProfileSpan inner(0, ProfileKind::kOperator, "inner");
    inner.event()->lane = 3;
  }
  const auto recorded = Profiler::Process().Collect();
  ASSERT_EQ(AllEvents().size(), 2u);
  const ProfileEvent inner = AllEvents()[0], outer = AllEvents()[1];
  EXPECT_EQ(recorded.names[inner.name.id()], "inner");
  EXPECT_EQ(inner.lane, 3);
  EXPECT_LE(outer.begin_ns, inner.begin_ns);
  EXPECT_LE(inner.begin_ns, inner.end_ns);
  EXPECT_LE(inner.end_ns, outer.end_ns);
}

TEST_F(ProfilerTest, WhatThreadsRecordIsCollectedWhileTheyGoOn) {
  constexpr int kThreads = 4, kEach = 2000;
  Profiler::Process().Start(0, 1);
  std::atomic<bool> done{false};
  std::thread collector([&done] {
    size_t before = 0;
    while (!done.load()) {
      const std::vector<ProfileEvent> now = AllEvents();
      EXPECT_GE(now.size(), before);
      for (const ProfileEvent& event : now)
        EXPECT_EQ(event.bytes_out, event.bytes_in + 1) << "an event is whole or not there";
      before = now.size();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kEach; ++i) {
        ProfileSpan span(0, ProfileKind::kOperator, "work");
        span.event()->bytes_in = i;
        span.event()->bytes_out = i + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  done.store(true);
  collector.join();
  EXPECT_EQ(AllEvents().size(), static_cast<size_t>(kThreads * kEach)) << "threads that have ended leave their events";
}

TEST_F(ProfilerTest, EventsWithoutRoomAreCounted) {
  Profiler::Process().Start(0, 1, /*most_events=*/256);
  for (int i = 0; i < 300; ++i) Work(0);
  EXPECT_EQ(AllEvents().size(), 256u);
  EXPECT_EQ(Profiler::Process().Collect().dropped, 44);
}

TEST_F(ProfilerTest, EqualTextsAreOneName) {
  EXPECT_EQ(ProfileName("fc").id(), ProfileName("fc").id());
  EXPECT_NE(ProfileName("fc").id(), ProfileName("mul").id());
  EXPECT_EQ(Profiler::Process().Track("calls"), Profiler::Process().Track("calls"));
  std::set<uint64_t> calls;
  for (int i = 0; i < 100; ++i) calls.insert(Profiler::Process().NewCall());
  EXPECT_EQ(calls.size(), 100u);
}

TEST_F(ProfilerTest, NamesBeyondTheBoundAreOne) {
  uint32_t last = 0;
  for (int i = 0; i < 20'000; ++i) last = ProfileName("name " + std::to_string(i)).id();
  EXPECT_EQ(last, ProfileName("one more").id());
  EXPECT_EQ(Profiler::Process().Collect().names[last], "(others)");
}

}  // namespace
}  // namespace weir
