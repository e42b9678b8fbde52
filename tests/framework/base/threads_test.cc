// Pool, counters and clock under many threads; run by ThreadSanitizer too.

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/counters.h"
#include "framework/base/mutex.h"
#include "framework/base/thread_budget.h"
#include "framework/base/thread_pool.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weir {
namespace {

TEST(ThreadPoolTest, ParallelForRunsEachIndexOnceOnAnyNumberOfThreads) {
  for (int threads : {0, 1, 2, 4}) {
    ThreadPool pool("test", threads);
    std::vector<int> runs(1000, 0);
    pool.ParallelFor(1000, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(1000, 1)) << threads;
    pool.ParallelFor(0, [](int64_t) { FAIL(); });
  }
}

TEST(ThreadPoolTest, ParallelForInsideParallelForDoesNotDeadLock) {
  ThreadPool pool("test", 2);
  std::atomic<int> sum{0};
  pool.ParallelFor(8, [&](int64_t) { pool.ParallelFor(8, [&](int64_t) { sum.fetch_add(1); }); });
  EXPECT_EQ(sum.load(), 64);
}

TEST(ThreadPoolTest, DestructorRunsWhatIsQueued) {
  std::atomic<int> ran{0};
  {
    ThreadPool pool("test", 2);
    for (int i = 0; i < 100; ++i) pool.Schedule([&ran] { ran.fetch_add(1); });
  }
  EXPECT_EQ(ran.load(), 100);
}

TEST(ThreadPoolTest, WithoutWorkersEverythingRunsOnTheCaller) {
  ThreadPool pool("test", 0);
  std::thread::id ran_on;
  pool.Schedule([&] { ran_on = std::this_thread::get_id(); });
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(ThreadPoolTest, AWaitingThreadMayRunWhatIsQueued) {
  struct {
    Mutex mu;
    CondVar changed;
    bool started ABSL_GUARDED_BY(mu) = false;
    bool go ABSL_GUARDED_BY(mu) = false;
  } gate;
  std::thread::id ran_on;
  {
    ThreadPool pool("test", 1);
    // Holds up the only worker.
    pool.Schedule([&] {
      MutexLock lock(&gate.mu);
      gate.started = true;
      gate.changed.SignalAll();
      while (!gate.go) gate.changed.WaitWithTimeout(&gate.mu, absl::Seconds(10));
    });
    {
      MutexLock lock(&gate.mu);
      while (!gate.started) gate.changed.WaitWithTimeout(&gate.mu, absl::Seconds(10));
    }
    EXPECT_FALSE(pool.TryRunOne());
    pool.Schedule([&] { ran_on = std::this_thread::get_id(); });
    EXPECT_TRUE(pool.TryRunOne());
    EXPECT_FALSE(pool.TryRunOne());
    MutexLock lock(&gate.mu);
    gate.go = true;
    gate.changed.SignalAll();
  }
  EXPECT_EQ(ran_on, std::this_thread::get_id());
}

TEST(ThreadBudgetTest, QuotasAreRoundedUpAndNoQuotaIsNoLimit) {
  EXPECT_EQ(CoresOfQuota("200000 100000\n"), 2);
  EXPECT_EQ(CoresOfQuota("150000 100000"), 2);
  EXPECT_EQ(CoresOfQuota("50000 100000"), 1);
  EXPECT_EQ(CoresOfQuota("max 100000"), 0);
  EXPECT_EQ(CoresOfQuota("-1 100000"), 0);
  EXPECT_EQ(CoresOfQuota("5 0"), 0);
  EXPECT_EQ(CoresOfQuota(""), 0);
}

TEST(ThreadBudgetTest, TheStepsOwnThreadCounts) {
  EXPECT_GE(UsableCores(), 1);
  EXPECT_EQ(ComputeThreads(0), UsableCores());
  EXPECT_EQ(ComputeThreads(3), 3);
  EXPECT_EQ(PoolWorkers(3), 2);
  EXPECT_EQ(PoolWorkers(1), 0);
}

TEST(CountersTest, ThreadsAddUpAndSnapshotsAreSortedByName) {
  Counters counters;
  ThreadPool pool("test", 3);
  pool.ParallelFor(100, [&](int64_t i) {
    counters.Get("send.bytes", "bytes")->Add(i);
    counters.Get("prefetch.rows", "rows")->Add();
  });
  EXPECT_EQ(counters.Value("send.bytes"), 4950);
  EXPECT_EQ(counters.Value("nobody"), 0);
  EXPECT_EQ(counters.ToString(), "prefetch.rows=100 rows, send.bytes=4950 bytes");
  EXPECT_EQ(counters.Get("send.bytes", "bytes"), counters.Get("send.bytes", "bytes"));
}

TEST(CountersTest, AGaugeKeepsItsLastValueAndAHistogramHasBucketsOfPowersOfTwo) {
  Counters counters;
  counters.GetGauge("loss", "")->Set(0.5);
  counters.GetGauge("loss", "")->Set(0.25);
  Histogram* const times = counters.GetHistogram("step", "microseconds");
  for (const int64_t value : {-3, 0, 1, 2, 3, 4, 5}) times->Observe(value);
  times->Observe(int64_t{1} << 60);
  const std::vector<Counters::Entry> entries = counters.Snapshot();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].kind, Counters::Kind::kGauge);
  EXPECT_EQ(entries[0].gauge, 0.25);
  const Histogram::Counts& counts = entries[1].histogram;
  EXPECT_EQ(counts.buckets[0], 3);  // up to 1
  EXPECT_EQ(counts.buckets[1], 1);  // 2
  EXPECT_EQ(counts.buckets[2], 2);  // 3 and 4
  EXPECT_EQ(counts.buckets[3], 1);
  EXPECT_EQ(counts.buckets[Histogram::kBuckets - 1], 1);
  EXPECT_EQ(counts.count(), 8);
  EXPECT_EQ(counts.sum, (int64_t{1} << 60) + 12);
  EXPECT_EQ(counters.ToString(), "");
}

TEST(CountersDeathTest, AnotherUnitIsOurMistake) {
  Counters counters;
  counters.Get("a", "bytes");
  EXPECT_DEATH(counters.Get("a", "rows"), "a counts bytes, not rows");
  EXPECT_DEATH(counters.GetGauge("a", "bytes"), "only one of them");
}

TEST(CondVarTest, AWaitEndsAtItsDeadline) {
  Mutex mu;
  CondVar never;
  MutexLock lock(&mu);
  EXPECT_TRUE(never.WaitWithTimeout(&mu, absl::Milliseconds(5)));
}

TEST(FakeClockTest, StandsUntilTold) {
  FakeClock clock;
  const absl::Time start = clock.Now();
  EXPECT_EQ(clock.Now(), start);
  std::thread other([&] { clock.Advance(absl::Seconds(10)); });
  other.join();
  EXPECT_EQ(clock.Now() - start, absl::Seconds(10));
}

}  // namespace
}  // namespace weir
