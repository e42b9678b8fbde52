// Calls of a trainer to the server in its own process, and to the others.
#include "pserver/inside/own_server.h"

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "framework/base/mutex.h"
#include "framework/base/thread_pool.h"
#include "framework/wire/frame.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/handling_core.h"

namespace weir {
namespace {

using ::testing::ElementsAre;

Slices Bytes(const std::string& text) { return {Slice::Own(text)}; }

// Notes calls, and the threads that bring them.
class Notes {
 public:
  void Add(const std::string& call) {
    MutexLock lock(&mu_);
    calls_.push_back(call);
    threads_.push_back(std::this_thread::get_id());
  }
  std::vector<std::string> calls() {
    MutexLock lock(&mu_);
    return calls_;
  }
  std::vector<std::thread::id> threads() {
    MutexLock lock(&mu_);
    return threads_;
  }

 private:
  Mutex mu_;
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mu_);
  std::vector<std::thread::id> threads_ ABSL_GUARDED_BY(mu_);
};

class OwnCore : public HandlingCore {
 public:
  explicit OwnCore(Notes* notes) : notes_(*notes) {}
  void Handle(Method method, const Slices& request, ReplyCallback reply) override {
    notes_.Add(std::string(MethodName(method)) + " " + Flatten(request));
    reply(Bytes("own"));
  }

 private:
  Notes& notes_;
};

class Others : public Transport {
 public:
  Others(Notes* notes, bool checks) : notes_(*notes), checks_(checks) {}
  void Call(int server, Method method, Slices request, absl::Duration, ReplyCallback done) override {
    notes_.Add(std::string(MethodName(method)) + " " + Flatten(request) + " to " + std::to_string(server));
    done(Bytes("other"));
  }
  std::string Describe(int server) const override { return "other " + std::to_string(server); }
  int servers() const override { return 3; }
  bool answers_inside() const override { return true; }
  bool checks_payloads() const override { return checks_; }

 private:
  Notes& notes_;
  const bool checks_;
};

TEST(OwnServerTest, OwnCallsStayInsideAndOthersGoOn) {
  Notes own, others;
  OwnCore core(&own);
  Others network(&others, /*checks=*/true);
  ThreadPool pool("server", 1);
  std::vector<std::string> replies(3);
  {
    const auto transport = MakeOwnServerTransport({.own = 1, .core = &core, .others = &network, .pool = &pool});
    EXPECT_EQ(transport->servers(), 3);
    EXPECT_EQ(transport->Describe(1), "server 1 in this process");
    EXPECT_EQ(transport->Describe(2), "other 2");
    EXPECT_TRUE(transport->is_own(1, Method::kPush));
    EXPECT_FALSE(transport->is_own(2, Method::kPush));
    for (int s = 0; s < 3; ++s) {
      transport->Call(s, Method::kPush, Bytes("part"), absl::Seconds(1), [&replies, s](absl::StatusOr<Slices> reply) {
        replies[static_cast<size_t>(s)] = reply.ok() ? Flatten(*reply) : reply.status().ToString();
      });
    }
    // The destructor waits for the handler.
  }
  EXPECT_THAT(replies, ElementsAre("other", "own", "other"));
  EXPECT_THAT(own.calls(), ElementsAre("Push part"));
  EXPECT_THAT(others.calls(), ElementsAre("Push part to 0", "Push part to 2"));
  EXPECT_NE(own.threads()[0], std::this_thread::get_id());
}

TEST(OwnServerTest, AServerThatHoldsNothingAnswersInsideCall) {
  Notes own, others;
  OwnCore core(&own);
  Others network(&others, /*checks=*/true);
  ThreadPool pool("server", 1);
  const auto transport =
      MakeOwnServerTransport({.own = 1, .core = &core, .others = &network, .pool = &pool, .holds_nothing = true});
  for (const Method method : {Method::kPush, Method::kPull}) {
    std::string answer;
    transport->Call(1, method, Bytes("part"), absl::Seconds(1),
                    [&answer](absl::StatusOr<Slices> reply) { answer = Flatten(*reply); });
    EXPECT_EQ(answer, "own");
  }
  EXPECT_THAT(own.calls(), ElementsAre("Push part", "Pull part"));
  EXPECT_EQ(own.threads()[0], std::this_thread::get_id());
}

// The caller keeps a slice without an owner alive only until Call returns.
TEST(OwnServerTest, BorrowedBytesAreCopied) {
  Notes own, others;
  OwnCore core(&own);
  Others network(&others, /*checks=*/true);
  ThreadPool pool("server", 1);
  {
    const auto transport = MakeOwnServerTransport({.own = 0, .core = &core, .others = &network, .pool = &pool});
    Mutex busy;
    std::string bytes = "part";
    {
      MutexLock lock(&busy);
      pool.Schedule([&busy] { MutexLock wait(&busy); });
      transport->Call(0, Method::kPush, {Slice::Borrow(bytes.data(), bytes.size())}, absl::Seconds(1),
                      [](const absl::StatusOr<Slices>&) {});
      bytes = "gone";
    }
  }
  EXPECT_THAT(own.calls(), ElementsAre("Push part"));
}

TEST(OwnServerTest, AHeartbeatDoesNotWaitBehindAnUpdate) {
  Notes own, others;
  OwnCore core(&own);
  Others network(&others, /*checks=*/true);
  ThreadPool pool("server", 1);
  const auto transport = MakeOwnServerTransport({.own = 0, .core = &core, .others = &network, .pool = &pool});
  for (const Method method : {Method::kJoin, Method::kHeartbeat}) {
    bool answered = false;
    transport->Call(0, method, Bytes(""), absl::Seconds(1), [&](const absl::StatusOr<Slices>&) { answered = true; });
    EXPECT_TRUE(answered);
  }
  EXPECT_THAT(own.threads(), ElementsAre(std::this_thread::get_id(), std::this_thread::get_id()));
}

// The core takes pushes of both kinds and checks all or none.
TEST(OwnServerTest, PayloadsAreCheckedAsOnTheWayToOthers) {
  Notes own, others;
  OwnCore core(&own);
  ThreadPool pool("server", 1);
  for (const bool checks : {true, false}) {
    Others network(&others, checks);
    const auto transport = MakeOwnServerTransport({.own = 0, .core = &core, .others = &network, .pool = &pool});
    EXPECT_EQ(transport->checks_payloads(), checks);
    EXPECT_FALSE(transport->answers_inside());
  }
}

}  // namespace
}  // namespace weir
