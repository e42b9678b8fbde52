// Connections of plain sockets: two ends in this process, and ends that send bytes of the test's own.

#include "pserver/sockets/socket_link.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/sockets/socket_input.h"
#include "tests/pserver/sockets/raw_socket.h"
#include "tests/testing/expect_status.h"

namespace weir {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

using ReadOn = std::function<void()>;
using OnBatch = std::function<absl::Status(const std::string& batch, const ReadOn& read_on)>;

// One end of a connection, and what its callbacks have said.
class End {
 public:
  explicit End(int fd, OnBatch on_batch = ReadsOn) : link_(std::make_shared<SocketLink>(fd)) {
    said_->on_batch = std::move(on_batch);
  }
  ~End() {
    if (!started_) return;
    link_->Close();
    WaitForEnd().IgnoreError();
    // Callbacks that are released cannot run any more.
    const absl::Time until = Clock::Real()->Now() + kPatience;
    while (said_.use_count() > 1 && Clock::Real()->Now() < until) std::this_thread::yield();
    EXPECT_EQ(said_.use_count(), 1);
    MutexLock lock(&said_->mu);
    EXPECT_EQ(said_->ends, 1);
    EXPECT_EQ(said_->late, 0) << "callbacks after the last one";
  }
  End(const End&) = delete;
  End& operator=(const End&) = delete;

  void Start(std::function<void()> on_end = nullptr) {
    started_ = true;
    link_->Start({.batch = [said = said_](Slices batch, const ReadOn& read_on) { return said->Batch(batch, read_on); },
                  .written = [said = said_] { said->Written(); },
                  .ended =
                      [said = said_, on_end = std::move(on_end)](const absl::Status& why) {
                        if (on_end) on_end();
                        said->Ended(why);
                      }});
  }
  // Sends a batch and waits until it has been written. False: the connection has ended.
  bool Send(Slices batch) {
    if (link_->Write(std::move(batch))) return true;
    MutexLock lock(&said_->mu);
    const int mine = ++unwritten_;
    said_->Await([&] {
      said_->mu.AssertHeld();
      return said_->written >= mine || said_->why.has_value();
    });
    return said_->written >= mine;
  }
  bool Send(std::string batch) { return Send(Slices{Slice::Own(std::move(batch))}); }

  // Returns the batches that have come, in their order: at least `n`, unless the connection has ended before.
  std::vector<std::string> AwaitBatches(size_t n) {
    MutexLock lock(&said_->mu);
    said_->Await([&] {
      said_->mu.AssertHeld();
      return said_->batches.size() >= n || said_->why.has_value();
    });
    return said_->batches;
  }
  std::vector<std::string> WaitForBatches(size_t n) {
    std::vector<std::string> batches = AwaitBatches(n);
    EXPECT_GE(batches.size(), n);
    return batches;
  }
  void WaitForWritten(int n) {
    MutexLock lock(&said_->mu);
    said_->Await([&] {
      said_->mu.AssertHeld();
      return said_->written >= n;
    });
    EXPECT_EQ(said_->written, n);
  }
  absl::Status WaitForEnd() {
    MutexLock lock(&said_->mu);
    said_->Await([&] {
      said_->mu.AssertHeld();
      return said_->why.has_value();
    });
    return said_->why.value_or(absl::DeadlineExceededError("the connection has not ended"));
  }
  int written() const {
    MutexLock lock(&said_->mu);
    return said_->written;
  }
  bool ended() const {
    MutexLock lock(&said_->mu);
    return said_->why.has_value();
  }
  SocketLink* link() { return link_.get(); }

  static absl::Status ReadsOn(const std::string& /*batch*/, const ReadOn& read_on) {
    read_on();
    return absl::OkStatus();
  }

 private:
  struct Said {
    absl::Status Batch(const Slices& batch, const ReadOn& read_on) {
      EXPECT_EQ(batch.size(), 1);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(batch[0].data) % kAlignment, 0);
      const std::string bytes = Flatten(batch);
      {
        MutexLock lock(&mu);
        late += ends;
        batches.push_back(bytes);
        changed.SignalAll();
      }
      return on_batch(bytes, read_on);
    }
    void Written() {
      MutexLock lock(&mu);
      late += ends;
      ++written;
      changed.SignalAll();
    }
    void Ended(const absl::Status& status) {
      MutexLock lock(&mu);
      why = status;
      ++ends;
      changed.SignalAll();
    }
    void Await(const std::function<bool()>& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
      const absl::Time until = Clock::Real()->Now() + kPatience;
      while (!condition() && Clock::Real()->Now() < until) changed.WaitWithTimeout(&mu, kPatience);
    }

    OnBatch on_batch;
    Mutex mu;
    CondVar changed;
    std::vector<std::string> batches ABSL_GUARDED_BY(mu);
    int written ABSL_GUARDED_BY(mu) = 0, ends ABSL_GUARDED_BY(mu) = 0, late ABSL_GUARDED_BY(mu) = 0;
    std::optional<absl::Status> why ABSL_GUARDED_BY(mu);
  };

  const std::shared_ptr<Said> said_ = std::make_shared<Said>();
  const std::shared_ptr<SocketLink> link_;
  bool started_ = false;
  // Of Send, which one thread calls.
  int unwritten_ = 0;
};

// A listening TCP socket at a free port of 127.0.0.1.
struct Loopback {
  explicit Loopback(int backlog = 16) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t bytes = sizeof(at);
    EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&at), bytes), 0);
    EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &bytes), 0);
    EXPECT_EQ(::listen(socket, backlog), 0);
  }
  ~Loopback() { ::close(socket); }
  Loopback(const Loopback&) = delete;
  Loopback& operator=(const Loopback&) = delete;

  // Returns a socket that does not block, connected or about to be.
  int Connect() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    EXPECT_TRUE(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof(at)) == 0 || errno == EINPROGRESS);
    return fd;
  }

  const int socket;
  sockaddr_in at = {};
};

std::pair<int, int> UnixPair() {
  std::array<int, 2> ends = {-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()), 0);
  return {ends[0], ends[1]};
}

std::pair<int, int> TcpPair() {
  const Loopback loopback;
  const int fd = loopback.Connect();
  return {fd, ::accept4(loopback.socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)};
}

// Bytes that differ from place to place.
std::string Pattern(size_t bytes, uint64_t seed) {
  std::string pattern(bytes, '\0');
  for (size_t i = 0; i < bytes; i += sizeof(seed)) {
    seed = seed * 6364136223846793005 + 1442695040888963407;
    std::memcpy(pattern.data() + i, &seed, std::min(sizeof(seed), bytes - i));
  }
  return pattern;
}

// The bytes that this version sends, as docs/wire.md describes them.
std::string GoldenGreeting() { return std::string("WEIRTENS\1\0\0\0", 12) + std::string(52, '\0'); }
const std::string kGoldenBatch("\3\0\0\0\0\0\0\0abc", 11);

// Over Unix-domain sockets, and over TCP.
class SocketLinkTest : public testing::TestWithParam<bool> {
 protected:
  SocketLinkTest() : pair_(GetParam() ? TcpPair() : UnixPair()) {
    SetLinkOptions(pair_.first, GetParam());
    SetLinkOptions(pair_.second, GetParam());
  }

  const std::pair<int, int> pair_;
};

INSTANTIATE_TEST_SUITE_P(Sockets, SocketLinkTest, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& tcp) { return tcp.param ? "Tcp" : "Unix"; });

TEST_P(SocketLinkTest, BatchesOfAllSizesArriveInOrderBothWaysAtOnce) {
  const std::vector<size_t> sizes = {
      0,         1,        0, 8 << 10, (16 << 10) - 9, (16 << 10) - 8, (16 << 10) - 7, 16 << 10, (16 << 10) + 1,
      200 << 10, 64 << 20, 5};
  End a(pair_.first), b(pair_.second);
  a.Start();
  b.Start();
  const auto send = [&sizes](End* end, uint64_t seed) {
    for (const size_t size : sizes) {
      const std::string bytes = Pattern(size, seed + size);
      // In pieces, of which one is empty.
      EXPECT_TRUE(
          end->Send(Slices{Slice::Own(bytes.substr(0, size / 3)), Slice::Own(""), Slice::Own(bytes.substr(size / 3))}));
    }
  };
  std::thread other([&] { send(&b, 1000); });
  send(&a, 0);
  other.join();
  for (const auto& [end, seed] : {std::pair<End*, uint64_t>(&a, 1000), {&b, 0}}) {
    const std::vector<std::string> batches = end->WaitForBatches(sizes.size());
    ASSERT_EQ(batches.size(), sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_TRUE(batches[i] == Pattern(sizes[i], seed + sizes[i])) << "batch " << i << " of " << sizes[i] << " bytes";
    }
  }
}

TEST_P(SocketLinkTest, ABatchOfManySmallPiecesArrives) {
  End a(pair_.first), b(pair_.second);
  a.Start();
  b.Start();
  const std::string bytes = Pattern(1000, 7);
  Slices pieces;
  for (const char& byte : bytes) pieces.push_back(Slice::Own(std::string(1, byte)));
  EXPECT_TRUE(a.Send(std::move(pieces)));
  EXPECT_THAT(b.WaitForBatches(1), ElementsAre(bytes));
}

TEST_P(SocketLinkTest, TheBytesAreThoseOfThisVersion) {
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  EXPECT_TRUE(end.Send("abc"));
  EXPECT_EQ(raw.Receive(64 + 11), GoldenGreeting() + kGoldenBatch);
  EXPECT_FALSE(end.link()->greeted());
  raw.Send(GoldenGreeting() + kGoldenBatch);
  EXPECT_THAT(end.WaitForBatches(1), ElementsAre("abc"));
  EXPECT_TRUE(end.link()->greeted());
}

TEST_P(SocketLinkTest, BytesThatComeOneByOneAreReadAsBatches) {
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  const std::string bytes = GoldenGreeting() + kGoldenBatch + BatchLength(0) + BatchLength(50) + std::string(50, 'x');
  for (const char& byte : bytes) raw.Send({&byte, 1});
  EXPECT_THAT(end.WaitForBatches(3), ElementsAre("abc", "", std::string(50, 'x')));
}

// Handlers that each wait until the other one runs, too.
class Meeting {
 public:
  OnBatch Handler() {
    return [this](const std::string& /*batch*/, const ReadOn& read_on) {
      read_on();
      MutexLock lock(&mu_);
      threads_.push_back(std::this_thread::get_id());
      changed_.SignalAll();
      const absl::Time until = Clock::Real()->Now() + kPatience;
      while (threads_.size() < 2 && Clock::Real()->Now() < until) changed_.WaitWithTimeout(&mu_, kPatience);
      EXPECT_EQ(threads_.size(), 2) << "the other batch is not handled";
      return absl::OkStatus();
    };
  }
  void WaitForFirst() {
    MutexLock lock(&mu_);
    while (threads_.empty()) changed_.Wait(&mu_);
  }
  bool OnTwoThreads() {
    MutexLock lock(&mu_);
    return threads_.size() == 2 && threads_[0] != threads_[1];
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::thread::id> threads_ ABSL_GUARDED_BY(mu_);
};

TEST_P(SocketLinkTest, ABatchThatComesLaterIsHandledBesideTheFirst) {
  Meeting meeting;
  const RawSocket raw(pair_.second);
  End end(pair_.first, meeting.Handler());
  end.Start();
  raw.Send(GoldenGreeting() + kGoldenBatch);
  meeting.WaitForFirst();
  raw.Send(kGoldenBatch);
  end.WaitForBatches(2);
  EXPECT_EQ(raw.Receive(64), GoldenGreeting());
  raw.EndOutput();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "closed the connection");
  EXPECT_TRUE(meeting.OnTwoThreads());
}

TEST_P(SocketLinkTest, TwoBatchesOfOneReadAreHandledSideBySide) {
  Meeting meeting;
  const RawSocket raw(pair_.second);
  raw.Send(GoldenGreeting() + kGoldenBatch + kGoldenBatch);
  End end(pair_.first, meeting.Handler());
  end.Start();
  end.WaitForBatches(2);
  raw.EndOutput();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "closed the connection");
  EXPECT_TRUE(meeting.OnTwoThreads());
}

TEST_P(SocketLinkTest, NothingIsReadBeforeTheHandlerSaysSo) {
  const RawSocket raw(pair_.second);
  ReadOn later;
  std::promise<void> come;
  End end(pair_.first, [&](const std::string& batch, const ReadOn& read_on) {
    if (batch != "abc") return End::ReadsOn(batch, read_on);
    later = read_on;
    come.set_value();
    return absl::OkStatus();
  });
  end.Start();
  raw.Send(GoldenGreeting() + kGoldenBatch + BatchLength(1) + "x");
  come.get_future().wait();
  // A write goes through all the same, and wakes nobody who would read.
  EXPECT_TRUE(end.Send("y"));
  EXPECT_EQ(raw.Receive(64 + 9), GoldenGreeting() + BatchLength(1) + "y");
  EXPECT_THAT(end.WaitForBatches(1), ElementsAre("abc"));
  later();
  EXPECT_THAT(end.WaitForBatches(2), ElementsAre("abc", "x"));
}

struct BadEnd {
  std::string bytes;
  absl::StatusCode code;
  std::string message;
};

std::vector<BadEnd> BadEnds() {
  std::string other = GoldenGreeting();
  other[8] = 2;
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument, kUnavailable = absl::StatusCode::kUnavailable;
  const std::string greeting = GoldenGreeting(), closed = "closed the connection";
  return {
      {std::string(64, 'x'), kInvalid, "the other end does not send batches of records"},
      {other, absl::StatusCode::kFailedPrecondition,
       "the other end speaks version 2 of the connection for tensors, "
       "this one 1"},
      {greeting + BatchLength(kMostBatchBytes + 1), kInvalid, absl::StrCat("a batch of ", kMostBatchBytes + 1)},
      {greeting + BatchLength(~uint64_t{0}), kInvalid, "a batch of 18446744073709551615 bytes; at most "},
      {"", kUnavailable, closed},
      {greeting.substr(0, 63), kUnavailable, closed},
      {greeting, kUnavailable, closed},
      {greeting + kGoldenBatch.substr(0, 7), kUnavailable, closed},
      {greeting + kGoldenBatch.substr(0, 8), kUnavailable, closed},
      {greeting + kGoldenBatch.substr(0, 10), kUnavailable, closed},
      {greeting + kGoldenBatch, kUnavailable, closed},
  };
}

TEST_P(SocketLinkTest, AnEndThatIsWrongOrStopsEndsTheConnectionWithTheReason) {
  for (const BadEnd& bad : BadEnds()) {
    SCOPED_TRACE(absl::StrCat(bad.bytes.size(), " bytes, ", bad.message));
    const auto [ours, theirs] = GetParam() ? TcpPair() : UnixPair();
    const RawSocket raw(theirs);
    End end(ours);
    end.Start();
    raw.Send(bad.bytes);
    raw.EndOutput();
    const absl::Status why = end.WaitForEnd();
    EXPECT_EQ(why.code(), bad.code) << why;
    EXPECT_THAT(std::string(why.message()), HasSubstr(bad.message));
    EXPECT_TRUE(raw.Ends());
  }
}

TEST_P(SocketLinkTest, WhatTheOtherEndHasSentIsTheReasonAlsoWhenNothingCanBeSentToIt) {
  for (const BadEnd& bad : BadEnds()) {
    if (bad.code == absl::StatusCode::kUnavailable) continue;
    SCOPED_TRACE(bad.message);
    const auto [ours, theirs] = GetParam() ? TcpPair() : UnixPair();
    RawSocket raw(theirs);
    raw.Send(bad.bytes);
    raw.Close();
    End end(ours);
    end.Start();
    const absl::Status why = end.WaitForEnd();
    EXPECT_EQ(why.code(), bad.code) << why;
    EXPECT_THAT(std::string(why.message()), HasSubstr(bad.message));
  }
}

TEST_P(SocketLinkTest, AnErrorOfTheHandlerEndsTheConnection) {
  const RawSocket raw(pair_.second);
  End end(pair_.first, [](const std::string& batch, const ReadOn& /*read_on*/) {
    return absl::ResourceExhaustedError(absl::StrCat("no room for ", batch));
  });
  end.Start();
  raw.Send(GoldenGreeting() + kGoldenBatch + kGoldenBatch);
  EXPECT_STATUS(end.WaitForEnd(), kResourceExhausted, "no room for abc");
  EXPECT_THAT(end.WaitForBatches(1), ElementsAre("abc"));
  EXPECT_TRUE(raw.Ends());
}

TEST_P(SocketLinkTest, AWriteThatTheSocketDoesNotTakeEndsWhenTheOtherEndReads) {
  // Of TCP, the other end takes 64 KiB more.
  const int room = 8 << 10;
  ::setsockopt(pair_.first, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  EXPECT_EQ(raw.Receive(64), GoldenGreeting());
  // One that its maker sends, and one that a thread of SocketEvents does.
  const std::vector<std::string> batches = {Pattern(128 << 10, 1), Pattern(1 << 20, 2)};
  int written = 0;
  for (const std::string& batch : batches) {
    EXPECT_FALSE(end.link()->Write({Slice::Own(batch)}));
    EXPECT_EQ(end.written(), written);
    EXPECT_TRUE(raw.Receive(8 + batch.size()) == BatchLength(batch.size()) + batch);
    end.WaitForWritten(++written);
  }
}

TEST_P(SocketLinkTest, FinishSendsTheLastBatchAndThenTheEnd) {
  for (const size_t size : {size_t{1}, size_t{1} << 20}) {
    const auto [ours, theirs] = GetParam() ? TcpPair() : UnixPair();
    End a(ours), b(theirs);
    a.Start();
    b.Start();
    const std::string first = Pattern(size, 3);
    a.link()->Write({Slice::Own(first)});
    a.link()->Finish({Slice::Own("last")});
    EXPECT_THAT(b.WaitForBatches(2), ElementsAre(first, "last"));
    EXPECT_STATUS(b.WaitForEnd(), kUnavailable, "closed the connection");
    EXPECT_STATUS(a.WaitForEnd(), kUnavailable, "closed the connection");
  }
}

TEST_P(SocketLinkTest, BatchesAreReadWhileTheOtherEndReadsOurLast) {
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  end.link()->Finish({});
  EXPECT_EQ(raw.Receive(1000), GoldenGreeting() + BatchLength(0));
  raw.Send(GoldenGreeting() + kGoldenBatch);
  EXPECT_THAT(end.WaitForBatches(1), ElementsAre("abc"));
  EXPECT_FALSE(end.ended());
}

TEST_P(SocketLinkTest, AnyThreadMayCloseWhileOthersWrite) {
  for (int round = 0; round < 20; ++round) {
    const auto [ours, theirs] = GetParam() ? TcpPair() : UnixPair();
    // Held by whoever writes, and what `ended` waits for.
    Mutex mu;
    const auto on_end = [&mu] { MutexLock lock(&mu); };
    End a(ours), b(theirs);
    a.Start(on_end);
    b.Start(on_end);
    std::vector<std::thread> threads;
    for (End* const end : {&a, &b}) {
      threads.emplace_back([end, round] {
        for (uint64_t i = 0; end->Send(Pattern((i * 7919 + static_cast<uint64_t>(round)) % 300'000, i)); ++i) {
        }
      });
      for (int i = 0; i < 2; ++i) {
        threads.emplace_back([end, &mu] {
          end->AwaitBatches(2);
          MutexLock lock(&mu);
          end->link()->Close();
          end->link()->Finish({Slice::Own("late")});
        });
      }
    }
    EXPECT_STATUS(a.WaitForEnd(), kUnavailable, "");
    EXPECT_STATUS(b.WaitForEnd(), kUnavailable, "");
    for (std::thread& thread : threads) thread.join();
    EXPECT_FALSE(a.link()->Write({Slice::Own("late")}));
  }
}

// Memory of a batch that does something when it is released.
Slice Released(std::string bytes, std::function<void()> then) {
  auto* const kept = new std::string(std::move(bytes));
  const std::shared_ptr<const void> owner(kept->data(), [kept, then = std::move(then)](const void*) {
    delete kept;
    then();
  });
  return {kept->data(), kept->size(), owner};
}

// A batch of one piece that nobody else holds. (A list in braces would, for as long as the call runs.)
Slices Only(Slice piece) {
  Slices batch;
  batch.push_back(std::move(piece));
  return batch;
}

TEST_P(SocketLinkTest, TheEndWaitsForACallThatIsUnderWay) {
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  EXPECT_EQ(raw.Receive(64), GoldenGreeting());
  EXPECT_TRUE(end.Send("first"));  // nobody sends the greeting any more
  bool called = false;
  // Released while Write runs.
  EXPECT_TRUE(end.link()->Write(Only(Released("x", [&] {
    called = true;
    raw.Send(std::string(64, 'x'));
    // The link has ended the connection, and its thread waits, without its lock.
    EXPECT_TRUE(raw.Ends());
    EXPECT_FALSE(end.link()->greeted());
    EXPECT_FALSE(end.ended());
  }))));
  EXPECT_TRUE(called);
  EXPECT_STATUS(end.WaitForEnd(), kInvalidArgument, "does not send batches");
}

TEST_P(SocketLinkTest, MemoryIsReleasedWhenItIsSentAlthoughTheConnectionStaysOpen) {
  End a(pair_.first), b(pair_.second);
  a.Start();
  b.Start();
  EXPECT_TRUE(a.Send("first"));
  for (const size_t size : {size_t{1}, size_t{100} << 10, size_t{4} << 20}) {
    std::atomic<int> released = 0;  // by the thread that sends
    const auto count = [&released] { ++released; };
    EXPECT_TRUE(a.Send(Only(Released(Pattern(size, 1), count))));
    EXPECT_EQ(released, 1) << size;
  }
  EXPECT_TRUE(a.Send("more"));
  EXPECT_EQ(b.WaitForBatches(5)[4], "more");
}

TEST_P(SocketLinkTest, MemoryThatIsNeverSentIsReleasedAtTheEnd) {
  RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  std::atomic<int> released = 0;  // by the thread that ends the connection
  const auto count = [&released] { ++released; };
  EXPECT_FALSE(end.link()->Write(Only(Released(Pattern(32 << 20, 1), count))));
  // Some of it has been sent.
  raw.Receive(64 + 8 + 1000);
  end.link()->Finish(Only(Released("last", count)));
  EXPECT_EQ(released, 0);
  raw.Close();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "");
  EXPECT_EQ(released, 2);
}

TEST_P(SocketLinkTest, WhatIsSentBeforeTheStartIsDropped) {
  const RawSocket raw(pair_.second);
  End end(pair_.first);
  EXPECT_FALSE(end.link()->Write({Slice::Own("dropped")}));
  end.link()->Finish({Slice::Own("dropped")});
  end.Start();
  EXPECT_TRUE(end.Send("abc"));
  EXPECT_EQ(raw.Receive(64 + 11), GoldenGreeting() + kGoldenBatch);
}

TEST_P(SocketLinkTest, ALinkThatIsNeverStartedClosesItsSocket) {
  const RawSocket raw(pair_.second);
  { const SocketLink link(pair_.first); }
  EXPECT_EQ(::fcntl(pair_.first, F_GETFD), -1);
  EXPECT_TRUE(raw.Ends());
}

TEST_P(SocketLinkTest, ALinkThatHasEndedHasClosedItsSocket) {
  RawSocket raw(pair_.second);
  End end(pair_.first);
  end.Start();
  raw.Close();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "");
  EXPECT_EQ(::fcntl(pair_.first, F_GETFD), -1);
}

TEST(SocketConnectTest, APortWhereNobodyListensIsUnavailable) {
  auto loopback = std::make_unique<Loopback>();
  const sockaddr_in at = loopback->at;
  loopback = nullptr;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  ASSERT_NE(::connect(fd, reinterpret_cast<const sockaddr*>(&at), sizeof(at)), 0);
  ASSERT_EQ(errno, EINPROGRESS);
  End end(fd);
  end.Start();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "Connection refused");
  EXPECT_FALSE(end.link()->greeted());
}

TEST(SocketConnectTest, AConnectionThatIsStillBeingMadeCanBeClosed) {
  // Its queue has room for one connection.
  const Loopback loopback(/*backlog=*/0);
  const RawSocket first(loopback.Connect());
  End end(loopback.Connect());
  end.Start();
  EXPECT_FALSE(end.link()->Write({Slice::Own("x")}));
  EXPECT_FALSE(end.ended());
  end.link()->Close();
  EXPECT_STATUS(end.WaitForEnd(), kUnavailable, "");
}

// What a SocketInput has read of these bytes.
std::unique_ptr<SocketInput> Having(std::string_view bytes) {
  const auto [ours, theirs] = UnixPair();
  const RawSocket writer(theirs);
  writer.Send(bytes);
  auto input = std::make_unique<SocketInput>();
  EXPECT_EQ(input->Read(ours), static_cast<ssize_t>(bytes.size()));
  ::close(ours);
  return input;
}

TEST(SocketInputTest, NoBatchIsThereBeforeTheGreeting) {
  // The number of bytes of an empty batch, if they were one.
  const auto input = Having(std::string(16, '\0'));
  const auto next = input->Next();
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_FALSE(next->has_value());
  EXPECT_FALSE(input->HasWhole());
}

TEST(SocketInputTest, BatchesThatHaveBeenReadAreKnownToBe) {
  const auto input = Having(GoldenGreeting() + kGoldenBatch + BatchLength(0) + kGoldenBatch.substr(0, 10));
  EXPECT_EQ(Flatten(**input->Next()), "abc");
  EXPECT_TRUE(input->HasWhole());
  EXPECT_EQ(Flatten(**input->Next()), "");
  EXPECT_FALSE(input->HasWhole());
  EXPECT_FALSE(input->Next()->has_value());
}

}  // namespace
}  // namespace weir
