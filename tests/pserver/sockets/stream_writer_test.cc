// What a stream's writes and deadlines do, without a network.

#include "pserver/sockets/stream_writer.h"

#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "framework/base/mutex.h"
#include "framework/wire/frame.h"
#include "gtest/gtest.h"
#include "pserver/sockets/call_deadlines.h"

namespace weir {
namespace {

Record Of(uint64_t call, size_t bytes = 1) {
  return {.head = {.kind = RecordHead::kReply, .call = call}, .payload = {Slice::Own(std::string(bytes, 'x'))}};
}

// Writes of a writer, which end when the test says so.
struct Writes {
  // Counts the writes that have been started and not yet ended.
  class Ends {
   public:
    void Add() {
      MutexLock lock(&mu_);
      ++open_;
      changed_.SignalAll();
    }
    // False: Stop has been called.
    bool Take() {
      MutexLock lock(&mu_);
      while (open_ == 0 && !stopped_) changed_.Wait(&mu_);
      if (open_ == 0) return false;
      --open_;
      return true;
    }
    void Stop() {
      MutexLock lock(&mu_);
      stopped_ = true;
      changed_.SignalAll();
    }

   private:
    Mutex mu_;
    CondVar changed_;
    int open_ ABSL_GUARDED_BY(mu_) = 0;
    bool stopped_ ABSL_GUARDED_BY(mu_) = false;
  };

  std::vector<std::vector<uint64_t>> calls;
  StreamWriter writer{[this](const Slices& batch) {
    const std::vector<Record> records = ReadRecords(batch).value();
    calls.emplace_back();
    for (const Record& record : records) calls.back().push_back(record.head.call);
    return false;
  }};
};

TEST(StreamWriterTest, WhatComesDuringAWriteIsTheNextBatch) {
  Writes writes;
  for (uint64_t call = 1; call <= 4; ++call) EXPECT_TRUE(writes.writer.Add(Of(call)));
  EXPECT_EQ(writes.calls, (std::vector<std::vector<uint64_t>>{{1}}));
  writes.writer.Written();
  EXPECT_EQ(writes.calls, (std::vector<std::vector<uint64_t>>{{1}, {2, 3, 4}}));
  writes.writer.Written();
  EXPECT_TRUE(writes.writer.Add(Of(5)));
  EXPECT_EQ(writes.calls.back(), std::vector<uint64_t>{5});
}

TEST(StreamWriterTest, LargeRecordsAreBatchesByThemselves) {
  Writes writes;
  writes.writer.Add(Of(1));
  writes.writer.Add(Of(2, 10));
  writes.writer.Add(Of(3, 2 * kBatchBytes));
  writes.writer.Add(Of(4, 10));
  writes.writer.Add(Of(5, kBatchBytes - 3 * kRecordHead));
  for (int i = 0; i < 5; ++i) writes.writer.Written();
  EXPECT_EQ(writes.calls, (std::vector<std::vector<uint64_t>>{{1}, {2}, {3}, {4, 5}}));
}

TEST(StreamWriterTest, WhatIsKeptGoesWithTheNextHoweverLargeItIs) {
  Writes writes;
  EXPECT_TRUE(writes.writer.Keep(Of(1), /*joins_next=*/true));
  EXPECT_TRUE(writes.writer.Keep(Of(2, 2 * kBatchBytes), /*joins_next=*/true));
  EXPECT_TRUE(writes.calls.empty());
  writes.writer.Add(Of(3, 2 * kBatchBytes));
  writes.writer.Add(Of(4));
  for (int i = 0; i < 2; ++i) writes.writer.Written();
  EXPECT_EQ(writes.calls, (std::vector<std::vector<uint64_t>>{{1, 2, 3}, {4}}));
  writes.writer.Keep(Of(5), /*joins_next=*/false);
  writes.writer.Written();
  EXPECT_EQ(writes.calls.size(), 2u) << "the end of a write says nothing of what is kept";
  writes.writer.Write();
  EXPECT_EQ(writes.calls.back(), std::vector<uint64_t>{5});
}

TEST(StreamWriterTest, NothingIsWrittenAfterClose) {
  Writes writes;
  writes.writer.Add(Of(1));
  writes.writer.Add(Of(2));
  writes.writer.Close();
  EXPECT_FALSE(writes.writer.Add(Of(3)));
  writes.writer.Written();
  EXPECT_EQ(writes.calls.size(), 1u);
}

TEST(StreamWriterTest, EveryRecordOfManyThreadsIsWrittenOnceAndOneWriteIsUnderWay) {
  std::atomic<int> under_way{0}, written{0}, most{0};
  Writes::Ends ends;
  StreamWriter writer([&](const Slices& batch) {
    most = std::max<int>(most, ++under_way);
    written += static_cast<int>(ReadRecords(batch).value().size());
    ends.Add();
    return false;
  });
  std::thread ender([&] {
    while (ends.Take()) {
      --under_way;
      writer.Written();
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&writer] {
      for (uint64_t i = 0; i < 100; ++i) EXPECT_TRUE(writer.Add(Of(i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  while (written < 400) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(written, 400);
  EXPECT_EQ(most, 1);
  writer.AwaitIdle(absl::Now() + absl::Seconds(30));
  ends.Stop();
  ender.join();
  writer.Close();
}

TEST(StreamWriterTest, AWriteThatEndsAtOnceIsFollowedByTheNext) {
  std::vector<size_t> batches;
  StreamWriter* self = nullptr;
  StreamWriter writer([&](const Slices& batch) {
    batches.push_back(ReadRecords(batch).value().size());
    // What comes meanwhile is the next batch, on this thread, however many there are.
    if (batches.size() < 10000) self->Add(Of(batches.size()));
    return true;
  });
  self = &writer;
  EXPECT_TRUE(writer.Add(Of(0)));
  EXPECT_EQ(batches, std::vector<size_t>(10000, 1));
  writer.AwaitIdle(absl::InfiniteFuture());
}

TEST(StreamWriterTest, CloseWaitsForAllWritesThatAreBeingStarted) {
  // The first call of `write` has not returned when its write has ended and the second begins.
  std::promise<void> first_goes_on, second_started, second_goes_on;
  std::atomic<int> calls{0};
  StreamWriter writer([&](const Slices&) {
    if (++calls == 1) {
      first_goes_on.get_future().get();
    } else {
      second_started.set_value();
      second_goes_on.get_future().get();
    }
    return false;
  });
  std::thread first([&writer] { writer.Add(Of(1)); });
  while (calls < 1) absl::SleepFor(absl::Milliseconds(1));
  writer.Written();
  std::thread second([&writer] { writer.Add(Of(2)); });
  second_started.get_future().get();
  first_goes_on.set_value();
  first.join();
  std::future<void> closed = std::async(std::launch::async, [&writer] { writer.Close(); });
  EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  second_goes_on.set_value();
  closed.get();
  second.join();
}

TEST(StreamWriterTest, ARequestThatIsDroppedIsNotWritten) {
  Writes writes;
  for (uint64_t call = 1; call <= 3; ++call) {
    Record request = Of(call);
    request.head.kind = RecordHead::kRequest;
    writes.writer.Add(request);
  }
  EXPECT_EQ(writes.writer.waiting(), 2u);
  writes.writer.Drop(2);
  writes.writer.Drop(1);  // is written already
  EXPECT_EQ(writes.writer.waiting(), 1u);
  writes.writer.Written();
  EXPECT_EQ(writes.calls, (std::vector<std::vector<uint64_t>>{{1}, {3}}));
}

TEST(StreamWriterTest, CloseWaitsForAWriteThatIsBeingStarted) {
  std::promise<void> started, go_on;
  StreamWriter writer([&](const Slices&) {
    started.set_value();
    go_on.get_future().get();
    return false;
  });
  std::thread adds([&writer] { writer.Add(Of(1)); });
  started.get_future().get();
  std::future<void> closed = std::async(std::launch::async, [&writer] { writer.Close(); });
  EXPECT_EQ(closed.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  go_on.set_value();
  closed.get();
  adds.join();
}

TEST(CallDeadlinesTest, CallsThatAreLateAreGivenUpInTimeAndOthersAreNot) {
  CallDeadlines deadlines;
  const absl::Time start = absl::Now();
  std::promise<absl::Time> soon, later;
  std::atomic<bool> removed{false}, far{false};
  deadlines.Add(start + absl::Hours(1), [&far] { far = true; });
  const uint64_t number = deadlines.Add(start + absl::Milliseconds(20), [&removed] { removed = true; });
  deadlines.Add(start + absl::Milliseconds(400), [&later] { later.set_value(absl::Now()); });
  deadlines.Add(start + absl::Milliseconds(30), [&soon] { soon.set_value(absl::Now()); });
  deadlines.Remove(number);
  EXPECT_GE(soon.get_future().get(), start + absl::Milliseconds(30));
  EXPECT_GE(later.get_future().get(), start + absl::Milliseconds(400));
  EXPECT_FALSE(removed);
  EXPECT_FALSE(far);
}

TEST(CallDeadlinesTest, ThreadsAddAndRemoveWhileOthersExpire) {
  std::atomic<int> expired{0};
  {
    CallDeadlines deadlines;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&deadlines, &expired] {
        for (int i = 0; i < 200; ++i) {
          const uint64_t kept = deadlines.Add(absl::Now() + absl::Hours(1), [] { FAIL(); });
          deadlines.Add(absl::Now(), [&expired] { ++expired; });
          deadlines.Remove(kept);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    while (expired < 800) absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(expired, 800);
}

}  // namespace
}  // namespace weir
