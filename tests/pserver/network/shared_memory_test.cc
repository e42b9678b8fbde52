// Messages through memory that two processes share: one end and the other in this process, each with its own mapping,
// and ends that are damaged on purpose.

#include <dirent.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/profile/profiler.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "pserver/network/shared_channel.h"
#include "pserver/network/shared_client.h"
#include "pserver/network/shared_server.h"
#include "pserver/sockets/unix_socket.h"

namespace weir {
namespace {

using ::testing::HasSubstr;
using Message = SharedChannel::Message;

int DescriptorsOfThisProcess() {
  const auto all = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<int>(std::distance(begin(all), end(all)));
}
int ThreadsOfThisProcess() {
  const auto all = std::filesystem::directory_iterator("/proc/self/task");
  return static_cast<int>(std::distance(begin(all), end(all)));
}

// Waits until two numbers are equal, at most ten seconds; returns the first.
int Settles(int (*of)(), int wanted) {
  const absl::Time patience = absl::Now() + absl::Seconds(10);
  while (of() != wanted && absl::Now() < patience) absl::SleepFor(absl::Milliseconds(5));
  return of();
}

struct Ends {
  std::shared_ptr<SharedChannel> a, b;
};
Ends MakeEnds() {
  Ends ends;
  auto made = SharedChannel::Create();
  EXPECT_TRUE(made.ok()) << made.status();
  ends.a = *made;
  auto opened = SharedChannel::Open(::dup(ends.a->descriptor()));
  EXPECT_TRUE(opened.ok()) << opened.status();
  ends.b = *opened;
  return ends;
}

Message Next(const std::shared_ptr<SharedChannel>& end) {
  auto received = end->Receive();
  EXPECT_TRUE(received.ok()) << received.status();
  EXPECT_TRUE(received->has_value());
  return **received;
}

std::string Random(size_t size, std::mt19937* random) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += 61) bytes[i] = static_cast<char>((*random)());
  return bytes;
}

TEST(SharedChannelTest, MessagesArriveInOrderWithTheirHeads) {
  const Ends ends = MakeEnds();
  std::mt19937 random(1);
  const std::string x = Random(100'000, &random), y = Random(1, &random);
  ASSERT_TRUE(ends.a->Send({.call = 7, .kind = 3, .profiled_id = ~uint64_t{0}, .profiled_step = -5},
                           {Slice::Borrow(x.data(), x.size()), Slice(), Slice::Borrow(y.data(), y.size())}));
  ASSERT_TRUE(ends.a->Send({.call = 8}, {}));
  ASSERT_TRUE(ends.b->Send({.call = 9}, {Slice::Borrow(y.data(), y.size())}));
  const Message first = Next(ends.b);
  EXPECT_EQ(first.head.call, 7u);
  EXPECT_EQ(first.head.kind, 3u);
  EXPECT_EQ(first.head.profiled_id, ~uint64_t{0});
  EXPECT_EQ(first.head.profiled_step, -5);
  ASSERT_EQ(first.bytes.size(), 1u) << "in one piece";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.bytes[0].data) % SharedChannel::kGranule, 0u);
  EXPECT_TRUE(Flatten(first.bytes) == x + y);
  EXPECT_TRUE(Next(ends.b).bytes.empty());
  EXPECT_EQ(Flatten(Next(ends.a).bytes), y);
}

TEST(SharedChannelTest, ALargestMessageFitsAndALargerOneIsRefused) {
  const Ends ends = MakeEnds();
  std::mt19937 random(2);
  const std::string largest = Random(SharedChannel::kDataBytes, &random);
  ASSERT_TRUE(ends.a->Send({}, {Slice::Borrow(largest.data(), largest.size())}));
  EXPECT_FALSE(ends.a->Send({}, {Slice::Borrow(largest.data(), 1)})) << "no room beside it";
  EXPECT_TRUE(ends.a->Send({}, {})) << "needs no room";
  EXPECT_TRUE(Flatten(Next(ends.b).bytes) == largest);
  EXPECT_FALSE(ends.a->Send({}, {Slice::Borrow(largest.data(), largest.size()), Slice::Borrow(largest.data(), 1)}));
  EXPECT_TRUE(ends.a->Send({}, {Slice::Borrow(largest.data(), largest.size())}));
}

TEST(SharedChannelTest, RoomIsFreeAgainInAnyOrderAndTheFirstIsUsedFirst) {
  const Ends ends = MakeEnds();
  const std::string quarter(SharedChannel::kDataBytes / 4, 'q'), small(1, 's');
  const auto send = [&](const std::string& bytes) {
    return ends.a->Send({}, {Slice::Borrow(bytes.data(), bytes.size())});
  };
  std::vector<std::optional<Message>> held;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(send(quarter));
    held.push_back(Next(ends.b));
  }
  EXPECT_FALSE(send(small));
  const char* const second = held[1]->bytes[0].data;
  held[1].reset();
  EXPECT_FALSE(send(quarter + small)) << "no run is that long";
  ASSERT_TRUE(send(small));
  EXPECT_EQ(Next(ends.b).bytes[0].data, second);
  ASSERT_TRUE(send(quarter));
  EXPECT_EQ((held[1] = Next(ends.b))->bytes[0].data, second);
  // Two quarters side by side are one run of two.
  held[2].reset();
  held[1].reset();
  ASSERT_TRUE(send(quarter + quarter));
  held[1] = Next(ends.b);
  // A message outlives both ends.
  const Slices last = held[3]->bytes;
  held.clear();
  const Ends gone = ends;
  EXPECT_TRUE(Flatten(last) == quarter);
}

TEST(SharedChannelTest, AFullRingRefusesUntilItIsRead) {
  const Ends ends = MakeEnds();
  for (uint32_t i = 0; i < SharedChannel::kSlots; ++i) ASSERT_TRUE(ends.a->Send({.call = i}, {Slice::Own("x")}));
  EXPECT_FALSE(ends.a->Send({}, {Slice::Own("x")}));
  for (uint32_t i = 0; i < 3 * SharedChannel::kSlots; ++i) {
    EXPECT_EQ(Next(ends.b).head.call, i);
    ASSERT_TRUE(ends.a->Send({.call = i + SharedChannel::kSlots}, {Slice::Own("x")}));
  }
  // What was refused has left nothing behind: all the room is there.
  for (uint32_t i = 0; i < SharedChannel::kSlots; ++i) Next(ends.b);
  EXPECT_TRUE(ends.a->Send({}, {Slice::Own(std::string(SharedChannel::kDataBytes, 'x'))}));
}

TEST(SharedChannelTest, ManyThreadsSendReceiveAndLetGoInAnyOrder) {
  const Ends ends = MakeEnds();
  constexpr int kThreads = 3, kEach = 4000;
  std::atomic<int> received{0}, refused{0};
  std::vector<std::atomic<int>> times(kThreads * kEach);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kEach; ++i) {
        const uint64_t call = static_cast<uint64_t>(t * kEach + i);
        // Mostly small ones, some of a megabyte; each byte can be told from the call.
        const size_t size = random() % 50 == 0 ? random() % 1'000'000 : random() % 10'000;
        const Slices bytes = {Slice::Own(std::string(size, static_cast<char>(call % 251)))};
        while (!ends.a->Send({.call = call, .kind = static_cast<uint32_t>(size)}, bytes)) {
          ++refused;
          std::this_thread::yield();
        }
      }
    });
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(100 + t));
      std::vector<Message> held(16);
      while (true) {
        auto next = ends.b->Receive();
        ASSERT_TRUE(next.ok()) << next.status();
        if (!next->has_value()) return;
        Message& place = held[random() % held.size()];
        // The one that is let go has not been overwritten by a later one.
        for (const Message* m : {&place, &**next}) {
          const std::string bytes = Flatten(m->bytes);
          ASSERT_EQ(bytes.size(), m->head.kind);
          ASSERT_EQ(bytes.find_first_not_of(static_cast<char>(m->head.call % 251)), std::string::npos);
        }
        ++times[(*next)->head.call];
        place = **std::move(next);
        if (++received == kThreads * kEach) ends.b->Close();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(received, kThreads * kEach);
  for (const std::atomic<int>& n : times) ASSERT_EQ(n, 1);
}

TEST(SharedChannelTest, ClosingEndsTheWaitsOfThisEnd) {
  const Ends ends = MakeEnds();
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const auto received = ends.b->Receive();
      EXPECT_TRUE(received.ok() && !received->has_value());
    });
  }
  absl::SleepFor(absl::Milliseconds(20));
  ends.b->Close();
  for (std::thread& thread : threads) thread.join();
  EXPECT_FALSE(ends.b->Send({}, {Slice::Own("x")}));
}

TEST(SharedChannelTest, AFinishedEndStillGivesWhatHasArrived) {
  const Ends ends = MakeEnds();
  ASSERT_TRUE(ends.a->Send({.call = 1}, {Slice::Own("x")}));
  ASSERT_TRUE(ends.a->Send({.call = 2}, {Slice::Own("y")}));
  ends.b->Finish();
  EXPECT_EQ(Next(ends.b).head.call, 1u);
  EXPECT_EQ(Next(ends.b).head.call, 2u);
  const auto end = ends.b->Receive();
  EXPECT_TRUE(end.ok() && !end->has_value());
}

// A process that shares the memory can move those who sleep on the bell to another word, where no bell wakes them.
TEST(SharedChannelTest, ClosingEndsWaitsThatTheOtherSideHasMovedAway) {
  const Ends ends = MakeEnds();
  std::thread receiver([&] {
    const auto received = ends.b->Receive();
    EXPECT_TRUE(received.ok() && !received->has_value());
  });
  const size_t size = std::filesystem::file_size(absl::StrCat("/proc/self/fd/", ends.a->descriptor()));
  void* const mapped = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, ends.a->descriptor(), 0);
  ASSERT_NE(mapped, MAP_FAILED);
  auto* const words = static_cast<uint32_t*>(mapped);
  // The receiver sleeps on a word at the beginning of the rings.
  int64_t moved = 0;
  for (const absl::Time patience = absl::Now() + absl::Seconds(10); moved == 0 && absl::Now() < patience;) {
    for (size_t w = 0; w < 4096 && moved == 0; ++w) {
      moved = ::syscall(SYS_futex, words + w, FUTEX_REQUEUE, 0, 1, words + 5000, 0);
    }
  }
  EXPECT_EQ(moved, 1);
  const absl::Time begin = Clock::Real()->Now();
  ends.b->Close();
  receiver.join();
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(2));
  ::munmap(mapped, size);
}

TEST(SharedChannelTest, AFinishedEndLeavesASenderThatGoesOn) {
  const Ends ends = MakeEnds();
  uint32_t received = 0;
  for (ends.b->Finish(); received < 10 * SharedChannel::kSlots; ++received) {
    ASSERT_TRUE(ends.a->Send({}, {}));
    const auto message = ends.b->Receive();
    ASSERT_TRUE(message.ok());
    if (!message->has_value()) break;
  }
  EXPECT_EQ(received, SharedChannel::kSlots);
}

TEST(SharedChannelTest, TheMemoryCannotBeMadeSmaller) {
  const Ends ends = MakeEnds();
  EXPECT_NE(::ftruncate(ends.a->descriptor(), 4096), 0);
  EXPECT_NE(::fcntl(ends.a->descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedChannelTest, WhatCouldFailUnderTheHandIsNotMapped) {
  const auto made = SharedChannel::Create();
  ASSERT_TRUE(made.ok());
  struct stat good = {};
  ASSERT_EQ(::fstat((*made)->descriptor(), &good), 0);
  const int before = DescriptorsOfThisProcess();
  const auto memory = [](off_t bytes, int seals) {
    const int fd = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, bytes), 0);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  };
  const auto why = [](int fd) { return std::string(SharedChannel::Open(fd).status().message()); };
  EXPECT_THAT(why(memory(good.st_size, 0)), HasSubstr("could be made smaller"));
  EXPECT_THAT(why(memory(good.st_size, F_SEAL_GROW)), HasSubstr("could be made smaller"));
  EXPECT_THAT(why(memory(good.st_size - 1, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)),
              HasSubstr(absl::StrCat("of ", good.st_size - 1, " bytes, not of ", good.st_size)));
  const std::string file = testing::TempDir() + "/on_disk";
  const int on_disk = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::ftruncate(on_disk, good.st_size), 0);
  EXPECT_FALSE(SharedChannel::Open(on_disk).ok());
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  EXPECT_THAT(why(pipe[0]), HasSubstr("not a memory file"));
  ::close(pipe[1]);
  EXPECT_FALSE(SharedChannel::Open(-1).ok());
  EXPECT_EQ(DescriptorsOfThisProcess(), before);
}

// Bytes of the rings, overwritten at random after messages were sent: a receiver gets messages within its memory, or
// an error, or waits.
TEST(SharedChannelTest, DamagedRingsGiveErrorsOrMessagesInsideTheMemory) {
  std::mt19937 random(5);
  int errors = 0, messages = 0;
  for (int round = 0; round < 1500; ++round) {
    const Ends ends = MakeEnds();
    struct stat file = {};
    ASSERT_EQ(::fstat(ends.a->descriptor(), &file), 0);
    const size_t size = static_cast<size_t>(file.st_size), rings = size - 2 * SharedChannel::kDataBytes;
    char* const memory = static_cast<char*>(
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, ends.a->descriptor(), /*offset=*/0));
    ASSERT_NE(memory, MAP_FAILED);
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(ends.a->Send({}, {Slice::Own(std::string(5000, 'x'))}));
    // A word of what is not zero, or of any place.
    for (int i = 0; i < 3; ++i) {
      size_t at = random() % (rings / 4) * 4;
      if (round % 3 != 0) {
        for (size_t steps = random() % 40; steps > 0; --steps) {
          do at = (at + 4) % rings;
          while (std::string_view(memory + at, 4) == std::string_view("\0\0\0\0", 4));
        }
      }
      const uint32_t word = random() % 4 == 0 ? random() % 20'000 : random();
      std::memcpy(memory + at, &word, sizeof(word));
    }
    std::thread end([&] {
      absl::SleepFor(absl::Milliseconds(2));
      ends.b->Close();
    });
    while (true) {
      const auto received = ends.b->Receive();
      if (!received.ok()) {
        EXPECT_TRUE(absl::IsDataLoss(received.status()));
        ++errors;
        break;
      }
      if (!received->has_value()) break;
      ++messages;
      Flatten((*received)->bytes);
    }
    end.join();
    // The sender, too, lives with what the receiver has written.
    for (int i = 0; i < 5; ++i) ends.a->Send({}, {Slice::Own(std::string(9000, 'x'))});
    ::munmap(memory, size);
  }
  EXPECT_GT(errors, 100);
  EXPECT_GT(messages, 1000);
}

// What a handler of the test does, by the request's text: "hold" is kept, "fail" an error, "large" an answer that fills
// the memory, "profiled" the recorded call; other requests come back.
class SharedServerTest : public testing::Test {
 protected:
  void SetUp() override {
    ::unsetenv("TMPDIR");
    path_ = SharedPathOf(*NewUnixSocketPath());
    Start();
  }
  void Start() {
    auto server =
        SharedServer::Start(path_, [this](Method method, int /*server*/, const Slices& request, ReplyCallback reply) {
          const std::string text = TotalSize(request) < 100 ? Flatten(request) : "";
          if (text == "hold") {
            MutexLock lock(&mu_);
            held_.emplace_back(request, std::move(reply));
            arrived_.SignalAll();
          } else if (text == "fail") {
            reply(absl::AbortedError(std::string(5000, 'e')));
          } else if (text == "large") {
            reply(Slices{Slice::Own(std::string(SharedChannel::kDataBytes, 'l'))});
          } else if (text == "profiled") {
            reply(Slices{
                Slice::Own(absl::StrCat(ProfiledCallScope::current().id, " ", ProfiledCallScope::current().step))});
          } else {
            Slices answer = {Slice::Own(absl::StrCat(std::string(MethodName(method)), " "))};
            answer.insert(answer.end(), request.begin(), request.end());
            reply(answer);
          }
        });
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::shared_ptr<SharedClient> Connect() {
    auto client = SharedClient::Connect(path_);
    EXPECT_TRUE(client.ok()) << client.status();
    return *std::move(client);
  }

  using Reply = std::optional<absl::StatusOr<Slices>>;
  static std::future<Reply> Call(SharedClient* client, std::string text, Method method = Method::kPush,
                                 absl::Duration timeout = absl::Seconds(60)) {
    auto promise = std::make_shared<std::promise<Reply>>();
    auto reply = promise->get_future();
    EXPECT_TRUE(client->Call(method, {Slice::Own(std::move(text))}, timeout,
                             [promise](Reply given) { promise->set_value(std::move(given)); }));
    return reply;
  }
  static absl::StatusOr<std::string> Ask(SharedClient* client, std::string text, Method method = Method::kPush) {
    const Reply reply = Call(client, std::move(text), method).get();
    if (!reply.has_value()) return absl::InternalError("no room");
    if (!reply->ok()) return reply->status();
    return Flatten(**reply);
  }
  std::vector<std::pair<Slices, ReplyCallback>> WaitForHeld(size_t n) {
    MutexLock lock(&mu_);
    while (held_.size() < n) arrived_.Wait(&mu_);
    return held_;
  }

  std::string path_;
  Mutex mu_;
  CondVar arrived_;
  std::vector<std::pair<Slices, ReplyCallback>> held_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<SharedServer> server_;
};

TEST_F(SharedServerTest, TensorsAndNormsAreServedAndOtherMethodsAreNot) {
  const auto client = Connect();
  EXPECT_EQ(*Ask(client.get(), "x", Method::kPush), "Push x");
  EXPECT_EQ(*Ask(client.get(), "x", Method::kPull), "Pull x");
  EXPECT_EQ(*Ask(client.get(), "x", Method::kDeliver), "Deliver x");
  EXPECT_EQ(*Ask(client.get(), "x", Method::kNorms), "Norms x");
  EXPECT_TRUE(absl::IsUnimplemented(Ask(client.get(), "x", Method::kJoin).status()));
  const absl::Status failed = Ask(client.get(), "fail").status();
  EXPECT_EQ(failed, absl::AbortedError(std::string(5000, 'e')));
  const ProfiledCallScope scope({.id = 0xfedcba9876543210, .step = 21});
  EXPECT_EQ(*Ask(client.get(), "profiled"), "18364758544493064720 21");
}

TEST_F(SharedServerTest, ManyCallsOfManyClientsGetTheirOwnAnswers) {
  std::vector<std::thread> threads;
  for (int c = 0; c < 4; ++c) {
    threads.emplace_back([this, c] {
      const auto client = Connect();
      for (int round = 0; round < 100; ++round) {
        std::vector<std::future<Reply>> calls;
        for (int i = 0; i < 10; ++i) calls.push_back(Call(client.get(), absl::StrCat(c, " ", round, " ", i)));
        for (int i = 0; i < 10; ++i) {
          const Reply reply = calls[static_cast<size_t>(i)].get();
          ASSERT_EQ(Flatten(**reply), absl::StrCat("Push ", c, " ", round, " ", i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(SharedServerTest, AnswersOfPatientCallsComeWithTheNextOneOrWhenThereAreMany) {
  const auto client = Connect();
  const auto call = [&client] {
    auto promise = std::make_shared<std::promise<void>>();
    EXPECT_TRUE(client->Call(
        Method::kPush, {Slice::Own("x")}, absl::Seconds(60), [promise](const Reply&) { promise->set_value(); },
        /*patient=*/true));
    return promise->get_future();
  };
  auto first = call();
  EXPECT_EQ(*Ask(client.get(), "y"), "Push y");
  first.get();
  std::vector<std::future<void>> many;
  for (int i = 0; i < 200; ++i) many.push_back(call());
  for (std::future<void>& each : many) each.get();
  // One alone is fetched before long.
  call().get();
  // An error is an answer that cannot wait.
  std::promise<absl::Status> failed;
  EXPECT_TRUE(client->Call(
      Method::kPush, {Slice::Own("fail")}, absl::Seconds(60),
      [&failed](const Reply& reply) { failed.set_value(reply->status()); }, /*patient=*/true));
  EXPECT_TRUE(absl::IsAborted(failed.get_future().get()));
}

TEST_F(SharedServerTest, AnAnswerThatDoesNotComeIsDeadlineExceededAndALateOneIsDropped) {
  const auto client = Connect();
  auto patient = Call(client.get(), "hold", Method::kPull);
  const Reply reply = Call(client.get(), "hold", Method::kPull, absl::Milliseconds(50)).get();
  EXPECT_TRUE(absl::IsDeadlineExceeded(reply->status()));
  for (const auto& [request, answer] : WaitForHeld(2)) answer(Slices{Slice::Own("late")});
  EXPECT_EQ(Flatten(**patient.get()), "late");
  EXPECT_EQ(*Ask(client.get(), "x"), "Push x");
}

TEST_F(SharedServerTest, AnAnswerWithoutRoomIsToBeFetchedAnotherWay) {
  const auto client = Connect();
  const Reply held = Call(client.get(), "x").get();
  EXPECT_FALSE(Call(client.get(), "large").get().has_value());
  EXPECT_EQ(Flatten(**held), "Push x");
  const Reply small = Call(client.get(), "x").get();
  EXPECT_TRUE(small.has_value());
}

TEST_F(SharedServerTest, ARequestWithoutRoomIsRefusedAndItsAnswerNeverComes) {
  const auto client = Connect();
  const std::string half(SharedChannel::kDataBytes / 2 + 1, 'h');
  auto call = Call(client.get(), "hold");
  WaitForHeld(1);
  bool called = false;
  EXPECT_FALSE(client->Call(Method::kPush, {Slice::Own(half), Slice::Own(half)}, absl::Seconds(9),
                            [&](const Reply&) { called = true; }));
  EXPECT_TRUE(client->Call(Method::kPush, {Slice::Own(half)}, absl::Seconds(9), [](const Reply&) {}));
  WaitForHeld(1)[0].second(Slices());
  EXPECT_TRUE(call.get()->ok());
  EXPECT_FALSE(called);
}

TEST_F(SharedServerTest, EachAnswerHasASlotAlsoOfCallsThatWereGivenUp) {
  const auto client = Connect();
  std::vector<std::future<Reply>> calls;
  for (uint32_t i = 0; i < SharedChannel::kSlots; ++i) {
    calls.push_back(Call(client.get(), "hold", Method::kPull, absl::Milliseconds(i == 0 ? 1 : 60'000)));
  }
  EXPECT_TRUE(absl::IsDeadlineExceeded(calls[0].get()->status()));
  EXPECT_FALSE(client->Call(Method::kPull, {Slice::Own("x")}, absl::Seconds(60), [](const Reply&) {}));
  const auto held = WaitForHeld(SharedChannel::kSlots);
  // The last first: all others are still open when the answer to the one that was given up is there.
  for (auto each = held.rbegin(); each != held.rend(); ++each) each->second(Slices{Slice::Own("kept")});
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_EQ(Flatten(**calls[i].get()), "kept");
  EXPECT_EQ(*Ask(client.get(), "x"), "Push x");
}

TEST_F(SharedServerTest, AServerThatRefusesAnswersCallsUnderWay) {
  const auto client = Connect();
  auto held = Call(client.get(), "hold");
  const auto kept = WaitForHeld(1);
  server_->Refuse();
  EXPECT_TRUE(absl::IsUnavailable(Ask(client.get(), "x").status()));
  EXPECT_TRUE(absl::IsUnavailable(SharedClient::Connect(path_).status()));
  kept[0].second(Slices{Slice::Own("in time")});
  EXPECT_EQ(Flatten(**held.get()), "in time");
}

TEST_F(SharedServerTest, NobodyWaitsForAnswersToAClientThatHasGone) {
  auto client = Connect();
  auto held = Call(client.get(), "hold");
  WaitForHeld(1);
  const int threads = ThreadsOfThisProcess();
  client = nullptr;
  EXPECT_EQ(Settles(ThreadsOfThisProcess, threads - 5), threads - 5) << "three of the client, two of its link";
  server_->Shutdown(absl::InfiniteDuration());
}

TEST_F(SharedServerTest, TheEndOfAServerEndsCallsAndALaterOneIsFoundAgain) {
  auto client = Connect();
  auto held = Call(client.get(), "hold");
  const auto kept = WaitForHeld(1);
  server_ = nullptr;
  EXPECT_TRUE(absl::IsUnavailable(held.get()->status()));
  EXPECT_FALSE(std::filesystem::exists(path_));
  // The memory of a request outlives both.
  EXPECT_EQ(Flatten(kept[0].first), "hold");
  kept[0].second(Slices{Slice::Own("nobody listens")});
  EXPECT_FALSE(client->Call(Method::kPush, {Slice::Own("x")}, absl::Seconds(9), [](const Reply&) {}));
  EXPECT_TRUE(absl::IsUnavailable(SharedClient::Connect(path_).status()));
  Start();
  client = Connect();
  EXPECT_EQ(*Ask(client.get(), "x"), "Push x");
}

TEST_F(SharedServerTest, AHeldCallThatIsAnsweredWithinTheGraceIsNotCut) {
  const auto client = Connect();
  auto held = Call(client.get(), "hold");
  const auto kept = WaitForHeld(1);
  auto shutdown = std::async(std::launch::async, [this] { server_->Shutdown(absl::Seconds(30)); });
  kept[0].second(Slices{Slice::Own("in time")});
  const Reply reply = held.get();
  ASSERT_TRUE(reply->ok()) << reply->status();
  EXPECT_EQ(Flatten(**reply), "in time");
  shutdown.get();
}

TEST_F(SharedServerTest, AClientThatEndsLeavesNothingBehind) {
  const int descriptors = DescriptorsOfThisProcess(), threads = ThreadsOfThisProcess();
  for (int i = 0; i < 5; ++i) {
    auto client = Connect();
    auto held = Call(client.get(), "hold");
    WaitForHeld(static_cast<size_t>(i) + 1);
    EXPECT_EQ(*Ask(client.get(), "x"), "Push x");
    client = nullptr;
    EXPECT_TRUE(absl::IsUnavailable(held.get()->status()));
  }
  EXPECT_EQ(Settles(DescriptorsOfThisProcess, descriptors), descriptors);
  EXPECT_EQ(Settles(ThreadsOfThisProcess, threads), threads);
  for (const auto& [request, reply] : WaitForHeld(5)) {
    EXPECT_EQ(Flatten(request), "hold");
    reply(Slices{Slice::Own("nobody listens")});
  }
}

TEST_F(SharedServerTest, OffersOfStrangersAreRefusedAndOthersAreServed) {
  const auto client = Connect();
  const int descriptors = DescriptorsOfThisProcess();
  const auto channel = SharedChannel::Create();
  ASSERT_TRUE(channel.ok());
  const auto offer = [&](const std::string& text, std::vector<int> fds) {
    const auto socket = ConnectTo(path_, SOCK_SEQPACKET);
    ASSERT_TRUE(socket.ok());
    iovec bytes = {.iov_base = const_cast<char*>(text.data()), .iov_len = text.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
    }
    ASSERT_GE(::sendmsg(*socket, &message, MSG_NOSIGNAL), 0);
    char answer = 0;
    EXPECT_LE(::recv(*socket, &answer, 1, 0), 0) << "no consent to: " << text;
    ::close(*socket);
  };
  const std::string right("weir shared channel 2\0", 22);
  offer("hello", {});
  offer(std::string(100'000, 'x'), {});
  offer(right, {});
  offer("weir shared channel 0", {(*channel)->descriptor()});
  offer(right, {STDERR_FILENO});
  offer(right, {STDERR_FILENO, (*channel)->descriptor(), STDERR_FILENO});
  (*channel)->CloseDescriptor();
  EXPECT_EQ(Settles(DescriptorsOfThisProcess, descriptors), descriptors);
  EXPECT_EQ(*Ask(client.get(), "x"), "Push x");
}

TEST_F(SharedServerTest, AnErrorThatCannotBeReadIsUnknown) {
  const std::string path = SharedPathOf(*NewUnixSocketPath());
  const auto listener = ListenOn(path, SOCK_SEQPACKET);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::vector<std::pair<uint32_t, std::string>> answers = {
      {SharedHead::kError, ""}, {SharedHead::kError, "no message"}, {1000, "\x12\x02no"}};
  std::thread server([&] {
    const auto await = [](int fd) {
      pollfd event = {.fd = fd, .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&event, 1, 60'000), 1);
    };
    await(*listener);
    const int socket = ::accept(*listener, nullptr, nullptr);
    await(socket);
    const auto channel = AcceptChannel(socket);
    ASSERT_TRUE(channel.ok()) << channel.status();
    for (const auto& [kind, bytes] : answers) {
      const auto request = (*channel)->Receive();
      ASSERT_TRUE(request.ok() && request->has_value());
      EXPECT_TRUE((*channel)->Send({.call = (*request)->head.call, .kind = kind}, {Slice::Own(bytes)}));
    }
    await(socket);  // until the client is gone
    ::close(socket);
  });
  auto client = SharedClient::Connect(path);
  ASSERT_TRUE(client.ok()) << client.status();
  EXPECT_EQ(Ask(client->get(), "x").status(), absl::UnknownError(""));
  EXPECT_EQ(Ask(client->get(), "x").status(), absl::UnknownError(""));
  EXPECT_EQ(Ask(client->get(), "x").status(), absl::UnknownError("no"));
  client->reset();
  server.join();
  ::close(*listener);
  ::unlink(path.c_str());
}

TEST_F(SharedServerTest, AListenerThatSaysNothingIsLeftAfterTwoSeconds) {
  EXPECT_TRUE(absl::IsUnavailable(SharedClient::Connect("/nowhere.sock").status()));
  const std::string path = SharedPathOf(*NewUnixSocketPath());
  const auto listener = ListenOn(path, SOCK_SEQPACKET);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const absl::Time before = absl::Now();
  EXPECT_TRUE(absl::IsUnavailable(SharedClient::Connect(path).status()));
  EXPECT_LT(absl::Now() - before, absl::Seconds(20));
  ::close(*listener);
  ::unlink(path.c_str());
}

}  // namespace
}  // namespace weir
