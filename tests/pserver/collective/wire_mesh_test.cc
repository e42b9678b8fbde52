// Messages of collective operations over transports: they arrive once, whatever is dropped, repeated and delayed; what
// does not belong to the group is refused; an end is told.

#include "pserver/collective/wire_mesh.h"

#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "framework/base/clock.h"
#include "framework/base/mutex.h"
#include "framework/base/status_message.h"
#include "framework/collective/collective.h"
#include "framework/wire/checksum.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/collective.pb.h"
#include "tests/testing/faulty_transport.h"

namespace weir {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGroup = 77;
constexpr absl::Duration kGoneAfter = absl::Milliseconds(300);

// Calls the inboxes of a group by rank, as a network would.
class DirectTransport : public Transport {
 public:
  explicit DirectTransport(int ranks) : inboxes_(static_cast<size_t>(ranks)), listens_(static_cast<size_t>(ranks)) {
    for (int r = 0; r < ranks; ++r) Listen(r, true);
  }
  void Call(int server, Method method, Slices request, absl::Duration, ReplyCallback done) override {
    EXPECT_EQ(method, Method::kDeliver);
    if (!listens_[static_cast<size_t>(server)]) return done(absl::UnavailableError("Connection refused"));
    // The receiver keeps pieces of the request, as it may keep those of a network.
    inbox(server)->HandleDeliver({Slice::Own(Flatten(request))}, std::move(done));
  }
  std::string Describe(int server) const override { return absl::StrCat("trainer ", server); }
  int servers() const override { return static_cast<int>(inboxes_.size()); }

  WireInbox* inbox(int rank) { return &inboxes_[static_cast<size_t>(rank)]; }
  void Listen(int rank, bool listens) { listens_[static_cast<size_t>(rank)] = listens; }

 private:
  std::deque<WireInbox> inboxes_;
  std::deque<std::atomic<bool>> listens_;
};

// A group of ranks whose calls go through transports that misbehave as the options say.
class Group {
 public:
  explicit Group(int ranks, const FaultOptions& faults = {}) : direct_(ranks) {
    for (int r = 0; r < ranks; ++r) {
      transports_.push_back(std::make_unique<FaultyTransport>(&direct_, Clock::Real(), r, faults, &counters_));
      meshes_.push_back(WireMesh::Create({.group = kGroup,
                                          .rank = r,
                                          .transport = transports_.back().get(),
                                          .inbox = direct_.inbox(r),
                                          .call_timeout = absl::Milliseconds(200),
                                          .gone_after = kGoneAfter}));
    }
  }
  ~Group() {
    for (auto& mesh : meshes_) {
      if (mesh != nullptr) mesh->Abort(absl::CancelledError("the test is over"));
    }
    meshes_.clear();
  }

  WireMesh* mesh(int rank) { return meshes_[static_cast<size_t>(rank)].get(); }
  FaultyTransport* transport(int rank) { return transports_[static_cast<size_t>(rank)].get(); }
  void Listen(int rank, bool listens) { direct_.Listen(rank, listens); }
  // The process of the rank ends.
  void End(int rank) {
    meshes_[static_cast<size_t>(rank)] = nullptr;
    transports_[static_cast<size_t>(rank)] = nullptr;
  }
  const FaultCounters& counters() const { return counters_; }

 private:
  DirectTransport direct_;
  FaultCounters counters_;
  std::vector<std::unique_ptr<FaultyTransport>> transports_;
  std::vector<std::unique_ptr<WireMesh>> meshes_;
};

// Runs `body` on every rank, each on its own thread; returns what each returned.
std::vector<absl::Status> OnRanks(int ranks, const std::function<absl::Status(int rank)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { statuses[static_cast<size_t>(r)] = body(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

absl::Status Finish(Mesh::Transfer* transfer) { return transfer->Wait(absl::Seconds(20)); }

Slices Frame(const v1::DeliverRequest& header, std::string payload) {
  return {Slice::Own(Flatten(EncodeFrame(header.SerializeAsString(), {Slice::Own(std::move(payload))})))};
}

v1::DeliverRequest HeaderFor(uint64_t tag) {
  v1::DeliverRequest header;
  header.set_group(kGroup);
  header.set_from(0);
  header.set_tag(tag);
  return header;
}

TEST(WireMeshTest, AMessageArrivesBeforeOrAfterItIsAskedFor) {
  Group group(2);
  for (const bool early : {false, true}) {
    const uint64_t tag = early ? 1 : 2;
    std::string sent = "some bytes", got(sent.size(), '?');
    std::unique_ptr<Mesh::Transfer> send, receive;
    if (early) send = group.mesh(0)->Send(1, tag, sent.data(), sent.size());
    receive = group.mesh(1)->Receive(0, tag, got.data(), got.size());
    if (!early) {
      EXPECT_EQ(receive->Wait(absl::Milliseconds(10)).code(), absl::StatusCode::kDeadlineExceeded);
      send = group.mesh(0)->Send(1, tag, sent.data(), sent.size());
    }
    EXPECT_TRUE(Finish(send.get()).ok());
    EXPECT_TRUE(Finish(receive.get()).ok());
    EXPECT_EQ(got, sent);
  }
}

TEST(WireMeshTest, AReceiverOfAnySizeTakesUpToItsMost) {
  Group group(2);
  ASSERT_TRUE(group.mesh(0)->TakesAnySize());
  for (const size_t size : {size_t{1}, size_t{7}, size_t{100}}) {
    const std::string sent(size, 'x');
    std::string got;
    const auto receive = group.mesh(1)->ReceiveAny(0, size, 100, &got);
    const auto send = group.mesh(0)->SendPatiently(1, size, sent.data(), sent.size());
    EXPECT_TRUE(Finish(receive.get()).ok());
    EXPECT_TRUE(Finish(send.get()).ok());
    EXPECT_EQ(got, sent);
  }
  const std::string sent(101, 'x');
  std::string got;
  const auto receive = group.mesh(1)->ReceiveAny(0, 101, 100, &got);
  const auto send = group.mesh(0)->Send(1, 101, sent.data(), sent.size());
  EXPECT_THAT(std::string(Finish(receive.get()).message()), HasSubstr("has sent 101 bytes, at most 100 were expected"));
}

TEST(WireMeshTest, ARankThatDoesNotListenYetIsTriedAgain) {
  Group group(2);
  group.Listen(1, false);
  int64_t sent = 5, got = 0;
  const auto send = group.mesh(0)->Send(1, 9, &sent, sizeof(sent));
  EXPECT_EQ(send->Wait(absl::Milliseconds(30)).code(), absl::StatusCode::kDeadlineExceeded);
  const auto receive = group.mesh(1)->Receive(0, 9, &got, sizeof(got));
  group.Listen(1, true);
  EXPECT_TRUE(Finish(send.get()).ok());
  EXPECT_TRUE(Finish(receive.get()).ok());
  EXPECT_EQ(got, 5);
}

TEST(WireMeshTest, MessagesAreTriedAgainWhileTheirSendersWaitForOthers) {
  // Both ranks lose the first try of all they send, and wait for what the other sends.
  Group group(2);
  for (const int r : {0, 1}) group.Listen(r, false);
  std::atomic<int> begun{0};
  const std::vector<absl::Status> statuses = OnRanks(2, [&](int rank) {
    Collective collective(group.mesh(rank), {.waits = {.deadline = absl::Seconds(20)}});
    std::vector<float> values(100, 1);
    const auto pending =
        collective.AllReduce({.name = "g", .shape = {100}, .addends = collective.Own(values.data())}, values.data());
    if (++begun == 2) {
      while (group.counters().calls < 4) std::this_thread::yield();
      for (const int r : {0, 1}) group.Listen(r, true);
    }
    return pending->Wait();
  });
  for (const absl::Status& status : statuses) EXPECT_TRUE(status.ok()) << status;
}

TEST(WireMeshTest, AMismatchEndsAllRanksWithinTwoSeconds) {
  // Calls last long: nothing may wait for a message that nobody will ask for.
  DirectTransport transport(3);
  std::vector<std::unique_ptr<WireMesh>> meshes;
  for (int r = 0; r < 3; ++r) {
    meshes.push_back(WireMesh::Create({.group = kGroup,
                                       .rank = r,
                                       .transport = &transport,
                                       .inbox = transport.inbox(r),
                                       .call_timeout = absl::Seconds(20)}));
  }
  const absl::Time begin = Clock::Real()->Now();
  const std::vector<absl::Status> statuses = OnRanks(3, [&](int rank) {
    Collective collective(meshes[static_cast<size_t>(rank)].get(), {.message_bytes = 1 << 14});
    const int64_t count = rank == 1 ? 99999 : 100000;
    std::vector<float> values(static_cast<size_t>(count));
    return collective
        .AllReduce({.name = "x", .shape = {count}, .addends = collective.Own(values.data())}, values.data())
        ->Wait();
  });
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(2));
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    for (const char* part : {"[100000]", "[99999]", "trainer 1"}) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    }
  }
}

TEST(WireMeshTest, ARankThatIsGoneIsNamedWithTheReason) {
  Group group(3);
  group.Listen(2, false);
  const std::vector<absl::Status> statuses = OnRanks(2, [&](int rank) {
    Collective collective(group.mesh(rank), {.waits = {.deadline = absl::Milliseconds(300)}});
    return collective.Barrier("b")->Wait();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), HasSubstr("nothing from trainer 2"));
  }
}

// Lets every rank hear from rank `other`, under a tag that is used once.
void Greet(Group* group, int ranks, int other, uint64_t tag = 100) {
  char sent[1] = {}, got[1] = {};
  for (int r = 0; r < ranks; ++r) {
    if (r == other) continue;
    const auto send = group->mesh(other)->Send(r, tag, sent, sizeof(sent));
    EXPECT_TRUE(Finish(group->mesh(r)->Receive(other, tag, got, sizeof(got)).get()).ok());
    EXPECT_TRUE(Finish(send.get()).ok());
  }
}

TEST(WireMeshTest, ARankWhoseProcessHasEndedIsGone) {
  // Long before any deadline, and also for a rank that sends it nothing.
  for (const bool sends : {false, true}) {
    Group group(3);
    Greet(&group, 3, 2);
    group.Listen(2, false);
    char bytes[4] = {};
    std::unique_ptr<Mesh::Transfer> send;
    if (sends) send = group.mesh(0)->Send(2, 1, bytes, sizeof(bytes));
    const auto receive = group.mesh(0)->Receive(2, 1, bytes, sizeof(bytes));
    const auto others = group.mesh(1)->Receive(0, 1, bytes, sizeof(bytes));
    for (Mesh::Transfer* transfer : {receive.get(), others.get()}) {
      const absl::Status status = Finish(transfer);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("trainer 2 is gone"));
      EXPECT_THAT(std::string(status.message()), HasSubstr("Connection refused"));
    }
  }
}

TEST(WireMeshTest, CallsThatDoNotEndAreGivenUp) {
  // Answers nothing until it is closed, as a process that is stopped; knows whether it was asked to.
  class Stopped : public Transport {
   public:
    void Call(int, Method, Slices request, absl::Duration, ReplyCallback done) override {
      MutexLock lock(&mu_);
      calls_.emplace_back(std::move(request), std::move(done));
    }
    std::string Describe(int server) const override { return absl::StrCat("trainer ", server); }
    int servers() const override { return 2; }
    void Close() {
      std::vector<std::pair<Slices, ReplyCallback>> calls;
      {
        MutexLock lock(&mu_);
        calls.swap(calls_);
      }
      for (auto& [request, done] : calls) done(absl::UnavailableError("the connections are closed"));
    }

   private:
    Mutex mu_;
    std::vector<std::pair<Slices, ReplyCallback>> calls_ ABSL_GUARDED_BY(mu_);
  };
  Stopped transport;
  WireInbox inbox;
  const auto mesh = WireMesh::Create({.group = kGroup,
                                      .rank = 0,
                                      .transport = &transport,
                                      .inbox = &inbox,
                                      .call_timeout = absl::Minutes(10),
                                      .close = [&transport] { transport.Close(); }});
  char bytes[4] = {};
  auto send = mesh->Send(1, 1, bytes, sizeof(bytes));
  const absl::Time begin = Clock::Real()->Now();
  mesh->Abort(absl::AbortedError("the job has failed: trainer 1 is dead"));
  EXPECT_EQ(Finish(send.get()), absl::AbortedError("the job has failed: trainer 1 is dead"));
  send = nullptr;
  EXPECT_LT(Clock::Real()->Now() - begin, absl::Seconds(10));
}

TEST(WireMeshTest, ARankThatHasNotComeYetIsNotGone) {
  Group group(2);
  group.Listen(1, false);
  char sent[4] = {1, 2, 3, 4}, got[4] = {}, back[4] = {};
  const auto send = group.mesh(0)->Send(1, 1, sent, sizeof(sent));
  const auto waits = group.mesh(0)->Receive(1, 1, back, sizeof(back));
  EXPECT_EQ(waits->Wait(4 * kGoneAfter).code(), absl::StatusCode::kDeadlineExceeded);
  group.Listen(1, true);
  EXPECT_TRUE(Finish(group.mesh(1)->Receive(0, 1, got, sizeof(got)).get()).ok());
  EXPECT_TRUE(Finish(send.get()).ok());
}

TEST(WireMeshTest, ARankThatAnswersAgainIsNotGone) {
  Group group(2);
  Greet(&group, 2, 1);
  char bytes[4] = {};
  const auto waits = group.mesh(0)->Receive(1, 1, bytes, sizeof(bytes));
  // Deserted for less than the limit, many times.
  for (uint64_t i = 0; i < 8; ++i) {
    group.Listen(1, false);
    EXPECT_EQ(waits->Wait(kGoneAfter / 4).code(), absl::StatusCode::kDeadlineExceeded);
    group.Listen(1, true);
    Greet(&group, 2, 1, /*tag=*/200 + i);
  }
}

TEST(WireMeshTest, SumsAreRightThroughDropsRepeatsAndDelays) {
  constexpr int kRanks = 3;
  Group group(kRanks, {.seed = 5,
                       .drop_request = 0.05,
                       .drop_reply = 0.05,
                       .duplicate = 0.1,
                       .delay = 0.1,
                       .max_delay = absl::Milliseconds(5)});
  std::vector<std::thread> threads;
  for (int r = 0; r < kRanks; ++r) {
    threads.emplace_back([&, r] {
      Collective collective(group.mesh(r), {.message_bytes = 512});
      std::vector<std::vector<float>> values;
      for (int i = 0; i < 20; ++i) values.push_back(std::vector<float>(300, static_cast<float>(r + i)));
      std::vector<Collective::PendingPtr> pending;
      for (std::vector<float>& each : values) {
        // Every other one around a ring.
        pending.push_back(collective.AllReduce(
            {.name = "g", .shape = {300}, .addends = collective.Own(each.data()), .any_order = pending.size() % 2 == 1},
            each.data()));
      }
      for (int i = 0; i < 20; ++i) {
        const absl::Status status = pending[static_cast<size_t>(i)]->Wait();
        ASSERT_TRUE(status.ok()) << status;
        EXPECT_THAT(values[static_cast<size_t>(i)], ::testing::Each(static_cast<float>(3 + 3 * i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(group.counters().dropped_requests, 0);
  EXPECT_GT(group.counters().dropped_replies, 0);
  EXPECT_GT(group.counters().duplicates, 0);
}

TEST(WireMeshTest, AnotherSizeIsRefusedAtBothEnds) {
  Group group(2);
  char sent[10] = {}, got[9] = {};
  const auto send = group.mesh(0)->Send(1, 1, sent, sizeof(sent));
  const auto receive = group.mesh(1)->Receive(0, 1, got, sizeof(got));
  for (Mesh::Transfer* transfer : {send.get(), receive.get()}) {
    EXPECT_THAT(std::string(Finish(transfer).message()), HasSubstr("has sent 10 bytes, 9 were expected"));
  }
}

TEST(WireMeshTest, DamagedBytesAreRefused) {
  Group group(2);
  char got[4] = {};
  const auto receive = group.mesh(1)->Receive(0, 3, got, sizeof(got));
  v1::DeliverRequest header = HeaderFor(3);
  header.set_checksum(1);
  absl::Status answer;
  group.mesh(1)->HandleDeliver(Frame(header, "abcd"), [&](const absl::StatusOr<Slices>& r) { answer = r.status(); });
  EXPECT_EQ(answer.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Finish(receive.get()).code(), absl::StatusCode::kDataLoss);
}

TEST(WireMeshTest, WhatDoesNotBelongToTheGroupIsRefused) {
  Group group(2);
  const auto answer = [&](const Slices& bytes) {
    absl::Status status;
    group.mesh(1)->HandleDeliver(bytes, [&](const absl::StatusOr<Slices>& reply) { status = reply.status(); });
    return status;
  };
  EXPECT_EQ(answer({Slice::Own("no frame")}).code(), absl::StatusCode::kInvalidArgument);
  v1::DeliverRequest header = HeaderFor(1);
  header.set_group(78);
  EXPECT_EQ(answer(Frame(header, "x")).code(), absl::StatusCode::kFailedPrecondition);
  for (const int from : {-1, 1, 2}) {
    header = HeaderFor(1);
    header.set_from(from);
    EXPECT_EQ(answer(Frame(header, "x")).code(), absl::StatusCode::kInvalidArgument) << from;
  }
}

TEST(WireMeshTest, UnreadMessagesHaveALimit) {
  DirectTransport transport(2);
  const auto mesh = WireMesh::Create({.group = kGroup, .rank = 1, .transport = &transport, .most_unread_bytes = 100});
  absl::Status first, repeat, second;
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(80, 'a')), [&](const auto& reply) { first = reply.status(); });
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(80, 'a')), [&](const auto& reply) { repeat = reply.status(); });
  mesh->HandleDeliver(Frame(HeaderFor(2), std::string(80, 'b')), [&](const auto& reply) { second = reply.status(); });
  EXPECT_EQ(second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(first.code(), absl::StatusCode::kUnavailable) << "the repeat has taken its place";
  // A repeat of another size changes how much is kept.
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(10, 'a')), [](const auto&) {});
  v1::DeliverRequest third = HeaderFor(3);
  third.set_checksum(Checksum({Slice::Own(std::string(85, 'c'))}));
  mesh->HandleDeliver(Frame(third, std::string(85, 'c')), [&](const auto& reply) { second = reply.status(); });
  std::string other(85, ' ');
  EXPECT_TRUE(Finish(mesh->Receive(0, 3, other.data(), other.size()).get()).ok());
  EXPECT_TRUE(second.ok()) << second;
  mesh->HandleDeliver(Frame(HeaderFor(1), std::string(80, 'a')), [](const auto&) {});
  // Once it is read there is room.
  std::string got(80, ' ');
  const auto receive = mesh->Receive(0, 1, got.data(), got.size());
  mesh->HandleDeliver(Frame(HeaderFor(2), std::string(80, 'b')), [&](const auto& reply) { second = reply.status(); });
  mesh->Abort(absl::CancelledError("the test is over"));
  EXPECT_EQ(second.code(), absl::StatusCode::kAborted);
}

TEST(WireMeshTest, AnEndIsToldToTheOthers) {
  Group group(3);
  char bytes[4] = {};
  const auto receive = group.mesh(2)->Receive(0, 1, bytes, sizeof(bytes));
  const auto send = group.mesh(1)->Send(2, 1, bytes, sizeof(bytes));
  group.mesh(0)->Abort(absl::FailedPreconditionError("the ranks are at different operations"));
  for (Mesh::Transfer* transfer : {receive.get(), send.get()}) {
    EXPECT_THAT(std::string(Finish(transfer).message()), HasSubstr("the ranks are at different operations"));
  }
  EXPECT_FALSE(Finish(group.mesh(1)->Receive(2, 5, bytes, sizeof(bytes)).get()).ok());
}

TEST(WireMeshTest, AProcessThatEndsAtOnceHasToldTheOthers) {
  Group group(2, {.delay = 1, .max_delay = absl::Milliseconds(50)});
  char bytes[4] = {};
  const auto receive = group.mesh(1)->Receive(0, 1, bytes, sizeof(bytes));
  group.mesh(0)->Abort(absl::DeadlineExceededError("trainer 2 has not come"));
  group.End(0);
  const absl::Status status = Finish(receive.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << "DeadlineExceeded would mean: wait on";
  EXPECT_EQ(status.message(), "trainer 2 has not come");
}

TEST(WireMeshTest, ARepeatOfAReceivedMessageIsAnsweredAfterTheEnd) {
  Group group(2);
  std::string got(3, ' ');
  const auto receive = group.mesh(1)->Receive(0, 1, got.data(), got.size());
  v1::DeliverRequest header = HeaderFor(1);
  header.set_checksum(Checksum({Slice::Own("abc")}));
  std::vector<absl::Status> answers;
  const auto keep = [&](const absl::StatusOr<Slices>& reply) { answers.push_back(reply.status()); };
  group.mesh(1)->HandleDeliver(Frame(header, "abc"), keep);
  EXPECT_TRUE(Finish(receive.get()).ok());
  group.mesh(1)->Abort(absl::UnavailableError("trainer 5 is gone"));
  group.mesh(1)->HandleDeliver(Frame(header, "abc"), keep);
  header.set_tag(2);
  group.mesh(1)->HandleDeliver(Frame(header, "abc"), keep);
  ASSERT_EQ(answers.size(), 3);
  EXPECT_TRUE(answers[0].ok() && answers[1].ok()) << answers[1];
  EXPECT_EQ(answers[2], absl::AbortedError("trainer 5 is gone")) << "Unavailable would be tried again";
}

// ---------------------------------------------------------------------------------------------------- forming a group

struct Joiner {
  uint64_t group = kGroup;
  int ranks = 0;  // as the rank believes
};

// Connects the ranks that `joiners` has, and returns how each ended. A rank that is null does not come.
std::vector<absl::Status> ConnectRanks(const std::vector<const Joiner*>& joiners, absl::Duration deadline) {
  DirectTransport network(static_cast<int>(joiners.size()));
  // The endpoints that one rank knows.
  class Known : public Transport {
   public:
    Known(Transport* network, int ranks) : network_(*network), ranks_(ranks) {}
    void Call(int server, Method method, Slices request, absl::Duration timeout, ReplyCallback done) override {
      network_.Call(server, method, std::move(request), timeout, std::move(done));
    }
    std::string Describe(int server) const override { return network_.Describe(server); }
    int servers() const override { return ranks_; }

   private:
    Transport& network_;
    const int ranks_;
  };
  std::atomic<size_t> ended{0};
  return OnRanks(static_cast<int>(joiners.size()), [&](int rank) {
    const Joiner* joiner = joiners[static_cast<size_t>(rank)];
    absl::Status status;
    {
      Known transport(&network, joiner == nullptr ? 1 : joiner->ranks);
      absl::StatusOr<std::unique_ptr<WireMesh>> mesh = absl::UnavailableError("does not come");
      if (joiner != nullptr) {
        mesh = WireMesh::Connect(
            {.group = joiner->group, .rank = rank, .transport = &transport, .inbox = network.inbox(rank)},
            {.deadline = deadline});
      }
      status = mesh.status();
      ++ended;
      // No rank leaves before all have come.
      while (status.ok() && ended < joiners.size()) std::this_thread::yield();
    }
    return status;
  });
}

TEST(WireMeshTest, AGroupFormsWhenAllHaveCome) {
  const Joiner joiner = {.ranks = 3};
  for (const absl::Status& status : ConnectRanks({&joiner, &joiner, &joiner}, absl::Seconds(20))) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(WireMeshTest, ARankThatDoesNotJoinIsNamedOnAllOthers) {
  const Joiner joiner = {.ranks = 4};
  const std::vector<absl::Status> statuses =
      ConnectRanks({&joiner, &joiner, nullptr, &joiner}, absl::Milliseconds(300));
  for (const size_t r : {0, 1, 3}) {
    EXPECT_THAT(std::string(statuses[r].message()), HasSubstr("still missing: trainer 2")) << r;
    EXPECT_THAT(std::string(statuses[r].message()), ::testing::Not(HasSubstr("trainer 1,"))) << r;
  }
}

TEST(WireMeshTest, ARankOfAnotherGroupIsRefused) {
  const Joiner joiner = {.ranks = 2}, stale = {.group = 78, .ranks = 2};
  for (const absl::Status& status : ConnectRanks({&joiner, &stale}, absl::Seconds(20))) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("another run of the job"));
  }
}

// Who knows the number of a group can end the job.
TEST(WireMeshTest, ARefusalDoesNotNameTheGroup) {
  DirectTransport transport(2);
  const auto mesh = WireMesh::Create({.group = 0xabcdef, .rank = 1, .transport = &transport});
  v1::DeliverRequest header = HeaderFor(1);
  absl::Status told;
  mesh->HandleDeliver(Frame(header, "x"), [&](const auto& reply) { told = reply.status(); });
  EXPECT_EQ(told.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(told.message()), ::testing::Not(HasSubstr("abcdef")));
  EXPECT_THAT(std::string(told.message()), ::testing::Not(HasSubstr("11259375")));
}

TEST(WireMeshTest, TheTextThatEndsAGroupIsSafeToShow) {
  DirectTransport transport(2);
  const auto mesh = WireMesh::Create({.group = kGroup, .rank = 1, .transport = &transport});
  v1::DeliverRequest header = HeaderFor(1);
  *header.mutable_abort() = StatusMessage(absl::InternalError("bad\n\x1b[2Jnews"));
  mesh->HandleDeliver(Frame(header, ""), [](const auto&) {});
  std::string got(1, '?');
  EXPECT_THAT(std::string(Finish(mesh->Receive(0, 2, got.data(), got.size()).get()).message()),
              HasSubstr("bad\\x0a\\x1b[2Jnews"));
}

TEST(WireMeshTest, RanksMustAgreeOnTheirNumber) {
  const Joiner joiner = {.ranks = 2}, other = {.ranks = 3};
  const std::vector<absl::Status> statuses = ConnectRanks({&joiner, &other, nullptr}, absl::Seconds(20));
  for (const size_t r : {0, 1}) {
    EXPECT_EQ(statuses[r].code(), absl::StatusCode::kFailedPrecondition) << statuses[r];
    EXPECT_THAT(std::string(statuses[r].message()), HasSubstr("according to trainer")) << r;
  }
}

}  // namespace
}  // namespace weir
